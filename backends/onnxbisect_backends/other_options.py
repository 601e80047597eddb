"""Alternative options of the same backend, to compile a model's culprits with."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from os import PathLike, fspath
from typing import Literal

from onnxbisect.errors import OptionError
from onnxbisect.terms import OtherValues
from onnxbisect_backends import registry
from onnxbisect_backends.contract import Backend
from onnxbisect_backends.options import OptionHelp, option_text, unknown


def listed(wanted: OtherValues) -> Literal["all"] | dict[str, list[str]]:
    """The same with values in the syntax of `--option`; OptionError for a word other than `all`."""
    if not isinstance(wanted, str):
        return {key: [option_text(value) for value in values] for key, values in wanted.items()}
    if wanted != "all":
        raise OptionError(f"alternatives cannot be {wanted!r}: give 'all', or values by option.")
    return wanted


@dataclass(frozen=True, kw_only=True)
class OtherOptions:
    """The alternatives of one target: each changes one of its options."""

    name: str
    options: Mapping[str, str]
    wanted: Mapping[str, tuple[str, ...]]

    @classmethod
    def of(cls, backend: object, options: Mapping[str, str], wanted: OtherValues) -> "OtherOptions":
        """The wanted alternatives; OptionError if the backend has no such option or value."""
        if not isinstance(backend, str | PathLike):
            raise OptionError("Other options can be tried only for a backend that is given by name or file.")
        other = cls(name=fspath(backend), options=options, wanted={})
        typed = listed(wanted)
        if isinstance(typed, str):
            chosen: dict[str, tuple[str, ...]] = {key: () for key, one in other._known.items() if one.worth_trying}
        else:
            chosen = {key: tuple(values) for key, values in typed.items()}
        other = replace(other, wanted=chosen)
        for key, values in other.wanted.items():
            if other._known and key not in other._known:
                raise OptionError(unknown(f"option of the backend '{other.name}'", key, other._known))
            if not values and (key not in other._known or not other._known[key].worth_trying):
                raise OptionError(
                    f"The backend '{other.name}' does not say which values of '{key}' are worth trying; name them: "
                    f"--try {key}=VALUE,VALUE."
                )
            for value in values:
                other._with(key, value)
        return other

    @classmethod
    def in_messages(cls, backend: object, options: Mapping[str, str]) -> "OtherOptions | None":
        """The options of a target whose values its messages may name (`WorthTrying.pattern`); None if it has none."""
        if not isinstance(backend, str | PathLike):
            return None
        other = cls(name=fspath(backend), options=options, wanted={})
        found = {key: () for key, one in other._known.items() if one.worth_trying and one.worth_trying.pattern}
        return replace(other, wanted=found) if found else None

    def settings(self, messages: Sequence[str]) -> Iterator[tuple[dict[str, str], Backend]]:
        """Each change of one option, with the changed backend; invalid combinations are skipped.

        `messages` are the compiler's messages for the culprits, in which some options find values to try.
        """
        effective = registry.make(self.name, dict(self.options)).options
        for key, values in self.wanted.items():
            tried = list(values)
            if not tried:
                option = self._known[key]
                in_messages = option.alternatives_in(self.options.get(key, option.default), messages)
                kept_out = option.worth_trying is not None and option.worth_trying.instead and key not in self.options
                tried = [*(() if kept_out else option.alternatives), *([in_messages] if in_messages else [])]
            for value in tried:
                try:
                    made = self._with(key, value)
                except OptionError:  # an invalid combination; the user's own values were validated before
                    continue
                if made.options != effective:
                    yield {key: value}, made

    def named_in(self, message: str) -> "tuple[OtherOptions, Mapping[str, str], Backend] | None":
        """The options that a message names, their values added to those that are set, and the backend that has them.

        The first item is for the next message. None if the message names nothing new.
        """
        changed = {
            key: value
            for key in self.wanted
            if (value := self._known[key].alternatives_in(self.options.get(key, self._known[key].default), [message]))
        }
        if not changed:
            return None
        try:
            made = registry.make(self.name, {**self.options, **changed})
        except OptionError:  # the compiler names a value that the backend does not take
            return None
        return replace(self, options={**self.options, **changed}), changed, made

    @cached_property
    def _known(self) -> dict[str, OptionHelp]:
        return {option.name: option for option in registry.find(self.name).options}

    def _with(self, key: str, value: str) -> Backend:
        return registry.make(self.name, {**self.options, key: value})
