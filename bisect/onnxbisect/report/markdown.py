"""The report as GitHub-flavoured Markdown, for a pull request or an issue."""

from onnxbisect.report import alternatives, cause_words, culprit_groups, modules, words
from onnxbisect.report.contents import Report
from onnxbisect.report.culprit_contents import CulpritEntry
from onnxbisect.report.markdown_text import code, fence, plain, table
from onnxbisect.report.names import culprit_dir_name
from onnxbisect.report.next_steps import Step, next_steps
from onnxbisect.report.tables import summary
from onnxbisect.report.text import clip, duration, plural

_LISTED = 20
_ROWS = 100


def markdown(document: Report) -> str:
    """The whole report without its probes. Text from the model or the compiler is in code spans."""
    model, about, stats = document["model"], document["target"], document["stats"]
    blocks = [
        f"# {_verdict(document)} · {code(model['name'])}",
        f"Target: {code(words.target(about))}" + (f", {code(words.tool(about))}" if words.tool(about) else ""),
        *([f"**{plain(document['headline'])}**"] if _leads(document) else []),
        f"**{plain(document['certificate']['sentence'])}**",
        *map(_step, next_steps(document)),
        *_certificate(document),
        *_causes(document),
        *_culprits(document),
        *_alternatives(document),
        *_needs_context(document),
        *_modules(document),
        "## Ops",
        table(
            ("op", "nodes", "verdict", "refused", "proof"),
            (
                (
                    code(f"{row['domain']}::{row['op']}" if row["domain"] else row["op"], cell=True),
                    str(row["nodes"]),
                    words.op_verdict(document, row),
                    str(row["failing"] or ""),
                    ", ".join(row["proof"]),
                )
                for row in document["op_table"]
            ),
        ),
        *_partition(document),
        *_tables(document),
        *_preflight(document),
        f"{plural(stats['compiler_calls'], 'compiler call')} in {plural(stats['rounds'], 'round')}, "
        f"{stats['cached']} answered from the verdict base; compiling {duration(stats['compile_seconds'])}, "
        f"engine {duration(stats['engine_seconds'])}, wall {duration(stats['wall_seconds'])}. "
        f"Model {code(model['sha256'][:12])}: {plural(model['nodes'], 'node')}, {plural(model['units'], 'unit')}, "
        f"{plural(model['variants'], 'variant')}.",
    ]
    return "\n\n".join(blocks) + "\n"


def culprit_readme(document: Report, number: int) -> str:
    """The README beside the files that reproduce culprit `number`, starting at 1."""
    culprit = document["culprits"][number - 1]
    instead = _instead(document, culprit)
    more = ["## What passes instead", *instead] if instead else []
    fails = f"compiles {words.OTHER_NUMBERS}" if words.computes_others([culprit["failure"]]) else "does not compile"
    title = f"# {' + '.join(code(op) for op in culprit['ops'][:8])} {fails}"
    folder = f"culprits/{culprit_dir_name(number, culprit['ops'])}"
    name, target = code(document["model"]["name"]), code(words.target(document["target"]))
    blocks = [
        title,
        *(_reproduce(document, name, target, folder) if culprit["repro"] else [f"Refused by {target}, in {name}."]),
        "## What it proves",
        *_findings(document, culprit),
        *more,
        *_next_of(document),
        f"Culprit {code(culprit['id'])}, report of model {code(document['model']['sha256'][:12])}.",
    ]
    return "\n\n".join(blocks) + "\n"


def _next_of(document: Report) -> list[str]:
    steps = next_steps(document)
    return ["## What next", *map(_step, steps)] if steps else []


def _reproduce(document: Report, name: str, target: str, folder: str) -> list[str]:
    where = "In the folder of this file:"
    if document["target"]["backend"] == "command" and "reproduce" not in document:
        where = "In the folder where the command was given, with the path of this `model.onnx`:"
    return [
        f"`model.onnx` is the smallest part of {name} that {target} refuses, `compiler.log` what the compiler said.",
        "## Reproduce",
        where,
        fence(words.command(document, "model.onnx", folder)),
    ]


def _verdict(document: Report) -> str:
    return words.outcome(document)


def _leads(document: Report) -> bool:
    """Whether the headline says more than verdict, model and target."""
    return bool(document.get("compiles_after") or document.get("file_after")) or document["verdict"] == "unresolved"


def _certificate(document: Report) -> list[str]:
    certificate = document["certificate"]
    items = [f"- unknown: {plain(text)}" for text in certificate["unknown"]]
    items += [f"- assuming that {plain(text)}" for text in certificate["assumes"]]
    if certificate["probes"]:
        shows = "proof" if certificate["status"] == "proven" else "seen to compile"
        items.append(f"- {shows}: {', '.join(certificate['probes'])}")
    if certificate["status"] != "proven" and (nodes := words.unknown_nodes(document)):
        more = f" and {len(nodes) - _LISTED} more" if len(nodes) > _LISTED else ""
        items.append(f"- unknown are {', '.join(map(code, nodes[:_LISTED]))}{more}")
    return ["\n".join(items)] if items else []


def _causes(document: Report) -> list[str]:
    causes = cause_words.leading(document)
    if not causes:
        return []
    numbers = {culprit["id"]: str(number) for number, culprit in enumerate(document["culprits"], 1)}
    rows = (
        (
            code(cause_words.sentence(cause), cell=True),
            ", ".join(numbers[identity] for identity in cause["culprits"] if identity in numbers),
            ", ".join(code(cause_words.compiles(one), cell=True) for one in cause["contrast"]),
            ", ".join(code(text, cell=True) for text in cause["fits_too"]),
        )
        for cause in causes
    )
    return [
        "## Causes",
        f"**{plain(cause_words.count(document))}**",
        table(("refused", "culprits", "compiles", "or it is"), rows),
    ]


def _culprits(document: Report) -> list[str]:
    culprits = document["culprits"]
    if not culprits:
        return []
    blocks = [
        "## Culprits",
        f"{culprit_groups.count(document)}.",
        _culprit_table(document),
    ]
    for number, culprit in enumerate(culprits, 1):
        blocks += [f"### {number}. {' + '.join(code(op) for op in culprit['ops'][:8])}", *_findings(document, culprit)]
        if instead := _instead(document, culprit):
            blocks += ["What passes instead:", *instead]
        if culprit["repro"]:
            blocks.append(f"Reproduce: {code(words.command(document, culprit['repro']))}")
    return blocks


def _culprit_table(document: Report) -> str:
    """One row for each op, with the numbers of its variants; columns that would be empty are left out."""
    found = [row for _, rows in culprit_groups.rows(document) for row in rows]
    columns = {
        "#": [", ".join(map(str, row.numbers)) for row in found],
        "ops": [" + ".join(code(op, cell=True) for op in row.culprit["ops"][:8]) for row in found],
        "places": [str(row.places) for row in found],
        "the compiler says": [code(clip(words.failure(row.culprit), 160), cell=True) for row in found],
        "replace by": [code(row.replace_by, cell=True) if row.replace_by else "" for row in found],
        "where": [code(row.source, cell=True) if row.source else "" for row in found],
    }
    shown = {head: cells for head, cells in columns.items() if any(cells)}
    return table(tuple(shown), zip(*shown.values(), strict=True))


def _step(step: Step) -> str:
    return f"Next: {plain(step.sentence)}" + (f": {code(step.command)}" if step.command else "")


def _modules(document: Report) -> list[str]:
    found = modules.worth_showing(document)
    if not found:
        return []
    rows = (
        (code(modules.name_of(it), cell=True), str(it["size"]), code(modules.answer(it), cell=True))
        for it in found[:_ROWS]
    )
    return ["## Modules", table(("module", "units", "answer"), rows)]


def _alternatives(document: Report) -> list[str]:
    tried = document.get("alternatives", ())
    if not tried:
        return []
    rows = (
        (
            code(alternatives.called(one), cell=True),
            code(one["version"], cell=True),
            code(clip(alternatives.outcome(document, one), 300), cell=True),
        )
        for one in tried[:_ROWS]
    )
    return ["## Other options", f"{alternatives.cost(document)}.", table(("option", "version", "what it takes"), rows)]


def _findings(document: Report, culprit: CulpritEntry) -> list[str]:
    evidence = culprit["evidence"]
    items = [f"The compiler says: {code(words.failure(culprit))}"]
    if doubt := words.certainty(culprit):
        items.append(f"**{plain(doubt)}**")
    if cause := cause_words.of_culprit(document, culprit):
        items.append(f"Cause: {code(cause_words.sentence(cause))}")
        if cause["fits_too"]:
            items.append(f"Passing nodes also differ in: {', '.join(map(code, cause['fits_too']))}")
    if sentence := words.inferred(culprit):
        items.append(f"{sentence[0].upper()}{sentence[1:]}.")
    if replacement := words.replace_by(culprit):
        items.append(f"Replace by: {code(replacement)}")
    if limit := words.at_most(culprit):
        items.append(f"Their number is the problem: {limit}.")
    items += [f"{plain(sentence)}" for sentence in words.proof(evidence, culprit["kind"])]
    if culprit["largest_passing"]:
        items.append(f"The largest piece that compiles has {plural(culprit['largest_passing']['size'], 'unit')}.")
    items += [f"From {code(words.where(origin))}" for origin in words.sources(culprit)[:5]]
    places = culprit["occurrences"]
    for nodes in places[:_LISTED]:
        names = ", ".join(code(name) for name in nodes[:_LISTED])
        items.append(names + (f" and {len(nodes) - _LISTED} more" if len(nodes) > _LISTED else ""))
    if len(places) > _LISTED:
        items.append(f"and {len(places) - _LISTED} more places (see `report.json`)")
    return ["\n".join(f"- {item}" for item in items)]


def _instead(document: Report, culprit: CulpritEntry) -> list[str]:
    """Variants that passed and lack the cause; without a cause, every variant that passed and how it differs."""
    items = []
    if cause := cause_words.of_culprit(document, culprit):
        for one in cause["contrast"]:
            example = f", such as {code(one['nodes'][0])}, {one['probe']}" if one["nodes"] else ""
            items.append(f"- {code(one['passes'])} ({cause_words.where(one)}{example})")
        return ["\n".join(items)]
    for variant in () if cause_words.in_company(document, culprit) else culprit["passes_instead"]:
        differences = "; ".join(words.difference(entry) for entry in variant["differs"][:4])
        count = f"{plural(variant['count'], 'node')}, {variant['probe']}"
        items.append(f"- {code(variant['nodes'][0])} ({count}): {code(differences)}")
    return ["\n".join(items)] if items else []


def _needs_context(document: Report) -> list[str]:
    if not document["needs_context"]:
        return []
    rows = []
    for group in document["needs_context"]:
        around = group["passes_with"]
        rows.append(
            (
                " + ".join(code(op, cell=True) for op in group["ops"][:8]),
                str(len(group["occurrences"])),
                plural(around["size"], "unit") if around else "the remainder",
            )
        )
    return [
        "## Needs context",
        "These fail only when they are cut out; inside the model they compile.",
        table(("ops", "places", "passes within"), rows),
    ]


def _partition(document: Report) -> list[str]:
    if not document["partition"]:
        return []
    rows = [
        (
            str(number),
            str(piece["size"]),
            code(piece["nodes"][0], cell=True),
            code(piece["nodes"][-1], cell=True),
            piece["proof"],
        )
        for number, piece in enumerate(document["partition"], 1)
    ]
    return ["## What can run on the NPU", table(("piece", "units", "first node", "last node", "proof"), rows)]


def _tables(document: Report) -> list[str]:
    blocks = []
    for found in document["tables"]:
        rows = ([code(cell, cell=True) for cell in row] for row in found["rows"][:_ROWS])
        left = len(found["rows"]) - _ROWS
        blocks += [
            f"## {plain(found['title'])}",
            f"{plain(summary(found))} ({found['probe']})",
            table([plain(column) for column in found["columns"]], rows),
            *([f"and {left} more rows (see `report.json`)"] if left > 0 else []),
        ]
    return blocks


def _preflight(document: Report) -> list[str]:
    if not document["preflight"]:
        return []
    rows = [
        (row["severity"], code(row["id"], cell=True), code(row["detail"], cell=True), code(row["fix"], cell=True))
        for row in document["preflight"]
    ]
    return ["## Preflight", table(("severity", "check", "seen", "what to do"), rows)]
