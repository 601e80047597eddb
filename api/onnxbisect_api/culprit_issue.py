"""A culprit as the text of an issue for the compiler's vendor: steps to reproduce, environment, log.

It contains no model names and labels of the tenant; the compiler's messages may contain node names.
"""

from collections.abc import Sequence

from onnxbisect.report.text import clip, code, fence, table
from onnxbisect_db.culprit_versions import TargetVersion
from onnxbisect_db.tables import Culprit, CulpritVerdict
from onnxbisect_service.service import Service

#: The quoted end of a log, where the error is: most lines, and most characters of each line.
_LINES, _WIDTH = 100, 400
#: Most bytes of a log file that are read, because a model process wrote it.
_LARGEST = 1 << 20


def issue(service: Service, culprit: Culprit, refused: CulpritVerdict, versions: Sequence[TargetVersion]) -> str:
    """The issue in Markdown. `refused` is the verdict that it reports, `versions` are all versions with a verdict."""
    ops = " + ".join(code(op) for op in culprit.ops[:8])
    tool = code(f"{refused.tool} {refused.version}")
    same = [it for it in versions if it.target == (refused.backend, refused.options)]
    blocks = [
        f"# {ops} is refused by {tool}",
        f"The compiler says {code(culprit.message)}. What is refused: {code(culprit.cause)}.",
        "## Environment",
        table(
            ("version", "says"),
            [(code(f"{it.tool} {it.version}", cell=True), it.status.value) for it in same],
        ),
        *_options(refused),
        "## Reproduce",
        _reproduce(refused),
        "## Log",
        *_log(service, refused.files or {}),
    ]
    return "\n\n".join(blocks) + "\n"


def _options(refused: CulpritVerdict) -> list[str]:
    rows = [(code(name, cell=True), code(str(value), cell=True)) for name, value in refused.given.items()]
    return [table(("option", "value"), rows)] if rows else []


def _reproduce(refused: CulpritVerdict) -> str:
    files = refused.files or {}
    if "model.onnx" not in files:
        return "No file that reproduces it alone has been compiled."
    data = ", with its weights in `model.data`" if "model.data" in files else ""
    return (
        f"The attached `model.onnx`{data}, SHA-256 {code(files['model.onnx'])}, is the smallest part that is refused. "
        f"Compile it with {'the options above' if refused.options != '{}' else 'no options'}."
    )


def _log(service: Service, files: dict[str, str]) -> list[str]:
    if "compiler.log" not in files:
        return ["It is not kept."]
    with service.files.open(files["compiler.log"]) as file:
        text = file.read(_LARGEST).decode("utf-8", "replace")
    lines = [clip(line, _WIDTH) for line in text.rstrip("\n").split("\n")]
    cut = [f"The last {_LINES} of {len(lines)} lines:"] if len(lines) > _LINES else []
    return [*cut, fence(*lines[-_LINES:], language="text")]
