"""The modules of a PyTorch model that its example inputs reach, as a tree."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

#: The path of the model itself.
ROOT = ""


@dataclass(frozen=True, kw_only=True)
class Module:
    """One module, as it was called.

    `key` is the digest of class, configuration and the shapes of its weights, of its own and of all modules inside.
    `signatures` describe the arguments of its calls, each distinct one once, in the order of the calls.
    """

    path: str
    cls: str
    key: str
    signatures: tuple[str, ...]
    calls: int = 1


class Tree:
    """The called modules by their paths. The parent of a module is the nearest called one that contains it."""

    def __init__(self, modules: Sequence[Module]) -> None:
        self.modules: Mapping[str, Module] = {it.path: it for it in modules}

    def children(self, path: str) -> tuple[str, ...]:
        """The called modules directly inside this one."""
        return self._children.get(path, ())

    def alike(self, path: str) -> tuple[str, ...]:
        """All modules of its class, configuration and calls, itself among them: they are one question."""
        return self._alike[self._identity(path)]

    def below(self, path: str) -> Iterator[str]:
        """All called modules inside this one, parents first."""
        for child in self.children(path):
            yield child
            yield from self.below(child)

    @cached_property
    def _children(self) -> Mapping[str, tuple[str, ...]]:
        found: dict[str, tuple[str, ...]] = {}
        for path in self.modules:
            if path != ROOT:
                parent = next(it for it in containing(path) if it in self.modules)
                found[parent] = (*found.get(parent, ()), path)
        return found

    @cached_property
    def _alike(self) -> Mapping[tuple[str, tuple[str, ...]], tuple[str, ...]]:
        found: dict[tuple[str, tuple[str, ...]], tuple[str, ...]] = {}
        for path in self.modules:
            found[self._identity(path)] = (*found.get(self._identity(path), ()), path)
        return found

    def _identity(self, path: str) -> tuple[str, tuple[str, ...]]:
        return self.modules[path].key, self.modules[path].signatures


def containing(path: str) -> Iterator[str]:
    """The paths of what contains a module, the nearest first; the model itself is the last."""
    while path:
        path = path.rpartition(".")[0]
        yield path


def inside(path: str, other: str) -> bool:
    """Whether the module is the other one or is in it."""
    return path == other or other == ROOT or path.startswith(f"{other}.")


def relative(path: str, base: str) -> str:
    """The path as seen from a module that contains it."""
    return path if base == ROOT else path[len(base) + 1 :]


def joined(base: str, path: str) -> str:
    """The inverse of `relative`."""
    return f"{base}.{path}" if base and path else base or path


def outermost(paths: Sequence[str] | frozenset[str]) -> frozenset[str]:
    """Those that are in no other one of them."""
    return frozenset(it for it in paths if not any(it != other and inside(it, other) for other in paths))
