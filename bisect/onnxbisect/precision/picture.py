"""A picture of a search: the metric of each measurement against the share of work that it kept in high precision."""

from html import escape

from onnxbisect.precision.report import Asked, PrecisionReport
from onnxbisect.report.text import clip

_WIDTH, _HEIGHT, _LEFT, _TOP, _RIGHT, _BOTTOM = 720, 420, 70, 40, 20, 50
#: Colours that are told apart by people who see no red or green, and in grey.
_POINT, _SET, _LINE = "#7f8fa6", "#d55e00", "#0072b2"


def svg(report: PrecisionReport) -> str:
    """The picture as a file of its own, in English: measurements that gave no number are left out."""
    shown = [it for it in report.asks if it.on == report.backend and it.value is not None]
    values = [report.threshold, *(it.value for it in shown if it.value is not None)]
    low, high = min(values), max(values)
    spread = high - low or 1.0

    def x(share: float) -> float:
        return _LEFT + (_WIDTH - _LEFT - _RIGHT) * share

    def y(value: float) -> float:
        return _TOP + (_HEIGHT - _TOP - _BOTTOM) * (1 - (value - low) / spread)

    def point(it: Asked) -> str:
        chosen = it.value == report.value and it.kept == len(report.members)
        colour, radius = (_SET, 6) if chosen else (_POINT, 4)
        title = escape(f"ask {it.number}: {it.kept} nodes kept, {it.shown}")
        return (
            f'<circle cx="{x(it.work):.1f}" cy="{y(it.value or 0.0):.1f}" r="{radius}" fill="{colour}">'
            f"<title>{title}</title></circle>"
        )

    line = y(report.threshold)
    words = escape(clip(f"{report.model}: {report.wanted} in {report.low} ({report.arithmetic})", 90))
    axis = "share of the work in high precision"
    parts = [
        f'<text x="{_LEFT}" y="22" font-size="15">{words}</text>',
        f'<path d="M{_LEFT} {_TOP}V{_HEIGHT - _BOTTOM}H{_WIDTH - _RIGHT}" fill="none" stroke="#888"/>',
        f'<path d="M{_LEFT} {line:.1f}H{_WIDTH - _RIGHT}" stroke="{_LINE}" stroke-dasharray="6 4"/>',
        f'<text x="{_WIDTH - _RIGHT}" y="{line - 6:.1f}" fill="{_LINE}" text-anchor="end">wanted</text>',
        *(_label(_LEFT - 8, y(it) + 4, f"{it:.4g}", "end") for it in (low, high)),
        *(_label(x(it), _HEIGHT - _BOTTOM + 18, f"{100 * it:.0f} %", "middle") for it in (0.0, 0.25, 0.5, 0.75, 1.0)),
        _label(x(0.5), _HEIGHT - 10, axis, "middle"),
        *map(point, shown),
    ]
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" font-family="sans-serif" '
        f'font-size="12" role="img">\n<title>{words}</title>\n<rect width="100%" height="100%" fill="#fff"/>\n'
        + "\n".join(parts)
        + "\n</svg>\n"
    )


def _label(x: float, y: float, words: str, anchor: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(words)}</text>'
