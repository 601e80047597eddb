"""Tables of errors by layer that vendors' tools print: they order the asks of a search, and decide nothing."""

from pathlib import Path

from onnxbisect.errors import OptionError
from onnxbisect.language import english
from onnxbisect_backends.vendors.pulsar2 import texts as pulsar2
from onnxbisect_backends.vendors.rknn import log as rknn
from onnxbisect_backends.vendors.tpu_mlir import log as tpu_mlir


def read_layer_errors(file: Path) -> list[tuple[str, ...]]:
    """The names that a table in a file has for the nodes or tensors of each layer, the worst layer first.

    It is the one that RKNN's `accuracy_analysis`, TPU-MLIR's `run_qtable` or `npz_tool compare`, or pulsar2's precision
    analysis prints or writes, with anything around it. Raises OptionError if there is none.
    """
    try:
        text = file.read_text(errors="replace")
    except OSError as error:
        raise OptionError(english("{file} cannot be read: {reason}.", file=file, reason=error.strerror)) from None
    found = [(it.single, it.tensors) for it in rknn.layer_errors(text)]
    found += [(cosine, (op,)) for op, cosine in tpu_mlir.layer_errors(text)]
    found += [(it.cosine, (it.node,)) for table in pulsar2.precision_tables(text) for it in pulsar2.layers(table)]
    if not found:
        raise OptionError(
            english(
                "{file} has no table of errors that is known: give what RKNN's accuracy_analysis, TPU-MLIR's "
                "run_qtable or pulsar2's precision analysis prints.",
                file=file,
            )
        )
    return [names for _, names in sorted(found, key=lambda it: it[0])]
