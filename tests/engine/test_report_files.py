"""The folder that a report becomes."""

import json
import re

import pytest

from onnxbisect.report.contents import culprit_dir_name
from onnxbisect.report.document import document
from onnxbisect.report.files import FORMS, culprit_dirs, write
from support.engine.report_factory import HOSTILE, chain, job_of, single


def report_of(*culprits: int):
    model = chain(["Relu", "Exp", "Tanh"], {1: HOSTILE})
    return document(job_of(model, [single(model, [unit]) for unit in culprits]))


def test_every_form_and_every_culprit_gets_its_file(tmp_path):
    report = report_of(1, 2)
    weights = tmp_path / "weights"
    weights.write_bytes(b"w")
    files = {report["culprits"][0]["id"]: {"model.onnx": b"onnx", "compiler.log": b"no Exp", "weights.data": weights}}
    written = write(report, tmp_path / "out", files)
    found = {path.relative_to(tmp_path / "out").as_posix() for path in (tmp_path / "out").rglob("*") if path.is_file()}
    assert found == {
        *FORMS,
        "culprits/01-Exp/model.onnx",
        "culprits/01-Exp/compiler.log",
        "culprits/01-Exp/weights.data",
        "culprits/01-Exp/README.md",
        "culprits/02-Tanh/README.md",
    }
    assert {path.relative_to(tmp_path / "out").as_posix() for path in written} == found
    assert json.loads((tmp_path / "out/report.json").read_text("utf-8")) == report
    assert (tmp_path / "out/culprits/01-Exp/weights.data").read_bytes() == b"w"


def test_the_page_leads_to_the_files_beside_it_and_to_no_others(tmp_path):
    report = report_of(1, 2)
    write(report, tmp_path, {report["culprits"][0]["id"]: {"model.onnx": b"onnx", "compiler.log": b"no Exp"}})
    links = re.findall(r'href="(culprits/[^"]*)"', (tmp_path / "report.html").read_text("utf-8"))
    assert links == ["culprits/01-Exp/compiler.log", "culprits/01-Exp/model.onnx"]
    assert all((tmp_path / link).is_file() for link in links)


def test_repro_of_the_document_is_where_the_folder_is():
    report = report_of(1, 2)
    assert culprit_dirs(report) == ("culprits/01-Exp", "culprits/02-Tanh")
    assert [culprit["repro"] for culprit in report["culprits"]] == [
        f"{name}/model.onnx" for name in culprit_dirs(report)
    ]


def test_what_a_driver_put_there_before_stays_and_stale_culprits_go(tmp_path):
    write(report_of(1, 2), tmp_path)
    (tmp_path / "culprits/01-Tanh").mkdir()
    (tmp_path / "culprits/01-Tanh/model.onnx").write_bytes(b"new")
    (tmp_path / "culprits/02-Tanh/notes.txt").write_text("mine")
    (tmp_path / "culprits/mine").mkdir()
    write(report_of(2), tmp_path)
    names = {path.relative_to(tmp_path / "culprits").as_posix() for path in (tmp_path / "culprits").rglob("*")}
    assert names == {"01-Tanh", "01-Tanh/model.onnx", "01-Tanh/README.md", "02-Tanh", "02-Tanh/notes.txt", "mine"}


def test_a_failed_write_leaves_the_old_file_whole(tmp_path):
    report = report_of(1)
    identity = report["culprits"][0]["id"]
    write(report, tmp_path, {identity: {"model.onnx": b"old"}})
    with pytest.raises(FileNotFoundError):
        write(report, tmp_path, {identity: {"model.onnx": tmp_path / "missing"}})
    assert (tmp_path / "culprits/01-Exp/model.onnx").read_bytes() == b"old"
    assert not list(tmp_path.rglob("*.part"))


def test_files_never_land_outside_their_culprits_folder(tmp_path):
    report = report_of(1)
    write(report, tmp_path / "out", {report["culprits"][0]["id"]: {"../../../evil": b"x"}})
    assert (tmp_path / "out/culprits/01-Exp/evil").exists()
    assert {path.name for path in tmp_path.iterdir()} == {"out"}


@pytest.mark.parametrize(
    ("ops", "name"),
    [
        (["ReduceMean", "BatchNormalization"], "03-ReduceMean-BatchNormalization"),
        (["com.x::Twirl"], "03-com-x-Twirl"),
        (["../../etc/passwd\x00"], "03-etc-passwd"),
        (["模型"], "03-op"),
        (["Conv"] * 500, "03-Conv-Conv-Conv-Conv-Conv-Conv-Conv-Conv"),
    ],
)
def test_folder_names_are_safe_and_short(ops, name):
    assert culprit_dir_name(3, ops) == name
