"""Languages: the catalogue holds every marked message, kept sentences are found again, reports are wholly Chinese."""

import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from babel.messages.catalog import Message

import onnx_bisect
from onnxbisect import language
from onnxbisect.errors import OnnxBisectError
from onnxbisect.finished import LISTS, OURS, phrase, translated
from onnxbisect.language import CHINESE, ENGLISH, KEPT, within
from onnxbisect.model import load
from onnxbisect.report.ci import junit, sarif
from onnxbisect.report.contents import Report
from onnxbisect.report.document import document
from onnxbisect.report.html import html
from onnxbisect.report.markdown import culprit_readme, markdown
from onnxbisect.report.terminal import lines
from onnxbisect.report.text import plural
from onnxbisect.rewrites.families import RULES
from onnxbisect_backends.options import unknown
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


@pytest.fixture(scope="module")
def reports() -> list[Report]:
    """A bounded and a proven one, one whose culprits have a cause, and one that compiles."""
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
    return [decoder.report, *others]


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


def test_every_form_that_people_read_is_wholly_chinese(reports: list[Report]) -> None:
    for report in reports:
        with within(CHINESE):
            page = _Text()
            page.feed(html(report))
            assert not _english("\n".join(page.said), report)
            texts = [markdown(report), *(culprit_readme(report, n + 1) for n in range(len(report["culprits"])))]
            for text in texts:
                assert not _english(re.sub(r"(?s)```.*?```|(`+).+?\1", "", text), report)
            shown = [line for line in lines(report, width=200) if "onnx-bisect " not in line]
            assert not _english("\n".join(shown), report)


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
