"""The form of probe files that a target accepts. Backends declare it, `onnxbisect.cut` applies it."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class ProbeFormat:
    """Requirements on every probe file, so that the compiler judges the ops and not the form of the file.

    `input_dtypes`: the dtypes that graph inputs may have, as onnxruntime spells them without `tensor()` (`"float"`,
    `"int64"`, `"bool"`); None accepts all. Probes include further producers until all inputs have such dtypes; where
    there is none to include, an input gets another dtype and a Cast. `output_dtypes`: likewise, always with a Cast.
    `min_input_rank`, `min_output_rank`: inputs and outputs of a smaller rank get leading dimensions of 1, and a Squeeze
    or Unsqueeze (`onnxbisect.cut.neutral_boundary`). `max_input_rank`, `max_output_rank`: those of a larger rank get
    their leading dimensions as one, and a Reshape. `empty_inputs`: whether an input may have no elements; if not,
    probes include what makes it. `max_inputs`, `max_outputs`: of more, several become one
    (`onnxbisect.cut.packed_boundary`). `longest_name`: most bytes of the name of an input or output; longer ones are
    shortened.
    `self_contained`: weights are inside the file. `safe_names`: names of boundary tensors consist of `[A-Za-z0-9_]`.
    `explicit_defaults`: attributes with a schema default are written out, and so are the kernel shapes of convolutions.
    `unwritten_defaults`: attributes, as `Op.attribute`, that are exempt from this, and removed where they have their
    default. `constants_as_initializers`: Constant nodes become initializers. `covered`: op types that the target
    rejects where they make a graph output; a Relu is appended there, except where the output is the model's own.
    `accompanied`: op types that the target takes only where the file has no others; a piece of nothing else gets a Relu
    behind each float output.
    `folds`: the target computes constants before it looks at the ops. If it does not, probes include the producers of
    computed constants (`onnxbisect.cut.required_producers`), and outputs that would get lost are kept
    (`onnxbisect.cut.output_guard`). `loses_outputs`: the target folds, and loses outputs nonetheless: what another node
    computes as well, what it finds to be a constant too late, and what is an input after a Cast.
    """

    input_dtypes: frozenset[str] | None = None
    output_dtypes: frozenset[str] | None = None
    min_input_rank: int = 0
    min_output_rank: int = 0
    max_input_rank: int | None = None
    max_output_rank: int | None = None
    empty_inputs: bool = True
    max_inputs: int | None = None
    max_outputs: int | None = None
    longest_name: int | None = None
    self_contained: bool = False
    safe_names: bool = False
    explicit_defaults: bool = False
    unwritten_defaults: tuple[str, ...] = ()
    constants_as_initializers: bool = False
    covered: tuple[str, ...] = ()
    accompanied: tuple[str, ...] = ()
    folds: bool = True
    loses_outputs: bool = False

    @property
    def limits_boundary(self) -> bool:
        """Whether ranks or dtypes of inputs and outputs are limited."""
        limits = self.input_dtypes, self.output_dtypes, self.max_input_rank, self.max_output_rank
        return any(it is not None for it in limits) or self.min_input_rank > 0 or self.min_output_rank > 0
