"""Languages: the catalogue holds every marked message, kept sentences are found again, reports are wholly Chinese."""

import ast
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import onnx
import pytest
from babel.messages.catalog import Message

import onnx_bisect
from onnx_bisect import Kind, Status, Verdict
from onnxbisect import language
from onnxbisect.errors import OnnxBisectError
from onnxbisect.file_remedies import File
from onnxbisect.file_remedies.candidates import REMEDIES, repaired
from onnxbisect.finished import LISTS, OURS, clauses, phrase, translated
from onnxbisect.language import BETWEEN, CHINESE, ENGLISH, KEPT, within
from onnxbisect.model import load
from onnxbisect.preflight import ToolLimits, preflight
from onnxbisect.preflight.run import checks
from onnxbisect.probe_format import ProbeFormat
from onnxbisect.remedies import summary
from onnxbisect.report.ci import junit, sarif
from onnxbisect.report.compare import compare, compare_sections
from onnxbisect.report.contents import Report
from onnxbisect.report.document import document
from onnxbisect.report.html import html
from onnxbisect.report.markdown import culprit_readme, markdown
from onnxbisect.report.terminal import lines
from onnxbisect.report.text import as_markdown, plural, terminal_lines
from onnxbisect.rewrites.families import RULES
from onnxbisect_backends.options import unknown
from onnxbisect_cli.comparison import CompareRequest, run
from onnxbisect_cli.parameters import ListFormat
from support import messages
from support.engine.report_factory import chain, job_of, single

ROOT = messages.ROOT
DECODER = ROOT / "examples" / "sam_decoder.onnx"
_NAME = re.compile(r"\{([a-z_]+)\}")
#: Two words of English, as every sentence of ours has them. Names of programs and options have capitals, dots, dashes.
_ENGLISH = re.compile(r"(?<![\w./=<-])[A-Za-z]?[a-z]{2,} [a-z]{2,}(?![\w./=-])")


def _texts(message: Message) -> tuple[str, str]:
    one = message.id if isinstance(message.id, str) else message.id[0]
    return one, messages.translation(message)


def test_the_catalogue_is_what_is_marked_and_the_compiled_one_is_current() -> None:
    po = messages.read()
    marked = {(context, message) for context, message, _ in messages.messages()}
    assert {(it.context, _texts(it)[0]) for it in po if it.id} == marked, (
        "python -m support.messages, with PYTHONPATH=tests"
    )
    assert messages.FILE.with_suffix(".mo").read_bytes() == messages.compiled(po)


def test_each_message_is_translated_and_keeps_its_placeholders() -> None:
    for it in messages.read():
        message, translation = _texts(it)
        if message:
            assert translation, message
            assert set(_NAME.findall(message)) == set(_NAME.findall(translation)), message
            assert not it.fuzzy, message


def test_a_sentence_that_a_document_keeps_is_found_again_with_all_that_fills_it() -> None:
    for it in messages.read():
        if it.context != KEPT:
            continue
        message, _ = _texts(it)
        values = {name: f"«{name.upper()}»" for name in _NAME.findall(message)}
        with within(CHINESE):
            shown = phrase(message.format(**values))
        assert all(value in shown for value in values.values()), message
        assert not values or shown != message.format(**values) or not re.search("[a-z]{2}", _NAME.sub("", message)), (
            message
        )


def test_what_nobody_marked_stays_as_it_is() -> None:
    with within(CHINESE):
        assert translated("E RKNN: Unsupport op of 3 units with 4") == "E RKNN: Unsupport op of 3 units with 4"
    assert not OURS & set(LISTS)


def test_sentences_in_sentences_and_counts_are_translated_too() -> None:
    kept = "proven: without these 3 culprits the other 12 units compile, so nothing else is wrong"
    with within(CHINESE):
        assert translated(kept) == "已证实：去掉这 3 个问题算子后其余 12 个单元编译通过，因此没有其他问题"
        known = translated("m.onnx compiles for qnn after: operator set 11 → 16 (verified, known before)")
        assert known.endswith("（已验证，此前已知）")
        assert phrase("Gather with scalar indices and axis = 0 or 1") == "Gather（indices 为标量 且 axis = 0 或 1）"
        assert plural(1, "unit") == "1 个单元"
    assert translated(kept) == kept
    assert plural(1, "unit") == "1 unit"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((ROOT / "README.md",), "不是 ONNX 模型"),
        ((ROOT / "nothing.onnx",), "不存在"),
        ((DECODER, {"foo": (1,)}), "为 'foo' 指定了形状，但它不是模型的输入"),
    ],
)
def test_an_error_needs_no_mark(arguments: tuple[Any, ...], said: str) -> None:
    with pytest.raises(OnnxBisectError) as found:
        load(arguments[0], input_shapes=arguments[1] if arguments[1:] else {})
    with within(CHINESE):
        shown = translated(str(found.value))
    assert said in shown
    assert not _ENGLISH.search(shown.replace(str(ROOT), ""))


def test_an_unknown_name_and_the_reason_of_a_rule_are_chinese() -> None:
    with within(CHINESE):
        shown = translated(unknown("backend of this server", "qn", ["qnn", "rknn"]))
        assert shown == "'qn' 不是有效的该服务器的后端；是否想写 'qnn'？可用：qnn, rknn。"
        for rule in RULES:
            for text in (rule.summary, rule.bound.text, rule.domain.text if rule.domain else ""):
                assert not _ENGLISH.search(phrase(text)) or "Reshape" in text, text
        assert phrase("abs-relu does not apply: alpha is not finite") == "abs-relu 不适用：alpha 不是有限值"


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({"LANG": "zh_CN.UTF-8"}, CHINESE),
        ({"LANG": "zh_CN.UTF-8", "LC_ALL": "C"}, ENGLISH),
        ({"LANG": "C.UTF-8", "LC_MESSAGES": "zh_TW"}, CHINESE),
        ({"LANG": "fr_FR.UTF-8"}, ENGLISH),
        ({}, ENGLISH),
    ],
)
def test_the_environment_names_the_language(environment: dict[str, str], expected: str) -> None:
    assert language.of_environment(environment) == expected


def _of_one_format(path: Path) -> Verdict:
    """A compiler that reads no newer version of the format than 9, no functions and no Erf."""
    model = onnx.load(path)
    read = model.ir_version <= 9 and not model.functions
    if read and all(node.op_type != "Erf" for node in model.graph.node):
        return Verdict(status=Status.PASS)
    return Verdict(status=Status.FAIL, kind=Kind.ERROR, message="E7" if read else "E1")


def _changed(tmp_path: Path, op: str) -> Path:
    """A file that this compiler reads after two changes."""
    path = tmp_path / "changed.onnx"
    text = f"""<ir_version: 12, opset_import: ["" : 17, "own" : 1]> g (float[2, 3] x) => (float[2, 3] y) {{
        a = own.twice (x)
        b = {op} (a)
        y = Relu (b)
    }}
    <domain: "own", opset_import: ["" : 17]> twice (x) => (y) {{ y = Add (x, x) }}"""
    onnx.save(onnx.parser.parse_model(text), path)
    return path


@pytest.fixture(scope="module")
def reports(tmp_path_factory: pytest.TempPathFactory) -> list[Report]:
    """A bounded and a proven one, one whose culprits have a cause, one that compiles, and one that compiles after
    changes of the file, or is searched after them.
    """
    folder = tmp_path_factory.mktemp("changed")
    after, within_changed = (
        onnx_bisect.diagnose(_changed(folder, op), backend=_of_one_format, cache=False).report for op in ("Neg", "Erf")
    )
    assert after["compiles_after"] is not None
    assert BETWEEN in after["compiles_after"]["sentence"]
    assert BETWEEN in within_changed["file_after"]
    decoder = onnx_bisect.diagnose(
        messages.ROOT / "examples" / "sam_decoder.onnx",
        backend="whitelist",
        options={"profile": "edgesam"},
        cache=False,
    )
    net = chain(["Relu", "Sin", "Relu", "Sin"])
    others = [document(job_of(net, [single(net, [1, 3], "no Sin")])), document(job_of(net, []))]
    for report in others:
        report["certificate"]["assumes"] = []  # the factory's words are none of ours
        for probe in report["probes"]:
            probe["why"] = "the whole model"
    return [decoder.report, *others, after, within_changed]


class _Text(HTMLParser):
    """What a page says, without code and what compilers say."""

    def __init__(self) -> None:
        super().__init__()
        self.said: list[str] = []
        self._quiet = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.said += [value for name, value in attrs if name in ("title", "aria-label", "placeholder") and value]
        self._quiet += tag in ("code", "pre", "style", "script", "svg")

    def handle_endtag(self, tag: str) -> None:
        self._quiet -= tag in ("code", "pre", "style", "script", "svg")

    def handle_data(self, data: str) -> None:
        if not self._quiet:
            self.said.append(data)


def _english(text: str, report: Report) -> list[str]:
    for foreign in (report["target"]["tool"], report["target"]["version"], report["model"]["producer"]):
        text = text.replace(foreign, "") if foreign else text
    for culprit in report["culprits"]:
        for quoted in (culprit["message"], *(it["code"] or "" for it in culprit["origin"])):
            text = text.replace(quoted, "")
    return _ENGLISH.findall(re.sub("实例：.*", "", text))  # that quotes compilers


def _without_code(text: str) -> str:
    return re.sub(r"(?s)```.*?```|(`+).+?\1", "", text)


def test_every_form_that_people_read_is_wholly_chinese(reports: list[Report]) -> None:
    for report in reports:
        with within(CHINESE):
            page = _Text()
            page.feed(html(report))
            assert not _english("\n".join(page.said), report)
            texts = [markdown(report), *(culprit_readme(report, n + 1) for n in range(len(report["culprits"])))]
            for text in texts:
                assert not _english(_without_code(text), report)
            shown = [line for line in lines(report, width=200) if "onnx-bisect " not in line]
            assert not _english("\n".join(shown), report)


def test_a_repair_and_its_progress_are_wholly_chinese(tmp_path: Path) -> None:
    said: list[str] = []
    model = _changed(tmp_path, "Erf")

    def tell(event: onnx_bisect.Event) -> None:
        said.extend([event.sentence] if isinstance(event, onnx_bisect.Note) else [])

    found = onnx_bisect.fix(model, backend=_of_one_format, cache=False, progress=tell).document
    assert found.file_change is not None
    assert BETWEEN in found.file_change.sentence
    with within(CHINESE):
        shown = [*map(translated, said), *summary.lines(found), _without_code(summary.markdown(found))]
    assert not [it for it in shown if _ENGLISH.search(it)]


def test_every_change_of_a_file_is_chinese() -> None:
    """What each remedy says of each file to which it applies, and several of them behind each other."""
    narrow = ProbeFormat(longest_name=1, safe_names=True, min_input_rank=1, min_output_rank=1, max_input_rank=2)
    older = ToolLimits(tool="Chipper", newest_ir=7, newest_opset=13, probe_format=narrow)
    seen: set[str] = set()
    for path in sorted((ROOT / "tests" / "models").glob("*.onnx")):
        file = File.of(load(path))
        for limits in (older, ToolLimits(tool="Chipper", oldest_opset=19)):
            for wanted in (*({it.id} for it in REMEDIES), {it.id for it in REMEDIES}):
                changed = repaired(file, wanted, limits)
                seen.update(changed.remedies)
                with within(CHINESE):
                    assert not _ENGLISH.search(_unquoted(clauses(changed.sentence))), changed.sentence
    assert len(seen) > len(REMEDIES) / 2


@pytest.mark.parametrize("tool", ["", "Qualcomm QNN (onnxruntime-qnn)"])
def test_every_finding_is_chinese_but_for_what_it_quotes(tool: str) -> None:
    quotes = {check.seen for check in checks() if check.seen}
    for path in sorted((ROOT / "tests" / "models").glob("*.onnx")):
        for it in preflight(load(path), ToolLimits(tool=tool) if tool else None):
            if it.id in ("invalid-model", "invalid-node"):  # these quote onnx
                continue
            with within(CHINESE):
                shown = "\n".join((phrase(it.detail), translated(it.why), translated(it.fix)))
            for quote in (*(it.rstrip(".") for it in quotes), *it.nodes):
                shown = shown.replace(quote, "")
            assert "Seen:" not in shown
            assert not _ENGLISH.search(_unquoted(_without_code(shown))), shown


def test_comparisons_are_wholly_chinese(
    reports: list[Report], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    doubtful, sure, *_rest = reports
    with within(CHINESE):
        for a, b in ((doubtful, sure), (sure, doubtful)):
            shown = [
                *terminal_lines(compare_sections(compare(a, b), 200), 200),
                as_markdown(compare_sections(compare(a, b))),
            ]
            assert not [line for line in shown if _english(_without_code(line), a) and _english(line, b)]
    model = ROOT / "tests" / "models" / "float16.onnx"
    monkeypatch.setenv("LC_ALL", "zh_CN.UTF-8")
    assert run(CompareRequest(before=model, after=model, tensors=True), ListFormat.TEXT) == 0
    assert not _ENGLISH.search(capsys.readouterr().out)


def _unquoted(text: str) -> str:
    """Without the names of a file."""
    return re.sub("'[^']*'", "", text)


@pytest.mark.parametrize(
    ("kept", "shown"),
    [
        ("operator set 11 → 16; 3 nodes named", "算子集 11 → 16；3 个节点已命名"),
        (
            "2 If replaced by the branches that they take; 1 Loop written out",
            "2 个 If 替换为各自执行的分支；1 个 Loop 已展开",
        ),
        ("2 functions, 1 operator set left out that no node uses", "去掉没有节点使用的 2 个函数、1 个算子集"),
        ("3 Dropout and Identity nodes removed", "去掉 3 个 Dropout 和 Identity 节点"),
        ("nodes sorted, and then computes other numbers", "节点已排序，但计算出的数值不同"),
        ("ir_version 12 → 9; option axes=1", "IR 版本 12 → 9；选项 axes=1"),
    ],
)
def test_clauses_are_translated_and_joined_as_the_language_does(kept: str, shown: str) -> None:
    with within(CHINESE):
        assert clauses(kept) == shown
    assert clauses(kept) == kept


def test_each_sentence_about_a_changed_file_is_marked() -> None:
    """Also those of remedies that no small file needs."""
    for path in sorted((ROOT / "bisect" / "onnxbisect" / "file_remedies").rglob("*.py")):
        for call in ast.walk(ast.parse(path.read_text())):
            given = {it.arg: it.value for it in call.keywords} if isinstance(call, ast.Call) else {}
            if isinstance(call, ast.Call) and ast.unparse(call.func).endswith("RemediedFile"):
                said = given["sentence"]
                assert not isinstance(said, ast.Constant | ast.JoinedStr) or messages.template(said), ast.unparse(call)


def test_forms_for_machines_are_english_whoever_asks(reports: list[Report]) -> None:
    for form in (junit, sarif):
        english = form(reports[0])
        with within(CHINESE):
            assert form(reports[0]) == english


def test_columns_are_aligned_where_characters_are_wide(reports: list[Report]) -> None:
    from rich.cells import cell_len

    with within(CHINESE):
        shown = lines(reports[0])
    start = shown.index("模块") + 1
    found = [cell_len(row[: row.index(" 个单元")].rstrip("0123456789")) for row in shown[start : start + 4]]
    assert len(set(found)) == 1


def test_the_wheel_holds_the_catalogue() -> None:
    assert Path(language.__file__).with_name("locale").is_dir()
    assert messages.FILE.with_suffix(".mo").exists()


def test_the_chinese_readme_has_the_same_commands_sections_and_links() -> None:
    english, chinese = ((messages.ROOT / name).read_text() for name in ("README.md", "README.zh-CN.md"))
    for kind in (r"(?ms)^```.*?^```", r"(?m)^\| `[^|]*", r"(?m)^#+ ", r"\]\((docs/[^)]*)\)"):
        assert sorted(re.findall(kind, chinese)) == sorted(re.findall(kind, english))
