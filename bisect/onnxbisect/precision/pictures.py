"""The report of a search for precise nodes with its pictures, which are files of their own, too, in English."""

from collections.abc import Iterable
from html import escape

from markupsafe import Markup

from onnxbisect.precision.report import Asked, PrecisionReport, TensorError
from onnxbisect.report.html import environment
from onnxbisect.report.text import clean, clip

_WIDTH, _HEIGHT, _LEFT, _TOP, _RIGHT, _BOTTOM = 720, 420, 70, 40, 20, 50
#: Colours that are told apart by people who see no red or green, and in grey.
_POINT, _SET, _LINE = "#7f8fa6", "#d55e00", "#0072b2"


def trade(report: PrecisionReport) -> str:
    """The metric of each measurement against the share of work kept high; those that gave no number are left out."""
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
    axis = "share of the work in high precision"
    parts = [
        f'<path d="M{_LEFT} {line:.1f}H{_WIDTH - _RIGHT}" stroke="{_LINE}" stroke-dasharray="6 4"/>',
        f'<text x="{_WIDTH - _RIGHT}" y="{line - 6:.1f}" fill="{_LINE}" text-anchor="end">wanted</text>',
        *(_label(_LEFT - 8, y(it) + 4, f"{it:.4g}", "end") for it in (low, high)),
        *(_label(x(it), _HEIGHT - _BOTTOM + 18, f"{100 * it:.0f} %", "middle") for it in (0.0, 0.25, 0.5, 0.75, 1.0)),
        _label(x(0.5), _HEIGHT - 10, axis, "middle"),
        *map(point, shown),
    ]
    return _picture(f"{report.model}: {report.wanted} in {report.low} ({report.arithmetic})", parts)


def flow(report: PrecisionReport) -> str:
    """The error of each tensor along the dataflow: all low, and with the set kept; marks are what the members make."""
    values = [value for it in report.errors for value in (it.low, it.kept)]
    low, high = min([*values, 0.0]), max([*values, 1.0]) * 1.2  # room for the words
    across, down = _WIDTH - _LEFT - _RIGHT, _HEIGHT - _TOP - _BOTTOM
    kept = {it.node for it in report.members}

    def spot(place: int, value: float) -> tuple[float, float]:
        return _LEFT + across * (place + 0.5) / len(report.errors), _TOP + down * (high - value) / (high - low)

    def line(values: Iterable[float], colour: str) -> str:
        points = " ".join("{:.1f},{:.1f}".format(*spot(place, value)) for place, value in enumerate(values))
        return f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="1.5"/>'

    def mark(place: int, it: TensorError) -> str:
        x, y = spot(place, it.kept)
        title = escape(clean(f"{it.node}: {it.kept:.1f} dB, all low {it.low:.1f} dB"))
        return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" fill="{_SET}"><title>{title}</title></circle>'

    parts = [
        line((it.low for it in report.errors), _POINT),
        line((it.kept for it in report.errors), _LINE),
        *(mark(place, it) for place, it in enumerate(report.errors) if it.node in kept),
        *(_label(_LEFT - 8, spot(0, value)[1] + 4, f"{value:.4g}", "end") for value in (low, high)),
        _label(_LEFT + across / 2, _HEIGHT - 10, "tensors, in the order of the nodes", "middle"),
        f'<text x="{_WIDTH - _RIGHT}" y="{_TOP + 12}" fill="{_LINE}" text-anchor="end">with the set kept</text>',
        f'<text x="{_WIDTH - _RIGHT}" y="{_TOP + 28}" fill="{_POINT}" text-anchor="end">all {report.low}</text>',
    ]
    return _picture(f"{report.model}: signal to noise of each tensor in dB (onnxruntime)", parts)


def html(report: PrecisionReport) -> str:
    """The report as one page that opens offline, with both pictures."""
    pictures = [Markup(it(report)) for it in ([trade, flow] if report.errors else [trade])]  # noqa: S704 - they escape
    return environment().get_template("precision.html.j2").render(doc=report, pictures=pictures)


def _picture(words: str, parts: Iterable[str]) -> str:
    title = escape(clip(clean(words), 90))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" font-family="sans-serif" '
        f'font-size="12" role="img">\n<title>{title}</title>\n<rect width="100%" height="100%" fill="#fff"/>\n'
        f'<text x="{_LEFT}" y="22" font-size="15">{title}</text>\n'
        f'<path d="M{_LEFT} {_TOP}V{_HEIGHT - _BOTTOM}H{_WIDTH - _RIGHT}" fill="none" stroke="#888"/>\n'
        + "\n".join(parts)
        + "\n</svg>\n"
    )


def _label(x: float, y: float, words: str, anchor: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(words)}</text>'
