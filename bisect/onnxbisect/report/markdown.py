"""The report as GitHub-flavoured Markdown, for a pull request or an issue."""

from collections.abc import Iterator, Sequence

from onnxbisect.language import _
from onnxbisect.report import culprit_words, reading, words
from onnxbisect.report.contents import Report, culprit_dir_name, op_name
from onnxbisect.report.culprit_contents import CulpritEntry
from onnxbisect.report.reading import NextStep, next_steps, translated_report
from onnxbisect.report.text import clip, code, duration, fence, listed, plain, plural, table

_LISTED = 20
#: Most lines of source in a cell.
_LINES = 3
_ROWS = 100
#: Most ops of a culprit.
_OPS = 8


def markdown(document: Report) -> str:
    """The whole report without its probes. Text from the model or the compiler is in code spans."""
    document = translated_report(document)
    model, about, stats = document["model"], document["target"], document["stats"]
    # Whether the headline says more than verdict, model and target.
    leads = bool(document.get("compiles_after") or document.get("file_after")) or document["verdict"] == "unresolved"
    blocks = [
        f"# {words.outcome(document)} · {code(model['name'])}",
        _("Target: {target}", target=code(words.target(about)))
        + (f", {code(words.tool(about))}" if words.tool(about) else ""),
        *([f"**{plain(document['headline'])}**"] if leads else []),
        f"**{plain(document['certificate']['sentence'])}**",
        *map(_step, next_steps(document)),
        *_certificate(document),
        *_about_culprits(document),
        *_about_the_model(document),
        _(
            "{calls} in {rounds}, {cached} answered from the verdict base; compiling {compiling}, engine "
            "{engine}, wall {wall}. Model {sha}: {nodes}, {units}, {variants}.",
            calls=plural(stats["compiler_calls"], "compiler call"),
            rounds=plural(stats["rounds"], "round"),
            cached=stats["cached"],
            compiling=duration(stats["compile_seconds"]),
            engine=duration(stats["engine_seconds"]),
            wall=duration(stats["wall_seconds"]),
            sha=code(model["sha256"][:12]),
            nodes=plural(model["nodes"], "node"),
            units=plural(model["units"], "unit"),
            variants=plural(model["variants"], "variant"),
        ),
    ]
    return "\n\n".join(blocks) + "\n"


def culprit_readme(document: Report, number: int) -> str:
    """The README beside the files that reproduce culprit `number`, starting at 1."""
    document = translated_report(document)
    culprit = document["culprits"][number - 1]
    instead = _instead(document, culprit)
    more = [("## " + _("What passes instead")), *instead] if instead else []
    fails = (
        _("compiles and computes other numbers")
        if words.computes_others([culprit["failure"]])
        else _("does not compile")
    )
    title = f"# {_ops(culprit['ops'])} {fails}"
    name, target = code(document["model"]["name"]), code(words.target(document["target"]))
    where = _("In the folder of this file:")
    if document["target"]["backend"] == "command" and "reproduce" not in document:
        where = _("In the folder where the command was given, with the path of this `model.onnx`:")
    folder = f"culprits/{culprit_dir_name(number, culprit['ops'])}"
    reproduce = [
        _(
            "`model.onnx` is the smallest part of {name} that {target} refuses, `compiler.log` what the compiler said.",
            name=name,
            target=target,
        ),
        ("## " + _("Reproduce")),
        where,
        fence(reading.reproducing_command(document, "model.onnx", folder)),
    ]
    blocks = [
        title,
        *(reproduce if culprit["repro"] else [_("Refused by {target}, in {name}.", target=target, name=name)]),
        ("## " + _("What it proves")),
        *_findings(document, culprit),
        *more,
        *([("## " + _("What next")), *map(_step, steps)] if (steps := next_steps(document)) else []),
        _("Culprit {id}, report of model {sha}.", id=code(culprit["id"]), sha=code(document["model"]["sha256"][:12])),
    ]
    return "\n\n".join(blocks) + "\n"


def _certificate(document: Report) -> list[str]:
    certificate = document["certificate"]
    items = [("- " + _("unknown: {text}", text=plain(text))) for text in certificate["unknown"]]
    items += [("- " + _("assuming that {text}", text=plain(text))) for text in certificate["assumes"]]
    if certificate["probes"]:
        shows = _("proof") if certificate["status"] == "proven" else _("seen to compile")
        items.append(f"- {shows}: {', '.join(certificate['probes'])}")
    if certificate["status"] != "proven" and (nodes := words.unknown_nodes(document)):
        more = (" " + _("and {more} more", more=len(nodes) - _LISTED)) if len(nodes) > _LISTED else ""
        items.append("- " + _("unknown are {nodes}{more}", nodes=", ".join(map(code, nodes[:_LISTED])), more=more))
    return ["\n".join(items)] if items else []


def _about_culprits(document: Report) -> Iterator[str]:
    """Causes, culprits, other options, and what fails only when it is cut out."""
    if causes := culprit_words.leading(document):
        number_of = culprit_words.numbers(document)
        rows = (
            (
                code(culprit_words.sentence(cause), cell=True),
                ", ".join(str(number_of[identity]) for identity in cause["culprits"] if identity in number_of),
                ", ".join(code(culprit_words.compiles(one), cell=True) for one in cause["contrast"]),
                ", ".join(code(text, cell=True) for text in cause["fits_too"]),
            )
            for cause in causes
        )
        yield "## " + _("Causes")
        yield f"**{plain(culprit_words.cause_count(document))}**"
        yield table((_("refused"), _("culprits"), _("compiles"), _("or it is")), rows)
    # One row for each op, with the numbers of its variants; columns that would be empty are left out.
    if found := [row for _heading, rows in culprit_words.rows(document) for row in rows]:
        sources = ((code(clip(it.text, 160), cell=True) for it in row.sources[:_LINES]) for row in found)
        columns = {
            "#": [", ".join(map(str, row.numbers)) for row in found],
            _("where"): list(map(", ".join, sources)),
            _("ops"): [_ops(row.culprit["ops"], cell=True) for row in found],
            _("variants differ in"): [code(clip(row.variants, 160), cell=True) for row in found],
            _("places"): [str(row.places) for row in found],
            _("the compiler says"): [code(clip(words.failure(row.culprit), 160), cell=True) for row in found],
            _("replace by"): [code(row.replace_by, cell=True) for row in found],
        }
        shown = {head: cells for head, cells in columns.items() if any(cells)}
        yield "## " + _("Culprits")
        yield words.stop(culprit_words.place_count(document))
        yield table(tuple(shown), zip(*shown.values(), strict=True))
        if sentence := culprit_words.lines_missing(document):
            yield plain(sentence)
    for number, culprit in enumerate(document["culprits"], 1):
        yield f"### {number}. {_ops(culprit['ops'])}"
        yield from _findings(document, culprit)
        if instead := _instead(document, culprit):
            yield _("What passes instead:")
            yield from instead
        if culprit["repro"]:
            command = reading.reproducing_command(document, culprit["repro"])
            yield _("Reproduce: {command}", command=code(command))
    if tried := document.get("alternatives"):
        options = (
            (
                code(reading.options_text(one), cell=True),
                code(one["version"], cell=True),
                code(clip(reading.options_outcome(document, one), 300), cell=True),
            )
            for one in tried[:_ROWS]
        )
        yield "## " + _("Other options")
        yield words.stop(reading.options_cost(document))
        yield table((_("option"), _("version"), _("what it takes")), options)
    if document["needs_context"]:
        groups = (
            (
                _ops(group["ops"], cell=True),
                str(len(group["occurrences"])),
                plural(around["size"], "unit") if (around := group["passes_with"]) else _("the remainder"),
            )
            for group in document["needs_context"]
        )
        yield "## " + _("Needs context")
        yield _("These fail only when they are cut out; inside the model they compile.")
        yield table((_("ops"), _("places"), _("passes within")), groups)


def _ops(ops: Sequence[str], *, cell: bool = False) -> str:
    return " + ".join(code(op, cell=cell) for op in ops[:_OPS])


def _step(step: NextStep) -> str:
    return _("Next: {sentence}", sentence=plain(step.sentence)) + (f": {code(step.command)}" if step.command else "")


def _findings(document: Report, culprit: CulpritEntry) -> list[str]:
    evidence = culprit["evidence"]
    items = [_("The compiler says: {failure}", failure=code(words.failure(culprit)))]
    if inner := words.refused_within(culprit):
        items.append(words.stop(plain(inner)))
    if doubt := words.certainty(culprit):
        items.append(f"**{plain(doubt)}**")
    if cause := culprit_words.of_culprit(document, culprit):
        items.append(_("Cause: {sentence}", sentence=code(culprit_words.sentence(cause))))
        if cause["fits_too"]:
            items.append(
                _("Passing nodes also differ in: {fits_too}", fits_too=", ".join(map(code, cause["fits_too"])))
            )
    if sentence := words.inferred(culprit):
        items.append(words.stop(sentence))
    if replacement := words.replace_by(culprit):
        items.append(_("Replace by: {replacement}", replacement=code(replacement)))
    if limit := words.at_most(culprit):
        items.append(_("Their number is the problem: {limit}.", limit=limit))
    items += [f"{plain(sentence)}" for sentence in words.proof(evidence, culprit["kind"])]
    if culprit["largest_passing"]:
        items.append(
            _("The largest piece that compiles has {units}.", units=plural(culprit["largest_passing"]["size"], "unit"))
        )
    items += [_("From {where}", where=code(it.counted)) for it in culprit_words.source_lines(culprit)[:5]]
    places = culprit["occurrences"]
    for nodes in places[:_LISTED]:
        items.append(listed([code(name) for name in nodes], _LISTED))
    if len(places) > _LISTED:
        items.append(_("and {more} more places (see `report.json`)", more=len(places) - _LISTED))
    return ["\n".join(f"- {item}" for item in items)]


def _instead(document: Report, culprit: CulpritEntry) -> list[str]:
    """Variants that passed and lack the cause; without a cause, every variant that passed and how it differs."""
    items = []
    if cause := culprit_words.of_culprit(document, culprit):
        for one in cause["contrast"]:
            example = (
                _(", such as {nodes}, {probe}", nodes=code(one["nodes"][0]), probe=one["probe"]) if one["nodes"] else ""
            )
            items.append(f"- {code(one['passes'])} ({culprit_words.where(one)}{example})")
        return ["\n".join(items)]
    for variant in () if culprit_words.in_company(document, culprit) else culprit["passes_instead"]:
        differences = _("; ").join(words.difference(entry) for entry in variant["differs"][:4])
        count = _("{nodes}, {probe}", nodes=plural(variant["count"], "node"), probe=variant["probe"])
        items.append(f"- {code(variant['nodes'][0])} ({count}): {code(differences)}")
    return ["\n".join(items)] if items else []


def _about_the_model(document: Report) -> Iterator[str]:
    """Modules, ops, pieces, the compiler's tables, and what the preflight found."""
    if modules := reading.telling_modules(document):
        answers = (
            (code(reading.module_name(it), cell=True), str(it["size"]), code(reading.module_answer(it), cell=True))
            for it in modules[:_ROWS]
        )
        yield "## " + _("Modules")
        yield table((_("module"), _("units"), _("answer")), answers)
    ops = (
        (
            code(op_name(row["domain"], row["op"]), cell=True),
            str(row["nodes"]),
            words.op_verdict(document, row),
            str(row["failing"] or ""),
            ", ".join(row["proof"]),
        )
        for row in document["op_table"]
    )
    yield "## " + _("Ops")
    yield table((_("op"), _("nodes"), _("verdict"), _("refused"), _("proof")), ops)
    if document["partition"]:
        pieces = (
            (
                str(number),
                str(piece["size"]),
                code(piece["nodes"][0], cell=True),
                code(piece["nodes"][-1], cell=True),
                piece["proof"],
            )
            for number, piece in enumerate(document["partition"], 1)
        )
        yield "## " + _("What can run on the NPU")
        yield table((_("piece"), _("units"), _("first node"), _("last node"), _("proof")), pieces)
    for found in document.get("tables", ()):
        yield f"## {plain(found['title'])}"
        yield f"{plain(reading.table_summary(found))} ({found['probe']})"
        cells = ([code(cell, cell=True) for cell in row] for row in found["rows"][:_ROWS])
        yield table([plain(column) for column in found["columns"]], cells)
        if (left := len(found["rows"]) - _ROWS) > 0:
            yield _("and {left} more rows (see `report.json`)", left=left)
    if document["preflight"]:
        findings = (
            (
                words.named(it["severity"]),
                code(it["id"], cell=True),
                code(it["detail"], cell=True),
                code(it["fix"], cell=True),
            )
            for it in document["preflight"]
        )
        yield "## " + _("Preflight")
        yield table((_("severity"), _("check"), _("seen"), _("what to do")), findings)
