"""How results show themselves: on a terminal, and in a notebook."""

from html import escape
from typing import TYPE_CHECKING

from onnxbisect.report import terminal
from onnxbisect.report.html import environment

if TYPE_CHECKING:
    from onnxbisect.remedies.document import RepairDocument
    from onnxbisect.report.contents import Report


class ShownReport:
    """`print` shows what `onnx-bisect run` prints, and a notebook a table. Names of nodes are escaped in both."""

    report: "Report"

    def __str__(self) -> str:
        return "\n".join(terminal.lines(self.report))

    def _repr_html_(self) -> str:
        return environment().get_template("notebook.html.j2").render(doc=self.report)


class ShownRepair:
    """`print` shows what `onnx-bisect fix` prints, and a notebook the same."""

    document: "RepairDocument"

    def __str__(self) -> str:
        from onnxbisect.remedies.summary import lines

        return "\n".join(lines(self.document))

    def _repr_html_(self) -> str:
        return f"<pre>{escape(str(self))}</pre>"
