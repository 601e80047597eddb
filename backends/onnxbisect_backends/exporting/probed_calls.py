"""What is called in a model, with which arguments, and what is not. Runs in the user's Python, see torch_probe.py."""

from __future__ import annotations

import copy
import functools
import hashlib
import inspect
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from types import FunctionType
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree

if TYPE_CHECKING:
    from probed_model import Loaded

MOST_SIGNATURES = 4
SIMPLE = (bool, int, float, str, type(None))


class Calls:
    """The calls of a module, or of a method of it: how often with which arguments, and in which others."""

    def __init__(self) -> None:
        self.signatures: dict[str, int] = {}
        self.stacks: set[tuple[str, ...]] = set()
        self.callers: list[str] = []
        self.foreign = self.tensors = self.makes = False

    def note(self, args: Any, kwargs: Any, stack: tuple[str, ...]) -> None:
        """A call begins."""
        self.stacks.add(stack)
        self.foreign |= not plain((args, kwargs))
        self.tensors |= bool(tensors((args, kwargs)))
        text = signature(args, kwargs)
        if text in self.signatures or len(self.signatures) < MOST_SIGNATURES:
            self.signatures[text] = self.signatures.get(text, 0) + 1

    def end(self, output: Any) -> None:
        """A call ends."""
        self.foreign |= not plain(output)
        self.makes |= bool(tensors(output))
        self.tensors |= self.makes


class CallWatch:
    """Sees what calls a module from outside: its forward, other methods, and properties; a context manager.

    A method that a module calls itself is a part of what it was called for. Methods are replaced in their classes, so
    that modules keep their classes. `begin` and `end` are called with the path; that of a method ends with its name.
    """

    def __init__(
        self, loaded: Loaded, begin: Callable[[str, Any, Any], None], end: Callable[[str, Any], None] | None = None
    ) -> None:
        self.loaded, self.begin, self.end = loaded, begin, end or (lambda path, output: None)
        self.active: list[tuple[Any, str]] = []
        self.ran: set[tuple[Any, str]] = set()
        self.undo: list[Callable[[], None]] = []

    def __enter__(self) -> None:
        # not a hook of each module: modules of torch.jit.script take none
        call = nn.Module.__call__
        nn.Module.__call__ = self.watched("forward", call)
        self.undo.append(functools.partial(setattr, nn.Module, "__call__", call))
        for cls in {base for it in self.loaded.modules.values() for base in bases(type(it))}:
            for name, method in own_methods(cls).items():
                setattr(cls, name, self.watched(name, method))
                self.undo.append(functools.partial(setattr, cls, name, method))

    def __exit__(self, *exception: object) -> None:
        for it in self.undo:
            it()

    def watched(self, name: str, method: Any) -> Any:
        """The method, which tells of its calls."""
        if isinstance(method, property):
            return property(self.watched(name, method.fget), method.fset, method.fdel)

        @functools.wraps(method)
        def watched(module: Any, *args: Any, **kwargs: Any) -> Any:
            path = self.enter(module, name, args, kwargs)
            output = None
            try:
                output = method(module, *args, **kwargs)
            finally:
                self.leave(path, output)
            return output

        return watched

    def enter(self, module: Any, name: str, args: Any, kwargs: Any) -> str | None:
        """The path of what is called from outside; None of a call that is a part of another one of the module."""
        self.ran.add((type(module), name))
        home = self.loaded.paths.get(id(module))
        if home is None or any(module is it for it, _ in self.active):
            return None
        path = home if name == "forward" else joined(home, name)
        self.loaded.targets[path] = (module, name)
        self.begin(path, args, kwargs)
        self.active.append((module, path))
        return path

    def leave(self, path: str | None, output: Any) -> None:
        """The end of what `enter` began."""
        if path is not None:
            self.active.pop()
            self.end(path, output)


class UsedWeights(TorchFunctionMode):
    """Sees which of these weights are used."""

    def __init__(self, owners: dict[int, str]) -> None:
        super().__init__()
        self.owners, self.used = owners, set[str]()

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        leaves = pytree.tree_flatten((args, kwargs))[0]
        self.used.update(self.owners[id(it)] for it in leaves if id(it) in self.owners)
        return function(*args, **(kwargs or {}))


def bases(cls: Any) -> list[Any]:
    """The class and those that it derives from, without torch's and Python's."""
    return [it for it in cls.__mro__ if it.__module__.partition(".")[0] not in ("torch", "builtins", "typing", "abc")]


def is_code(module: Any) -> bool:
    """Whether the module is more than a container of others."""
    return type(module).forward is not nn.Module.forward


def own_methods(cls: Any) -> dict[str, Any]:
    """The methods and properties that this class itself defines."""
    return {
        name: it
        for name, it in vars(cls).items()
        if (isinstance(it, FunctionType) or (isinstance(it, property) and it.fget)) and not name.startswith("__")
    }


def uncalled(module: Any, ran: set[tuple[Any, str]]) -> Iterator[str]:
    """Methods that did not run, such as `Decoder.generate`, by the class that defines them.

    Of what a library's class inherits, as that of all models of transformers, only those that use a weight or a module.
    """
    hidden = ("_", "get_", "set_", "reset_", "init_", "extra_repr")
    # what torch.jit.script has in place of these dicts is not iterable
    parts = {*module._modules.keys(), *module._parameters.keys(), *module._buffers.keys()}
    seen: set[str] = set()
    for base in bases(type(module)):
        of_library = "-packages" + os.sep in (getattr(sys.modules.get(base.__module__), "__file__", None) or "")
        for name, it in own_methods(base).items():
            if isinstance(it, property) or name in seen or (type(module), name) in ran or name.startswith(hidden):
                continue
            seen.add(name)
            if base is type(module) or not of_library or parts & {*inspect.unwrap(it).__code__.co_names}:
                yield f"{base.__name__}.{name}"


def signature(args: Any, kwargs: Any) -> str:
    """The form of a call: each tensor's type and shape, everything else by its value."""
    leaves, spec = pytree.tree_flatten((args, kwargs))
    texts = []
    for it in leaves:
        if isinstance(it, torch.Tensor):
            shape = "x".join(map(str, it.shape)) or "scalar"
            texts.append("{} {}".format(str(it.dtype).removeprefix("torch."), shape))
        else:
            texts.append(clipped(repr(it), 60) if isinstance(it, SIMPLE) else type(it).__name__)
    return "{} #{}".format(", ".join(texts), hashlib.sha256(str(spec).encode()).hexdigest()[:6])


def tensors(tree: Any) -> list[Any]:
    """The tensors among the leaves."""
    return [it for it in pytree.tree_flatten(tree)[0] if isinstance(it, torch.Tensor)]


def plain(tree: Any) -> bool:
    """Whether these are only tensors, simple values, and containers of them that every exporter takes."""
    known = (*SIMPLE, torch.Tensor, torch.dtype, torch.device, torch.layout)

    def is_leaf(it: Any) -> bool:
        return not isinstance(it, (tuple, list, dict)) or isinstance(it, nn.utils.rnn.PackedSequence)

    leaves = pytree.tree_flatten(tree, is_leaf=is_leaf)[0]
    return all(isinstance(it, known) for it in leaves)


def copied(tree: Any, to: str | None = None) -> Any:
    """A copy with tensors of its own, which later calls do not change."""

    def copy_of(leaf: Any) -> Any:
        if isinstance(leaf, torch.Tensor):
            return leaf.detach().to(to).clone() if to else leaf.detach().clone()
        return leaf if isinstance(leaf, (*SIMPLE, nn.Module)) else copy.deepcopy(leaf)

    return pytree.tree_map(copy_of, tree)


def joined(base: str, path: str) -> str:
    """The path of a module inside of another one."""
    return base + "." + path if base and path else base or path


def clipped(text: object, most: int) -> str:
    """The text on one line, and not longer."""
    line = " ".join(str(text).split())
    return line if len(line) <= most else line[: most - 1] + "…"


class Method(nn.Module):
    """A module whose forward is another method, or a property, of a module in it."""

    def __init__(self, module: Any, name: str) -> None:
        super().__init__()
        self.module = module
        found = inspect.getattr_static(type(module), name)
        forward: Any

        if isinstance(found, property):

            def forward() -> Any:
                return getattr(module, name)

        else:

            def forward(*args: Any, **kwargs: Any) -> Any:
                return getattr(module, name)(*args, **kwargs)

            forward.__signature__ = inspect.signature(getattr(module, name))
        self.forward = forward


class Positional(nn.Module):
    """A module whose keyword arguments are given by position."""

    def __init__(self, module: Any, count: int, names: Sequence[str]) -> None:
        super().__init__()
        self.module, self.count, self.names = module, count, names

    def forward(self, *args: Any) -> Any:
        """Call the module."""
        return self.module(*args[: self.count], **dict(zip(self.names, args[self.count :], strict=True)))


def named_or_positional(module: Any) -> set[str]:
    """The parameters that take an argument by name or by position."""
    parameters = inspect.signature(module.forward).parameters.values()
    return {it.name for it in parameters if it.kind is inspect.Parameter.POSITIONAL_OR_KEYWORD}
