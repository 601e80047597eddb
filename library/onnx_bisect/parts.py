"""A table of the results of several models, such as the parts of one network."""

from collections.abc import Mapping, Sequence

from onnx_bisect.result import Result
from onnxbisect.errors import OptionError
from onnxbisect.report import parts, words
from onnxbisect.report.overview import AskedModel, TargetReport
from onnxbisect.report.parts import PartsTable


def parts_table(results: Mapping[str, Result | Sequence[Result]]) -> PartsTable:
    """The table of models by targets, and the causes that several models share.

    `results` maps each model's label to its result, or to one result per target. Raises OptionError unless all models
    have the same targets in the same order.
    """
    rows = {label: [each] if isinstance(each, Result) else list(each) for label, each in results.items()}
    asked = [
        [(result.target.backend, words.target(result.report["target"])) for result in row] for row in rows.values()
    ]
    if not asked or any(row != asked[0] for row in asked) or not asked[0]:
        raise OptionError("The models of a table need results on the same targets, in the same order.")
    backends = [backend for backend, _ in asked[0]]
    labels = [
        backend if backends.count(backend) == 1 else f"{backend}-{number}" for number, backend in enumerate(backends, 1)
    ]
    return parts.parts_table(
        [
            parts.ModelPart(
                label=label,
                name=row[0].report["model"]["name"],
                subject=AskedModel.of_report(row[0].report),
                asked=[
                    TargetReport(label=target, backend=result.target.backend, report=result.report)
                    for target, result in zip(labels, row, strict=True)
                ],
            )
            for label, row in rows.items()
        ],
        dict(zip(labels, (text for _, text in asked[0]), strict=True)),
    )
