"""The installed rules: those of every module here, one for each family of ops, and those of other packages.

Other packages name a module with rules by the entry-point group `onnx_bisect.rules`.
"""

import sys
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from importlib.metadata import entry_points
from pkgutil import iter_modules
from types import ModuleType

from onnxbisect.rewrites.rule import Rule, rules_in

_MODULES = [import_module(f"{__name__}.{module.name}") for module in iter_modules(__path__)]
RULES = tuple(rule for module in _MODULES for rule in rules_in(module))
_GROUP = "onnx_bisect.rules"


@dataclass(frozen=True, kw_only=True)
class BrokenRules:
    """An entry point that cannot be loaded; `reason` is a sentence, `origin` its package."""

    name: str
    reason: str
    origin: str


@dataclass(frozen=True, kw_only=True)
class Installed:
    """All rules, ordered by rank, and the entry points that could not be loaded."""

    rules: tuple[Rule, ...]
    broken: tuple[BrokenRules, ...]


def installed() -> Installed:
    """All rules. An entry point names a module, whose rules are added; one that fails to load is listed and does not
    stop the others.
    """
    return _installed_on(tuple(sys.path))


@cache
def _installed_on(_path: tuple[str, ...]) -> Installed:
    """Cached, because it opens a file of every installed distribution."""
    rules = {rule.id: rule for rule in RULES}
    broken = []
    for point in sorted(entry_points(group=_GROUP), key=lambda point: point.name):
        try:
            module = point.load()
            loaded = rules_in(module) if isinstance(module, ModuleType) else ()
            if not loaded:
                raise TypeError(f"{point.value} is no module with rules")
            twice = next((rule.id for rule in loaded if rule.id in rules), None)
            if twice is not None:
                raise ValueError(f"the rule {twice!r} exists already")
        except Exception as error:  # whatever a third party's module raises while it is imported
            origin = point.dist.name if point.dist else ""
            broken.append(BrokenRules(name=point.name, reason=f"{type(error).__name__}: {error}", origin=origin))
        else:
            rules |= {rule.id: rule for rule in loaded}
    ordered = sorted(rules.values(), key=lambda rule: rule.order)
    return Installed(rules=tuple(ordered), broken=tuple(broken))
