"""The settings of an export, as users write them."""

import re
from collections.abc import Callable, Mapping, Sequence

from onnxbisect.errors import OptionError
from onnxbisect_backends.exporting.probe import How
from onnxbisect_backends.options import unknown

EXPORTERS = ("dynamo", "legacy")

#: What `--try all` asks a culprit with.
ALL = ("strict=true", "exporter=legacy", "attention=eager", "use_cache=false", "opset=17", "opset=23")


def _flag(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ValueError("true or false")
    return text.lower() == "true"


def _exporter(text: str) -> str:
    if text not in EXPORTERS:
        raise ValueError(" or ".join(EXPORTERS))
    return text


_VALUES: Mapping[str, Callable[[str], object]] = {
    "exporter": _exporter,
    "opset": int,
    "strict": _flag,
    "attention": str,
    "use_cache": _flag,
}


def settings_of(given: Mapping[str, str], base: How | None = None) -> How:
    """The settings, with those of `base` where nothing is given. Raises OptionError."""
    found: dict[str, object] = {}
    for name, text in given.items():
        if name not in _VALUES:
            raise OptionError(unknown("setting of an export", name, _VALUES))
        try:
            found[name] = _VALUES[name](text)
        except ValueError as error:
            says = "a number" if name == "opset" else str(error)
            raise OptionError(f"The setting {name} is '{text}'; it has to be {says}.") from None
    return (base or How()).model_copy(update=found)


def _opsets(text: str) -> list[str]:
    span = re.fullmatch(r"opset=(\d{1,2})\.\.(\d{1,2})", text)
    return [f"opset={it}" for it in range(int(span[1]), int(span[2]) + 1)] if span else [text]


def changed(base: How, tries: Sequence[str]) -> dict[str, How]:
    """Other settings, by how they are written: each of `tries` changes some; `opset=17..20` is four of them."""
    texts = [single for it in tries for one in (ALL if it == "all" else (it,)) for single in _opsets(one)]
    found: dict[str, How] = {}
    for text in texts:
        pairs = [it.partition("=") for it in text.split(",")]
        how = settings_of({name: value for name, _, value in pairs}, base)
        if how != base:
            found[text] = how
    return found
