"""A rewrite rule: one node, or several, replaced by others, under a condition, with a stated exactness and source."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import ModuleType
from typing import TYPE_CHECKING

import numpy as np
import onnx

from onnxbisect.exactness import Exactness
from onnxbisect.language import english
from onnxbisect.rewrites.patterns import Pattern, ops_of

if TYPE_CHECKING:
    from onnxbisect.rewrites.site import Site

#: The values of a node's inputs in one sample, by slot; None where an input is omitted or its value is not known. Of a
#: pattern it is the value of its `x` alone.
Values = Sequence[np.ndarray | None]


@dataclass(frozen=True, kw_only=True)
class Bound:
    """The largest difference of an output element: `epsilons` times the dtype's machine epsilon times the magnitude of
    `of`, plus `absolute`. NaN and infinity must agree if the difference is bounded.

    `note` is what a reader must know in addition, such as the sign of zero.
    """

    epsilons: float = 0.0
    of: str = "the output"
    absolute: float = 0.0
    note: str = ""

    @property
    def text(self) -> str:
        """The bound in words; empty if the replacement is exact without restriction."""
        if not (self.epsilons or self.absolute):
            return self.note
        factor, absolute, rest = f"{self.epsilons:g}", f"{self.absolute:g}", self.note
        if not self.epsilons:
            if rest:
                return english("within {absolute}; {rest}", absolute=absolute, rest=rest)
            return english("within {absolute}", absolute=absolute)
        if self.absolute and rest:
            return english(
                "within {factor} ε of {subject} + {absolute}; {rest}",
                factor=factor,
                subject=self.of,
                absolute=absolute,
                rest=rest,
            )
        if self.absolute:
            return english(
                "within {factor} ε of {subject} + {absolute}", factor=factor, subject=self.of, absolute=absolute
            )
        if rest:
            return english("within {factor} ε of {subject}; {rest}", factor=factor, subject=self.of, rest=rest)
        return english("within {factor} ε of {subject}", factor=factor, subject=self.of)


@dataclass(frozen=True, kw_only=True)
class Domain:
    """The inputs for which a rule holds: in words, and as a check of the values that occur."""

    text: str
    holds: Callable[[Values], bool]


#: Nothing differs.
NO_DIFFERENCE = Bound()
#: Nothing but the sign of zero differs.
SIGN_OF_ZERO = Bound(note="the sign of zero may differ")
#: Products summed in another order: each can lose an epsilon of the sum.
OF_PRODUCTS = Bound(epsilons=1, of="the sum of the products' magnitudes, times their number plus 2", absolute=1e-37)
#: The first input has no NaN.
NO_NAN = Domain(text="no NaN", holds=lambda values: values[0] is not None and not np.isnan(values[0]).any())
FINITE = Domain(
    text="no NaN or infinity", holds=lambda values: values[0] is not None and bool(np.isfinite(values[0]).all())
)


_TIDL = (
    "https://github.com/TexasInstruments/edgeai-tidl-tools/blob/95ba2c7ec62bbedeb637d7a5c0273fcede21cac9/"
    "osrt-model-tools/osrt_model_tools/onnx_tools/tidl_onnx_model_optimizer/src/"
)
_EXECUTORCH = "https://github.com/pytorch/executorch/blob/cff6f4dd32e630945b7188512c1f2b4f102b05ad/backends/"

OLIVE = (
    "https://github.com/microsoft/Olive/blob/ee6f40fbefcc54f48cccab5ef4746b6c6dd28372/"
    "olive/passes/onnx/graph_surgeries.py"
)
ONNX2TF = "https://github.com/PINTO0309/onnx2tf#readme"
CONVERTER_FIX = (
    "https://gitcode.com/openharmony-model-agent/model-claw/blob/master/.opencode/skills/"
    "onnx-converter-operator-fix/SKILL.md"
)
ORT_CONTRIB = "https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md"
ONNX_OPERATORS = "https://onnx.ai/onnx/operators/onnx__"
AI_HUB = (
    "https://github.com/qualcomm/ai-hub-models/blob/b61a009028de5420032377d9e6bd7280aae24c74/qai_hub_models/models/"
)


def tidl(file: str) -> str:
    """A rule of TI's model optimiser."""
    return _TIDL + file


def executorch(file: str) -> str:
    """A pass of one of ExecuTorch's backends."""
    return _EXECUTORCH + file


def operator(name: str) -> str:
    """The definition of an ONNX operator."""
    return f"{ONNX_OPERATORS}{name}.html"


#: Emits the replacement through the site and returns the tensors that take the place of the node's outputs, one for
#: each. Raises NotApplicable where the rule's condition does not hold.
Builder = Callable[["Site"], "str | tuple[str, ...]"]
#: `Rule.takes` of a rule for every op.
ANY_OP = "*"


class NotApplicable(Exception):  # noqa: N818 - no error: the answer that a rule's condition does not hold
    """The condition of a rule does not hold at a node; the text is the reason."""


@dataclass(frozen=True, kw_only=True)
class Rule:
    """How to replace one node, or with a `pattern` all its nodes.

    `takes` and `gives` are op names as in reports: bare, or `domain::Op`. `rank` orders rules by how often users needed
    them, most often first. `pytorch` is the source line with the same effect when the model is exported.
    """

    id: str
    takes: tuple[str, ...]
    gives: tuple[str, ...]
    summary: str
    exactness: Exactness
    bound: Bound
    domain: Domain | None
    rank: int
    source: str
    pytorch: str
    build: Builder
    pattern: Pattern | None = None

    @property
    def order(self) -> tuple[int, int, str]:
        """The sort key: the rank, then the exactness."""
        return (self.rank, list(Exactness).index(self.exactness), self.id)

    def takes_op(self, op: str) -> bool:
        """Whether the rule is for nodes of this op."""
        return op in self.takes or ANY_OP in self.takes


@dataclass(frozen=True, kw_only=True)
class Replacement:
    """The nodes that replace one node, in topological order, with the tensors that they need besides its inputs.

    `opsets` are versions of operator sets that the model must import in addition. `removes` are nodes removed with the
    replaced one, in graph order.
    """

    nodes: tuple[onnx.NodeProto, ...]
    initializers: tuple[onnx.TensorProto, ...] = ()
    opsets: Mapping[str, int] = field(default_factory=dict)
    removes: tuple[onnx.NodeProto, ...] = ()


def rule(
    change: str,
    exactness: Exactness,
    bound: Bound = NO_DIFFERENCE,
    *,
    rank: int,
    source: str,
    domain: Domain | None = None,
    pattern: Pattern | None = None,
) -> Callable[[Builder], Rule]:
    """Make a rule of a builder, whose name becomes the id and whose docstring the summary.

    `change` names the ops that the rule takes and those that it gives: "Cos -> Add Sin", "* -> *" for any op. A rule
    with a pattern takes the pattern's ops, and nothing stands before the arrow.
    """
    takes, gives = change.split("->")

    def rule_of(build: Builder) -> Rule:
        return Rule(
            id=build.__name__.replace("_", "-"),
            takes=tuple(takes.split()) if pattern is None else ops_of(pattern),
            gives=tuple(gives.split()),
            summary=" ".join((build.__doc__ or "").split()),
            exactness=exactness,
            bound=bound,
            domain=domain,
            rank=rank,
            source=source,
            pytorch="",
            build=build,
            pattern=pattern,
        )

    return rule_of


def pytorch(line: str) -> Callable[[Rule], Rule]:
    """Add to a rule what to write in the PyTorch model instead, before it is exported."""
    return lambda rule: replace(rule, pytorch=line)


def rules_in(module: ModuleType) -> tuple[Rule, ...]:
    """The rules among the names of a module, in the order of their definition."""
    return tuple(value for value in vars(module).values() if isinstance(value, Rule))
