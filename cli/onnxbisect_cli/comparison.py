"""`onnx-bisect compare`: dispatches to the comparison of reports or of models."""

from pathlib import Path

from onnxbisect.errors import OptionError
from onnxbisect_cli import model_comparison, report_comparison
from onnxbisect_cli.arguments import ListFormat


def run(request: model_comparison.Request, form: ListFormat) -> int:
    """Compare two reports or two models; OptionError for one of each."""
    reports = [_is_report(path) for path in (request.before, request.after)]
    if all(reports):
        if request.samples or request.input_shapes or request.tensors:
            raise OptionError("--samples, --input-shape and --tensors are for models, and these are reports.")
        return report_comparison.run(request.before, request.after, form)
    if any(reports):
        raise OptionError(
            f"One of {request.before} and {request.after} is a report, the other a model: compare two of a kind."
        )
    return model_comparison.run(request, form)


def _is_report(path: Path) -> bool:
    return path.is_dir() or path.suffix == ".json"
