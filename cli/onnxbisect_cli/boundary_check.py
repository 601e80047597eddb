"""What `onnx-bisect backends check` measures of a compiler's boundary, and the lines that declare it."""

from collections.abc import Iterator
from pathlib import Path

from onnxbisect.probe_format import ProbeFormat
from onnxbisect.report.text import clean, plural
from onnxbisect_backends.contract import Backend, Limits
from onnxbisect_backends.probing.boundary_limits import learn_limits, refused_traits
from onnxbisect_backends.probing.boundary_traits import Trait, as_measured, usual_traits

#: The limits that a compiler's TOML file can declare.
_DECLARED = (
    *("input_dtypes", "output_dtypes", "min_input_rank", "min_output_rank", "max_input_rank", "max_output_rank"),
    *("longest_name", "safe_names"),
)


def measured_boundary(backend: Backend, folder: Path) -> Iterator[str]:
    """Measure what the compiler takes of a model's inputs and outputs; lines for the user.

    The next searches with a backend that does not declare its limits use what was found.
    """
    description = backend.describe()
    calls = learn_limits(backend, usual_traits(), folder, Limits(), kept=True, anew=True)
    refused = refused_traits(backend)
    found = ", ".join(clean(str(trait)) for trait in refused) if refused else "nothing"
    yield f"At a model's boundary it refuses {found} ({plural(calls, 'compile')})."
    limits = as_measured(ProbeFormat(), dict.fromkeys(refused, False) | dict.fromkeys(_taken(backend), True))
    lines = list(_lines(limits))
    if description.boundary_known:
        if missing := [name for name, _ in lines if not _covers(description.probe_format, limits, name)]:
            yield f"Its backend does not declare this: {', '.join(missing)}."
        return
    yield "Searches use this from now on. To declare it in a TOML file:"
    yield "  boundary_known = true"
    if lines:
        yield "  [probe_format]"
        yield from (f"  {name} = {value}" for name, value in lines)


def _taken(backend: Backend) -> set[Trait]:
    return set(usual_traits()) - set(refused_traits(backend))


def _covers(declared: ProbeFormat, measured: ProbeFormat, name: str) -> bool:
    """Whether what is declared is at least as strict as what was measured."""
    wanted, has = getattr(measured, name), getattr(declared, name)
    if isinstance(wanted, frozenset):
        return has is not None and has <= wanted
    if name == "longest_name":
        return has is not None
    if name.startswith("max_"):
        return has is not None and has <= wanted
    return bool(has >= wanted)


def _lines(limits: ProbeFormat) -> Iterator[tuple[str, str]]:
    """The fields that differ from the default, as TOML."""
    for name in _DECLARED:
        value = getattr(limits, name)
        if value == getattr(ProbeFormat(), name):
            continue
        if isinstance(value, frozenset):
            yield name, "[" + ", ".join(f'"{it}"' for it in sorted(value)) + "]"
        else:
            yield name, str(value).lower()
