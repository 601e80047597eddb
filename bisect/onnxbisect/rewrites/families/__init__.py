"""The rules that come with onnx-bisect: every rule of every module here, one module for each family of ops."""

from importlib import import_module
from pkgutil import iter_modules

from onnxbisect.rewrites.rule import rules_in

_MODULES = [import_module(f"{__name__}.{module.name}") for module in iter_modules(__path__)]
RULES = tuple(rule for module in _MODULES for rule in rules_in(module))
