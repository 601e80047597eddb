"""The kinds of export failures, by what exporters say: messages of torch 2.13, word for word where they are long."""

import pytest

from onnxbisect.export.failure import REMEDIES, CodeLine, Failure, FailureKind, cause_of, first_sentence, remedy

GUARD = "Could not guard on data-dependent expression Eq(u0, 1) (unhinted: Eq(u0, 1)). (Size-like symbols: none)"
COUNT = "Could not extract specialized integer from data-dependent expression u0 (unhinted: u0)."
BOOLEAN = "Converting a tensor to a Python boolean might cause the trace to be incorrect."


def failure(message: str, source: str = "", types: tuple[str, ...] = (), op: str = "") -> Failure:
    return Failure(message=message, types=types, op=op, place=CodeLine(file="model.py", line=7, source=source))


@pytest.mark.parametrize(
    ("told", "kind"),
    [
        (failure(GUARD, "if x.mean() > 0:"), FailureKind.BRANCH),
        (failure(GUARD, "y = a if x.any() else b"), FailureKind.BRANCH),
        (failure(COUNT, "for _ in range(int(steps)):"), FailureKind.LOOP),
        (failure(GUARD, "while x.sum() > 1:"), FailureKind.LOOP),
        (failure(COUNT, "return x[int(image)]"), FailureKind.INDEX),
        (failure(GUARD, "keep = torch.nonzero(scores)"), FailureKind.SHAPE),
        (failure(GUARD, "return x.view(n, -1)"), FailureKind.SHAPE),
        (failure(".numpy() is not supported for tensor subclasses."), FailureKind.NUMPY),
        (
            failure("No ONNX function found", types=("DispatchError",), op="aten._linalg_svd.default"),
            FailureKind.NO_FORM,
        ),
        (
            failure("No ONNX function found", types=("DispatchError",), op="torchvision.nms.default"),
            FailureKind.CUSTOM_OP,
        ),
        (failure("Exporting the operator 'aten::x' to ONNX opset version 17 is not supported"), FailureKind.NO_FORM),
        (
            failure("Unsupported input type <class 'Cache'>. Export only supports pytree containers"),
            FailureKind.CONTAINER,
        ),
        (failure("Only tuples, lists and Variables are supported as JIT inputs/outputs."), FailureKind.CONTAINER),
        (failure("ComplexFloat is no complex64 of ONNX"), FailureKind.DTYPE),
        (failure("it did not end within 5 s", types=("TimeLimit",)), FailureKind.TIME),
        (failure("DefaultCPUAllocator: can't allocate memory"), FailureKind.CRASH),
        (
            failure("Cannot view a tensor with shape torch.Size([1, 6, 2, 16]) and strides (192, 16, 96, 1)"),
            FailureKind.IN_PLACE,
        ),
        (failure("Exporting a ScriptModule is not supported. Maybe try TS2EPConverter"), FailureKind.SCRIPTED),
        (
            failure("__torch__.torch.classes.quantized.LinearPackedParamsBase does not have '__obj_flatten__'"),
            FailureKind.QUANTIZED,
        ),
        (
            failure("zeros(): argument 'size' failed to unpack the object", types=("TypeError", "PackedSequence")),
            FailureKind.PACKED,
        ),
        (failure("something new"), FailureKind.OTHER),
    ],
)
def test_the_message_and_the_line_tell_the_kind(told: Failure, kind: FailureKind) -> None:
    assert cause_of(told).kind is kind
    assert cause_of(told).place == told.place


def test_a_warning_about_shapes_is_no_cause_of_wrong_numbers() -> None:
    shapes = CodeLine(file="model.py", line=3, source="if x.shape[0] > 1:")
    values = CodeLine(file="model.py", line=9, source="if x.mean() > 0:")
    told = Failure(message="", differs="by 1", warned=((shapes, BOOLEAN), (values, BOOLEAN)))
    assert (cause_of(told).kind, cause_of(told).place) == (FailureKind.BRANCH, values)
    told = Failure(message="", differs="by 1", warned=((shapes, BOOLEAN),), lost=("i1",))
    assert cause_of(told).kind is FailureKind.LOST_INPUT


def test_every_kind_has_a_remedy_and_an_op_is_named() -> None:
    assert set(REMEDIES) == set(FailureKind)
    told = failure("No ONNX function found", types=("DispatchError",), op="aten._linalg_svd.default")
    assert remedy(cause_of(told), told).startswith("aten._linalg_svd.default has none: ")


def test_advice_about_logs_is_no_part_of_a_message() -> None:
    assert first_sentence(f"{GUARD} For more information, run with TORCH_LOGS") == (
        "Could not guard on data-dependent expression Eq(u0, 1)"
    )
