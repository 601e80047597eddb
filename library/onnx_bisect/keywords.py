"""Functions that take the fields of terms as keywords: their signatures show each of them."""

from collections.abc import Callable
from dataclasses import MISSING
from functools import wraps
from inspect import Parameter, signature
from typing import ParamSpec, TypeVar

from onnxbisect.terms import typed

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


def with_keywords(*kinds: type) -> Callable[[Callable[Arguments, Result]], Callable[Arguments, Result]]:
    """Show the fields of terms in the signature of a function, in place of `**terms`, and refuse other keywords."""

    def shown(function: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
        own = signature(function)
        kept = [it for it in own.parameters.values() if it.kind is not Parameter.VAR_KEYWORD]
        added = [
            Parameter(
                each.name,
                Parameter.KEYWORD_ONLY,
                default=None if each.default is MISSING else each.default,
                annotation=type_,
            )
            for kind in kinds
            for each, type_ in typed(kind)
        ]
        names = {it.name for it in (*kept, *added)}

        @wraps(function)
        def checked(*arguments: Arguments.args, **keywords: Arguments.kwargs) -> Result:
            if unknown := sorted(keywords.keys() - names):
                raise TypeError(f"{function.__name__}() got an unexpected keyword argument '{unknown[0]}'")
            return function(*arguments, **keywords)

        checked.__signature__ = own.replace(parameters=[*kept, *added])  # type: ignore[attr-defined] # as PEP 362 has it
        return checked

    return shown
