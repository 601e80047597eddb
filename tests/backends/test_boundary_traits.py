"""Small models that ask what a compiler takes at a model's boundary."""

from collections.abc import Callable, Iterable
from dataclasses import replace

import onnx
import pytest
from onnx import TensorProto

from onnxbisect.cut.required_producers import is_empty
from onnxbisect.probe_format import ProbeFormat
from onnxbisect_backends.probing.boundary_traits import DTYPES, as_measured, measure, newest_versions, usual_traits
from onnxbisect_backends.probing.small_models import trial
from onnxbisect_backends.probing.traits import Trait, TraitKind
from support.engine.cut_models import session

IR_14, OPSET_28 = (
    Trait(what=what, output=False, value=value) for what, value in ((TraitKind.IR, "14"), (TraitKind.OPSET, "28"))
)

Refuses = Callable[[onnx.GraphProto], bool]


def bool_inside(graph: onnx.GraphProto) -> bool:
    """Bool anywhere, so that it is no matter of the boundary."""
    bools = {TensorProto.BOOL}
    return any(it.type.tensor_type.elem_type in bools for it in (*graph.input, *graph.output)) or any(
        node.op_type in ("Greater", "Where") or any(it.name == "to" and it.i in bools for it in node.attribute)
        for node in graph.node
    )


def rank_of(values: Iterable[onnx.ValueInfoProto], which: Callable[[Iterable[int]], int] = max) -> int:
    return which(len(it.type.tensor_type.shape.dim) for it in values)


def high_rank_inside(graph: onnx.GraphProto) -> bool:
    """A tensor of rank 5 anywhere."""
    return rank_of((*graph.input, *graph.output)) > 4 or any(
        len(it.dims) == 1 and it.dims[0] > 4 for it in graph.initializer
    )


def empty(value: onnx.ValueInfoProto) -> bool:
    return is_empty(value.type)


def empty_inside(graph: onnx.GraphProto) -> bool:
    """A tensor without elements anywhere."""
    return any(map(empty, (*graph.input, *graph.output))) or any(node.op_type == "Slice" for node in graph.node)


@pytest.mark.parametrize(
    ("refuses", "expected"),
    [
        (lambda graph: False, ProbeFormat()),
        (
            lambda graph: any(not it.type.tensor_type.shape.dim for it in graph.input),
            ProbeFormat(min_input_rank=1),
        ),
        (
            lambda graph: any(not it.type.tensor_type.shape.dim for it in graph.output),
            ProbeFormat(min_output_rank=1),
        ),
        (lambda graph: rank_of(graph.input, min) < 2, ProbeFormat(min_input_rank=2)),
        (lambda graph: rank_of(graph.output, min) < 2, ProbeFormat(min_output_rank=2)),
        (lambda graph: any(len(it.name) >= 200 for it in graph.input), ProbeFormat(longest_name=60)),
        (lambda graph: any(len(it.name) > 40 for it in graph.input), ProbeFormat(longest_name=24)),
        (lambda graph: any(":" in it.name for it in graph.output), ProbeFormat(safe_names=True)),
        (
            lambda graph: any(it.type.tensor_type.elem_type == TensorProto.BOOL for it in graph.input),
            ProbeFormat(input_dtypes=frozenset({"float", *DTYPES} - {"bool"})),
        ),
        (
            lambda graph: any(it.type.tensor_type.elem_type != TensorProto.FLOAT for it in graph.output),
            ProbeFormat(output_dtypes=frozenset({"float"})),
        ),
        (bool_inside, ProbeFormat()),
        (lambda graph: rank_of(graph.input) > 4, ProbeFormat(max_input_rank=4)),
        (lambda graph: rank_of(graph.output) > 6, ProbeFormat(max_output_rank=6)),
        (high_rank_inside, ProbeFormat()),
        (lambda graph: any(empty(it) for it in graph.input), ProbeFormat(empty_inputs=False)),
        (lambda graph: any(empty(it) for it in (*graph.input, *graph.output)), ProbeFormat(empty_inputs=False)),
        (empty_inside, ProbeFormat()),
        (lambda graph: len(graph.input) > 16, ProbeFormat(max_inputs=9)),
    ],
    ids=[
        *("nothing", "rank 0 in", "rank 0 out", "rank 1 in", "rank 1 out", "long names", "names above 40"),
        *("colons", "bool in", "all but float out"),
        *("bool anywhere", "rank 5 in", "rank 7 out", "rank 5 anywhere"),
        *("empty in", "empty in and out", "empty anywhere", "more than 16 inputs"),
    ],
)
def test_what_is_refused_at_the_boundary_alone_is_found(refuses: Refuses, expected: ProbeFormat) -> None:
    calls = 0

    def ask(model: onnx.ModelProto) -> bool:
        nonlocal calls
        calls += 1
        return not refuses(model.graph)

    taken = measure(ask, usual_traits())

    assert as_measured(ProbeFormat(), taken) == expected
    assert type(as_measured(ProbeFormat(), taken).min_input_rank) is int  # as TOML, 1 and not true
    assert calls == 1 or refuses(trial(usual_traits()).graph)


@pytest.mark.parametrize("most", [1, 12, 19])
def test_as_many_inputs_and_outputs_as_are_taken_are_known(most: int) -> None:
    """The model has one of each besides, and no other trait is taken for the limit."""
    found = measure(lambda model: max(len(model.graph.input), len(model.graph.output)) <= most + 1, usual_traits())
    refused = {trait for trait, takes in found.items() if not takes}
    assert {trait.what for trait in refused} == {TraitKind.COUNT}
    assert {int(trait.value) for trait in refused} == {count for count in (8, 20) if count > most}
    taken = max((count + 1 for count in (8, 20) if count <= most), default=1)
    assert as_measured(ProbeFormat(), found) == ProbeFormat(max_inputs=taken, max_outputs=taken)


@pytest.mark.parametrize("ir", [8, 9, 12, 14])
@pytest.mark.parametrize("opset", [13, 15, 20, 27, 28])
def test_the_newest_versions_that_are_read_are_found(ir: int, opset: int) -> None:
    calls = 0

    def ask(model: onnx.ModelProto) -> bool:
        nonlocal calls
        calls += 1
        return model.ir_version <= ir and model.opset_import[0].version <= opset

    found = measure(ask, {IR_14, OPSET_28, Trait(what=TraitKind.DTYPE, output=False, value="bool")})

    assert newest_versions(None, None, found) == (ir if ir < 14 else None, opset if opset < 28 else None)
    assert newest_versions(7, 11, found) == (7, 11)
    assert as_measured(ProbeFormat(), found) == ProbeFormat()
    assert calls <= (1 if ir == 14 and opset == 28 else 14)


def test_what_is_refused_in_every_version_says_nothing_of_versions() -> None:
    assert newest_versions(None, None, measure(lambda model: False, {IR_14, OPSET_28})) == (None, None)


def test_weights_beside_the_model_are_asked_for() -> None:
    external = Trait(what=TraitKind.EXTERNAL, output=False, value="")
    asked = {external, *usual_traits()}

    def within(model: onnx.ModelProto) -> bool:
        return not any(tensor.external_data for tensor in model.graph.initializer)

    assert as_measured(ProbeFormat(), measure(within, asked)) == ProbeFormat(self_contained=True)
    assert as_measured(ProbeFormat(), measure(lambda model: True, asked)) == ProbeFormat()
    assert as_measured(ProbeFormat(), measure(lambda model: not model.graph.initializer, [external])) == ProbeFormat()


def test_without_an_answer_nothing_is_known() -> None:
    assert measure(lambda model: None, usual_traits()) == {}


def test_a_compiler_that_takes_nothing_is_asked_twice() -> None:
    asked = []

    def ask(model: onnx.ModelProto) -> bool:
        asked.append(model)
        return False

    assert as_measured(ProbeFormat(), measure(ask, usual_traits())) == ProbeFormat()
    assert len(asked) == 2


def test_a_rank_that_was_not_asked_for_is_not_given_instead() -> None:
    """Only rank 7 was asked for, so 6 is not known to be taken."""
    assert as_measured(ProbeFormat(), {Trait(what=TraitKind.RANK, output=True, value="7"): False}).max_output_rank == 4


def test_what_is_declared_stays() -> None:
    declared = ProbeFormat(
        input_dtypes=frozenset({"float"}), longest_name=127, min_input_rank=2, max_input_rank=4, max_output_rank=8
    )
    refused = {
        Trait(what=TraitKind.NAME, output=False, value="300"): False,
        Trait(what=TraitKind.RANK, output=False, value="0"): False,
        Trait(what=TraitKind.RANK, output=False, value="6"): False,
        Trait(what=TraitKind.DTYPE, output=False, value="int8"): False,
    }
    assert as_measured(declared, refused) == declared


def test_what_was_measured_makes_stricter_what_is_declared() -> None:
    declared = ProbeFormat(output_dtypes=frozenset({"float", "double", "int32"}), max_output_rank=6)
    refused = {
        Trait(what=TraitKind.DTYPE, output=True, value="double"): False,
        Trait(what=TraitKind.RANK, output=True, value="5"): True,
        Trait(what=TraitKind.RANK, output=True, value="6"): False,
    }
    stricter = ProbeFormat(output_dtypes=frozenset({"float", "int32"}), max_output_rank=5)
    assert as_measured(declared, refused) == stricter


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_small_model_of_a_dtype_moves_its_elements(dtype: str) -> None:
    """QNN takes a Transpose that moves dimensions of 1 only for a Reshape, which it removes between Casts: such a model
    would say that a boundary is refused where it is the Transpose.
    """
    for output in (False, True):
        graph = trial([Trait(what=TraitKind.DTYPE, output=output, value=dtype)]).graph
        shapes = [[dim.dim_value for dim in it.type.tensor_type.shape.dim] for it in (*graph.input, *graph.output)]
        assert all(size > 1 for shape in shapes for size in shape)


NEW = frozenset(replace(it, value=value) for it, value in ((IR_14, "13"), (OPSET_28, "26")))


@pytest.mark.parametrize("trait", [None, *sorted(usual_traits() | NEW)], ids=str)
def test_the_small_models_are_valid_and_run(trait: Trait | None) -> None:
    model = trial(sorted(usual_traits() | NEW) if trait is None else [trait])
    onnx.checker.check_model(model, full_check=True)
    assert len(session(model.SerializeToString()).get_inputs()) == len(model.graph.input)
