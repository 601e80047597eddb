"""What has become of culprits: in a repaired model, in another version of the compiler, where not all was asked."""

from collections.abc import Sequence

from onnx import helper

from onnxbisect.diagnosis import CertificateStatus, CulpritKind, DiagnosedCulprit, DiagnosisProof
from onnxbisect.model.model import Model
from onnxbisect.report.compare import ComparedCulprit, compare, passed_in
from onnxbisect.report.contents import Report
from onnxbisect.report.document import document
from onnxbisect.unitset import of
from support.engine.report_factory import chain, culprit, job_of, single

MODEL = chain(["Relu", "Exp", "Tanh", "Erf"])
BOUNDED = DiagnosisProof(status=CertificateStatus.BOUNDED, probes=(), assumes=())


def report(*culprits: DiagnosedCulprit, model: Model = MODEL, certificate: DiagnosisProof | None = None) -> Report:
    return document(job_of(model, culprits, certificate=certificate))


def ops(culprits: Sequence[ComparedCulprit]) -> list[str]:
    return ["+".join(entry["ops"]) for entry in culprits]


def test_fixed_new_and_unchanged() -> None:
    a = report(single(MODEL, [1], "no Exp"), single(MODEL, [2], "no Tanh"))
    b = report(single(MODEL, [2], "no Tanh"), single(MODEL, [3], "no Erf"))
    found = compare(a, b)
    assert (ops(found["fixed"]), ops(found["new"]), ops(found["unchanged"])) == (["Exp"], ["Erf"], ["Tanh"])
    assert found["unchanged"][0]["by"] == "id"
    assert found["headline"] == "1 fixed, 1 new, 1 unchanged"
    assert found["same_model"]
    assert found["same_target"]


def test_the_other_way_round_fixed_is_new() -> None:
    a, b = report(single(MODEL, [1], "no Exp")), report(single(MODEL, [3], "no Erf"))
    assert ops(compare(a, b)["fixed"]) == ops(compare(b, a)["new"]) == ["Exp"]


def test_another_version_says_the_same_in_other_words() -> None:
    a = report(single(MODEL, [1], "no Exp"), single(MODEL, [2], "no Tanh"))
    b = report(single(MODEL, [1], "op Exp is unsupported"), single(MODEL, [2], "op Tanh is unsupported"))
    found = compare(a, b)
    assert [(entry["ops"], entry["by"]) for entry in found["unchanged"]] == [(["Exp"], "nodes"), (["Tanh"], "nodes")]
    assert found["headline"] == "0 fixed, 0 new, 2 unchanged"


def test_an_export_with_other_names_has_the_same_culprits() -> None:
    renamed = chain(["Relu", "Identity", "Exp"], {2: "Exp_7"})
    found = compare(report(single(MODEL, [1], "no Exp")), report(single(renamed, [2], "no Exp"), model=renamed))
    assert [entry["by"] for entry in found["unchanged"]] == ["id"]


def test_a_repair_that_changes_an_attribute_does_not_cure_by_itself() -> None:
    before, after = (chain([helper.make_node("Softmax", [], [], axis=axis)], {0: f"n{axis}"}) for axis in (0, 1))
    a, b = (report(single(model, [0], "no Softmax"), model=model) for model in (before, after))
    assert a["culprits"][0]["id"] != b["culprits"][0]["id"]
    assert [entry["by"] for entry in compare(a, b)["unchanged"]] == ["complaint"]


def test_of_two_variants_the_one_that_is_gone_is_fixed() -> None:
    """The other one must not be taken for it because both are of one op and refused in the same words."""
    softmax = [helper.make_node("Softmax", [], [], axis=axis) for axis in (0, 1)]
    model = chain(softmax)
    a = report(single(model, [0], "no Softmax"), single(model, [1], "no Softmax"), model=model)
    b = report(single(model, [1], "no Softmax"), model=model)
    found = compare(a, b)
    assert [entry["id"] for entry in found["fixed"]] == [a["culprits"][0]["id"]]
    assert [entry["id"] for entry in found["unchanged"]] == [b["culprits"][0]["id"]]


def test_an_op_alone_is_not_the_pair_that_it_is_in() -> None:
    pair = culprit(MODEL, [of([1, 2])], CulpritKind.INTERACTION, "no Exp")
    found = compare(report(single(MODEL, [1], "no Exp")), report(pair))
    assert (ops(found["fixed"]), ops(found["new"])) == (["Exp"], ["Exp+Tanh"])


def test_places_that_were_repaired_are_counted() -> None:
    model = chain(["Exp", "Relu", "Exp"])
    a, b = (report(single(model, places, "no Exp"), model=model) for places in ([0, 2], [2]))
    (entry,) = compare(a, b)["unchanged"]
    assert (entry["places_before"], entry["places"]) == (2, 1)


def test_what_was_not_asked_to_the_end_is_not_called_fixed_for_sure() -> None:
    found = compare(report(single(MODEL, [1], "no Exp")), report(single(MODEL, [2], "no Tanh"), certificate=BOUNDED))
    assert found["certain"] == {"fixed": False, "new": True}
    assert found["headline"].endswith("what is fixed is not certain, since not everything was answered")


def test_unnamed_nodes_are_nobody_s_mark() -> None:
    unnamed = chain(["Exp", "Relu", "Exp"], {0: "", 1: "", 2: ""})
    a = report(single(unnamed, [0], "no Exp of float"), model=unnamed)
    b = report(single(unnamed, [2], "no Exp at the end"), model=unnamed)
    assert compare(a, b)["headline"] == "1 fixed, 1 new, 0 unchanged"


def test_a_culprit_passed_before_where_its_nodes_were_in_one_probe_that_passed() -> None:
    earlier = passed_in(report(single(MODEL, [1], "no Exp")))  # of which Relu, Tanh and Erf pass together
    other = chain(["Relu", "Exp", "Tanh", "Erf", "Cos"])
    later = [
        *report(
            single(MODEL, [2], "no Tanh"),
            culprit(MODEL, [of([2, 3])], CulpritKind.INTERACTION),
            culprit(MODEL, [of([1, 2])], CulpritKind.INTERACTION),
        )["culprits"],
        *report(single(other, [4], "no Cos"), model=other)["culprits"],
    ]
    assert [(entry["ops"], earlier(entry)) for entry in later] == [
        (["Tanh"], True),
        (["Tanh", "Erf"], True),
        (["Exp", "Tanh"], False),
        (["Cos"], False),
    ]
