"""The result for each module of the network: `/image_encoder` compiles, `/prompt_encoder` has Sin, Cos, Abs."""

from onnxbisect.language import _
from onnxbisect.report.contents import ModuleEntry, Report
from onnxbisect.report.text import plural

#: Most modules that are shown, and most ops of each.
SHOWN, _OPS = 12, 8


def worth_showing(document: Report) -> list[ModuleEntry]:
    """The modules, failing ones first, if some compile and some do not; otherwise the ops say as much."""
    modules = document.get("modules", [])  # reports of earlier versions have none
    if len({module["verdict"] == "pass" for module in modules}) < 2:
        return []
    return sorted(modules, key=lambda module: module["verdict"] == "pass")


def name_of(module: ModuleEntry) -> str:
    """`/decoder`, or a phrase for nodes outside of all modules."""
    return str(module["name"]) or _("in no module")


def answer(module: ModuleEntry) -> str:
    """`compiles`; `Sin, Cos, Abs 5`; `5 units unknown`."""
    if module["verdict"] == "pass":
        return _("compiles")
    named = [f"{it['op']}{_times(it['nodes'])}" for it in module["refused"]]
    named += [_("{op}{times} suspected", op=it["op"], times=_times(it["nodes"])) for it in module["suspected"]]
    more = [_("{more} more", more=len(named) - _OPS)] if len(named) > _OPS else []
    unknown = [_("{units} unknown", units=plural(module["unknown"], "unit"))] if module["unknown"] else []
    return ", ".join([*named[:_OPS], *more, *unknown])


def _times(count: int) -> str:
    return f" {count}" if count > 1 else ""
