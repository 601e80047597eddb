"""What to do after a report: the one place that decides it, for every form."""

import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from onnxbisect.exactness import Exactness
from onnxbisect.input_value import InputValues, written
from onnxbisect.language import _
from onnxbisect.report import words
from onnxbisect.report.contents import Report
from onnxbisect.report.text import clean

_OPS = 4
#: Ops that are not of ONNX, and that onnxruntime alone runs.
_FUSED = "com.microsoft::"


@dataclass(frozen=True, kw_only=True)
class NextStep:
    """A sentence, and the shell command that does it; empty where the reader decides what to type.

    `repairs` tells that a repair does it, for which a page of the service has a button.
    """

    sentence: str
    command: str = ""
    repairs: bool = False


@dataclass(frozen=True, kw_only=True)
class TypedCommand:
    """How a command line names the model, the options of the target, what is bound of the model's inputs, a compiler's
    command and the report's folder.
    """

    model: str
    target: Sequence[str] = ()
    inputs: Sequence[str] = ()
    command: Sequence[str] = ()
    files: str = ""


def next_steps(document: Report, typed: TypedCommand | None = None) -> list[NextStep]:
    """The steps, the most useful first; none for a model that compiles.

    `typed` is how the user named things; without it, commands are for the folder of the model and of report.json.
    """
    typed = typed or _as_reported(document)
    if (after := document.get("compiles_after")) is not None:
        if options := after.get("options"):
            given = shlex.join(word for key, value in options.items() for word in ("--option", f"{key}={value}"))
            return [NextStep(sentence=_("Compile it with these options of its target: {given}", given=clean(given)))]
        harmless = after["exactness"] in (Exactness.EXACT, Exactness.ROUNDING)
        fix = _fix(typed, *(() if harmless else ("--allow", after["exactness"])))
        return [NextStep(sentence=_("To write that file, with a proof of its numbers"), command=fix, repairs=True)]
    if doubt := words.doubt(document):
        return [NextStep(sentence=doubt)]
    return list(_about_culprits(document, typed))


def _about_culprits(document: Report, typed: TypedCommand) -> Iterator[NextStep]:
    culprits = document["culprits"]
    looked = [it for it in culprits if "replace_by" in it]
    staying = [it for it in looked if it["replace_by"] is None]
    if fused := [op for it in culprits for op in it["ops"] if op.startswith(_FUSED)]:
        yield NextStep(
            sentence=_(
                "onnxruntime's optimiser fused ops into {named}: export the model without it, or replace them",
                named=_named(fused),
            )
        )
    if culprits and not looked:
        yield NextStep(sentence=_("To see what replaces them, and prove the result"), command=_fix(typed), repairs=True)
    elif len(staying) < len(looked):
        yield NextStep(sentence=_("To replace culprits and prove the result"), command=_fix(typed), repairs=True)
    if staying:
        named = _named(" + ".join(it["ops"][:_OPS]) for it in staying)
        report = typed.files or "REPORT"
        yield NextStep(
            sentence=_("No rule replaces {named} within rounding; to run the rest on the NPU", named=named),
            command=shlex.join(["onnx-bisect", "split", typed.model, *typed.inputs, "--report", report]),
        )


def _named(found: Iterable[str]) -> str:
    """Names of ops, each once, as far as there is room."""
    ops = list(dict.fromkeys(map(clean, found)))
    return ", ".join(ops[:_OPS]) + ((" " + _("and {more} more", more=len(ops) - _OPS)) if len(ops) > _OPS else "")


def _as_reported(document: Report) -> TypedCommand:
    about = document["target"]
    own = words.own_command(about)
    target = [] if own else words.target_options(document)
    model = document["model"]
    bound = bound_inputs(model.get("input_shapes", {}), model.get("input_values", {}))
    return TypedCommand(model=words.model_path(document), target=target, inputs=bound, command=own, files="report.json")


def bound_inputs(shapes: Mapping[str, Sequence[int]], values: InputValues) -> list[str]:
    """The options that bind a model's inputs, on a command line."""
    sizes = [word for name, dims in shapes.items() for word in ("--input-shape", f"{name}={','.join(map(str, dims))}")]
    return sizes + [f"--input-value={name}={written(value)}" for name, value in values.items()]


def _fix(typed: TypedCommand, *more: str) -> str:
    own = ["--", *typed.command] if typed.command else []
    return shlex.join(["onnx-bisect", "fix", typed.model, *more, *typed.target, *typed.inputs, *own])
