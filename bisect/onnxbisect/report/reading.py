"""A report as its reader sees it: in the reader's language, no longer than a page can show, and what to type next.

The limits let a page open quickly with hundreds of culprits; it states how much it leaves out, and report.json contains
everything. The sentences that a document keeps in English are translated. Beside its culprits, a report says something
of modules, of other options and of what a compiler tabulates.
"""

import shlex
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from posixpath import join, normpath
from typing import Any, cast

from onnxbisect.exactness import Exactness
from onnxbisect.finished import clauses, phrase, translated
from onnxbisect.input_value import InputValues, written
from onnxbisect.language import ENGLISH, _, current
from onnxbisect.report import words
from onnxbisect.report.contents import ModuleEntry, ProbeEntry, Report, TableEntry
from onnxbisect.report.culprit_contents import AlternativeEntry, CulpritEntry
from onnxbisect.report.text import clean, listed, plural
from onnxbisect.unitset import of, spell

#: Culprits shown with a full card; later ones have a short card.
WHOLE = 40
#: Culprits shown with a card.
CULPRITS = 500
#: Occurrences shown of one culprit.
PLACES = 200
#: Rows of any other table.
ROWS = 200
#: Of those, the pieces of the model that are not folded: hundreds take as long to lay out as the rest of a page.
PIECES = 20
#: Rows of a table that a compiler made, which is folded.
TABLE_ROWS = 2000
#: Probes shown besides those that something refers to.
PROBES = 300


def probes(document: Report) -> list[ProbeEntry]:
    """The probes that the page shows, in the order of their verdicts: the first ones, and those that a link on the page
    leads to.
    """
    wanted: set[str | None] = set(document["certificate"]["probes"])
    for culprit in document["culprits"][:CULPRITS]:
        evidence = culprit["evidence"]
        wanted |= {evidence["fails"], evidence["context"], evidence["blame"], *evidence["subsets"]}
        wanted |= {variant["probe"] for variant in culprit["passes_instead"]}
    for cause in document.get("causes", [])[:CULPRITS]:
        wanted |= {contrast["probe"] for contrast in cause["contrast"]}
    wanted |= {group["passes_with"]["probe"] for group in document["needs_context"][:ROWS] if group["passes_with"]}
    wanted |= {name for row in document["op_table"] for name in row["proof"]}
    wanted |= {name for entry in document["flaky"] for name in entry["probes"]}
    wanted |= {piece["proof"] for piece in document["partition"][:ROWS]}
    wanted |= {table["probe"] for table in document.get("tables", ())}
    return [probe for index, probe in enumerate(document["probes"]) if index < PROBES or probe["id"] in wanted]


#: The texts of a document that are translated, as they stand in it; what models, compilers and users wrote does not.
_TRANSLATED: Mapping[str, Any] = {
    "headline": translated,
    "model": {"notes": translated},
    "compiles_after": {"sentence": clauses},
    "file_after": clauses,
    "causes": {
        "text": phrase,
        "nothing_passed": phrase,
        "contrast": {"condition": phrase, "passes": phrase},
        "fits_too": phrase,
    },
    "culprits": {"passes_instead": {"differs": {"what": phrase}}, "variant": {"what": phrase}},
    "alternatives": {"problem": translated},
    "certificate": {"sentence": translated, "unknown": translated, "assumes": translated},
    "preflight": {"detail": phrase, "why": translated, "fix": translated},
    "probes": {"why": phrase},
}


def translated_report(document: Report) -> Report:
    """The document in the reader's language."""
    return document if current() == ENGLISH else cast(Report, _in_words(document, _TRANSLATED))


def _in_words(value: Any, how: Any) -> Any:
    if isinstance(value, dict):  # reports of earlier versions lack some keys
        return value | {key: _in_words(value[key], inner) for key, inner in how.items() if key in value}
    if isinstance(value, list):
        return [_in_words(item, how) for item in value]
    return None if value is None else how(value)


#: Most modules that are shown, and most ops of each.
MODULES, _MODULE_OPS = 12, 8


def telling_modules(document: Report) -> list[ModuleEntry]:
    """The modules, failing ones first, if some compile and some do not; otherwise the ops say as much."""
    modules = document.get("modules", [])  # reports of earlier versions have none
    if len({module["verdict"] == "pass" for module in modules}) < 2:
        return []
    return sorted(modules, key=lambda module: module["verdict"] == "pass")


def module_name(module: ModuleEntry) -> str:
    """`/decoder`, or a phrase for nodes outside of all modules."""
    return str(module["name"]) or _("in no module")


def module_answer(module: ModuleEntry) -> str:
    """`compiles`; `Sin, Cos, Abs 5`; `5 units unknown`."""
    if module["verdict"] == "pass":
        return _("compiles")
    named = [f"{it['op']}{_times(it['nodes'])}" for it in module["refused"]]
    named += [_("{op}{times} suspected", op=it["op"], times=_times(it["nodes"])) for it in module["suspected"]]
    more = [_("{more} more", more=len(named) - _MODULE_OPS)] if len(named) > _MODULE_OPS else []
    unknown = [_("{units} unknown", units=plural(module["unknown"], "unit"))] if module["unknown"] else []
    return ", ".join([*named[:_MODULE_OPS], *more, *unknown])


def _times(count: int) -> str:
    return f" {count}" if count > 1 else ""


def options_text(alternative: AlternativeEntry) -> str:
    """The changed options, as a user types them."""
    return ", ".join(f"{key}={value}" for key, value in alternative["options"].items())


def options_outcome(document: Report, alternative: AlternativeEntry) -> str:
    """The compiler's result with these options, in one phrase."""
    if alternative["problem"]:
        return _("not asked: {problem}", problem=alternative["problem"])
    if alternative["whole"] == "pass":
        return _("the whole model compiles")
    culprits = len(document["culprits"])
    if not culprits:
        return _("refuses the whole model") if alternative["whole"] == "fail" else _("no answer")
    if alternative["whole"] is not None:
        taken = _("the culprit") if culprits == 1 else _("all {culprits} culprits", culprits=culprits)
        return _(
            "takes {taken}, and not the whole model: {message}",
            taken=taken,
            message=alternative["message"] or "no answer",
        )
    numbers = [number for number, it in enumerate(document["culprits"], 1) if it["id"] in alternative["takes"]]
    silent = _(", no answer about {count}", count=len(alternative["unknown"])) if alternative["unknown"] else ""
    if not numbers:
        return _("takes none of {culprits}{silent}", culprits=plural(culprits, "culprit"), silent=silent)
    return _(
        "takes {count} of {culprits}: {ranges}{silent}",
        count=len(numbers),
        culprits=plural(culprits, "culprit"),
        ranges=spell(of(numbers)).replace(",", ", "),
        silent=silent,
    )


def options_cost(document: Report) -> str:
    """The number of compiler calls for all alternatives, in words."""
    calls = sum(it["compiler_calls"] for it in document["alternatives"])
    cached = sum(it["cached"] for it in document["alternatives"])
    known = (" " + _("and {answers}", answers=plural(cached, "known answer"))) if cached else ""
    return _("{calls}{known} for other options", calls=plural(calls, "compiler call"), known=known)


#: Most values that a summary counts separately.
_COUNTED = 6


def table_summary(table: TableEntry) -> str:
    """`NPU 41, CPU 3`: the rows by their value in the column that counts; else `44 rows`."""
    rows = table["rows"]
    if table["counted"] not in table["columns"]:
        return plural(len(rows), "row")
    column = table["columns"].index(table["counted"])
    counts = Counter(clean(row[column]) for row in rows).most_common()
    return listed([f"{value} {count}" for value, count in counts], _COUNTED)


_OPS = 4
#: The folder that a command names where the user named none.
_FOLDER = "out"
#: Ops that are not of ONNX, and that onnxruntime alone runs.
_FUSED = "com.microsoft::"
#: The finding that the value of an input decides a branch or a size.
_DECIDED = "input-decides"


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
    if typed is None:
        about, model = document["target"], document["model"]
        own = words.own_command(about)
        typed = TypedCommand(
            model=model_path(document),
            target=[] if own else _target_options(document),
            inputs=bound_inputs(model.get("input_shapes", {}), model.get("input_values", {})),
            command=own,
            files="report.json",
        )
    if (after := document.get("compiles_after")) is not None:
        options = after.get("options") or {}
        given = shlex.join(word for key, value in options.items() for word in ("--option", f"{key}={value}"))
        compiled = NextStep(sentence=_("Compile it with these options of its target: {given}", given=clean(given)))
        if options and not after["remedies"]:
            return [compiled]
        harmless = after["exactness"] in (Exactness.EXACT, Exactness.ROUNDING)
        fix = _fix(typed, *(() if harmless else ("--allow", after["exactness"])))
        written = NextStep(sentence=_("To write that file, with a proof of its numbers"), command=fix, repairs=True)
        return [written, compiled] if options else [written]
    if doubt := words.doubt(document):
        return [NextStep(sentence=doubt)]
    return list(_about_culprits(document, typed))


def _about_culprits(document: Report, typed: TypedCommand) -> Iterator[NextStep]:
    culprits = document["culprits"]
    looked = [it for it in culprits if "replace_by" in it]
    staying = [it for it in looked if it["replace_by"] is None]
    decided = {node: it["tensors"] for it in document["preflight"] if it["id"] == _DECIDED for node in it["nodes"]}
    if deciding := list(
        dict.fromkeys(name for it in culprits for node in it["nodes"] for name in decided.get(node, ()))
    ):
        bound = [word for name in deciding for word in ("--input-value", f"{name}=VALUE")]
        yield NextStep(
            sentence=_(
                "If the input {named} always has one value, give that value: it becomes a constant",
                named=_named(deciding),
            ),
            command=_typed("run", typed, *bound),
        )
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
        yield _replacing(looked, typed)
    left = staying or [it for it in looked if _bounded(it)]
    if not left:
        return
    named = _named(" + ".join(it["ops"][:_OPS]) for it in left)
    if "file_after" not in document:
        split = _typed("split", typed, "--report", typed.files or _FOLDER)
        yield NextStep(
            sentence=_("No rule replaces {named}; to run the rest on the NPU", named=named)
            if staying
            else _("Or, to leave {named} to the host and run the rest on the NPU", named=named),
            # `split` reads a report; where none was written, `run` writes it from the answers that it has
            command=split if typed.files else f"{_typed('run', typed, '--out', _FOLDER)}; {split}",
        )
    elif len(staying) == len(looked):  # the report is that of the changed file, which `fix` writes, to be split
        yield NextStep(
            sentence=_("No rule replaces {named}; to write the changed file, which 'split' then takes", named=named),
            command=_fix(typed),
            repairs=True,
        )


def _bounded(culprit: CulpritEntry) -> bool:
    """Whether what replaces it is more than rounding away, or holds for some inputs only."""
    found = culprit.get("replace_by")
    return found is not None and found["exactness"] not in (Exactness.EXACT, Exactness.ROUNDING)


def _replacing(looked: Sequence[CulpritEntry], typed: TypedCommand) -> NextStep:
    bounded = [it for it in looked if _bounded(it)]
    if not bounded:
        return NextStep(sentence=_("To replace culprits and prove the result"), command=_fix(typed), repairs=True)
    named = _named(" + ".join(it["ops"][:_OPS]) for it in bounded)
    most = Exactness.APPROXIMATE
    sentence = _("To replace culprits and prove the result ({named} approximately)", named=named)
    if any(found["exactness"] == Exactness.DOMAIN for it in bounded if (found := it.get("replace_by"))):
        most = Exactness.DOMAIN
        sentence = _("To replace culprits and prove the result ({named} for inputs in a stated domain)", named=named)
    return NextStep(sentence=sentence, command=_fix(typed, "--allow", most), repairs=True)


def _named(found: Iterable[str]) -> str:
    """Names of ops, each once, as far as there is room."""
    return listed(list(dict.fromkeys(map(clean, found))), _OPS)


def model_path(document: Report) -> str:
    """The model's path below the folder of the command, which in CI is the repository; else its name."""
    return document["model"].get("path") or document["model"]["name"]


def reproducing_command(document: Report, model: str, below: str = "") -> str:
    """The shell command that compiles the file `model` for the same target, in the report's folder or `below` it."""
    about, place = document["target"], document.get("reproduce", {})
    up = "/".join([".."] * len(below.split("/"))) if below else "."
    if own := words.own_command(about):
        if "report" not in place:
            return shlex.join(["onnx-bisect", "run", model, "--", *own])
        here = normpath(join(place["report"], below, model))
        change = shlex.join(["cd", normpath(join(up, place["folder"]))])
        return f"{change} && {shlex.join(['onnx-bisect', 'run', here, '--', *own])}"
    return shlex.join(["onnx-bisect", "run", model, *_target_options(document, up)])


def _target_options(document: Report, up: str = ".") -> list[str]:
    """The options that name the target on a command line; `up` leads from there to the report's folder."""
    about, place = document["target"], document.get("reproduce", {})
    backend = normpath(join(up, place["backend"])) if "backend" in place else str(about["backend"])
    typed = ["--backend", backend]
    for option in words.options_as_typed(about):
        typed += ["--option", option]
    return typed


def bound_inputs(shapes: Mapping[str, Sequence[int]], values: InputValues) -> list[str]:
    """The options that bind a model's inputs, on a command line."""
    sizes = [word for name, dims in shapes.items() for word in ("--input-shape", f"{name}={','.join(map(str, dims))}")]
    return sizes + [f"--input-value={name}={written(value)}" for name, value in values.items()]


def _fix(typed: TypedCommand, *more: str) -> str:
    return _typed("fix", typed, *more)


def _typed(command: str, typed: TypedCommand, *more: str) -> str:
    """The command for the same model, target and inputs, with more options."""
    own = ["--", *typed.command] if typed.command else []
    return shlex.join(["onnx-bisect", command, typed.model, *more, *typed.target, *typed.inputs, *own])
