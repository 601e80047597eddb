"""The document: truthful, stable, valid, small."""

import json
from dataclasses import replace
from typing import Any

import jsonschema
import onnx
import pytest
from onnx import helper

from onnx_bisect import report_schema
from onnxbisect.diagnosis import (
    Certainty,
    CertificateStatus,
    ContextUnits,
    CulpritKind,
    DiagnosisProof,
    Evidence,
)
from onnxbisect.report.contents import OpEntry, ProbeEntry, Report
from onnxbisect.report.document import document
from onnxbisect.unitset import indices_of, members, of, spell
from onnxbisect.verdict import Kind, Status
from support.engine.report_factory import PASS, chain, culprit, job_of, refused, single


def node(op: str, **attributes: Any) -> onnx.NodeProto:
    return helper.make_node(op, [], [], **attributes)


def row(report: Report, op: str) -> OpEntry:
    return next(entry for entry in report["op_table"] if entry["op"] == op)


def probe(report: Report, name: str | None) -> ProbeEntry:
    return next(entry for entry in report["probes"] if entry["id"] == name)


def pair_job():
    model = chain(["Relu", "ReduceMean", "BatchNormalization", "Relu", "ReduceMean", "BatchNormalization", "Exp"])
    pairs = [of([1, 2]), of([4, 5])]
    evidence = Evidence(fails=pairs[0], subsets=(1 << 1, 1 << 2))
    found = [
        culprit(model, pairs, CulpritKind.INTERACTION, "std::bad_alloc", evidence=evidence),
        single(model, [6], "Exp not supported"),
    ]
    return job_of(model, found, more=[(1 << 1, PASS, "ReduceMean alone"), (1 << 2, PASS, "BatchNormalization alone")])


def test_the_document_is_valid_json_of_its_schema():
    jsonschema.Draft202012Validator.check_schema(report_schema())
    report = document(pair_job())
    jsonschema.validate(json.loads(json.dumps(report)), report_schema())


def test_every_kind_of_failure_fits_the_schema_and_no_field_that_it_does_not_have():
    model = chain(["Relu", "Exp"])
    report = document(job_of(model, [single(model, [1])]))
    for kind in Kind:
        report["culprits"][0]["failure"] = kind
        jsonschema.validate(report, report_schema())
    with pytest.raises(jsonschema.ValidationError, match="surprise"):
        jsonschema.validate({**report, "surprise": 1}, report_schema())


def test_a_model_that_compiles_has_one_piece_and_no_culprit():
    report = document(job_of(chain(["Relu", "Exp"])))
    jsonschema.validate(report, report_schema())
    assert report["verdict"] == "pass"
    assert report["headline"] == "decoder.onnx compiles for whitelist (profile=edgesam)"
    assert report["culprits"] == []
    (piece,) = report["partition"]
    assert piece["nodes"] == ["/net/block.0/Relu", "/net/block.1/Exp"]
    assert piece["compiled"]


def test_the_evidence_of_a_pair_names_the_probes_that_prove_it():
    report = document(pair_job())
    pair = report["culprits"][0]
    assert pair["ops"] == ["ReduceMean", "BatchNormalization"]
    assert pair["occurrences"] == [
        ["/net/block.1/ReduceMean", "/net/block.2/BatchNormalization"],
        ["/net/block.4/ReduceMean", "/net/block.5/BatchNormalization"],
    ]
    evidence = pair["evidence"]
    assert probe(report, evidence["fails"])["nodes"] == pair["nodes"]
    assert probe(report, evidence["fails"])["verdict"] == "fail"
    assert [probe(report, name)["nodes"] for name in evidence["subsets"]] == [[name] for name in pair["nodes"]]
    assert probe(report, evidence["context"])["verdict"] == "pass"
    blame, context = probe(report, evidence["blame"]), probe(report, evidence["context"])
    assert blame["nodes"]
    assert context["nodes"]
    assert blame["verdict"] == "fail"
    assert set(blame["nodes"]) - set(context["nodes"]) == set(pair["nodes"])


def test_the_order_in_which_answers_came_changes_no_word():
    """Answers that are taken over from an earlier job come all at once, in any order."""
    job = job_of(chain(["Relu", "Exp", "Tanh"]), [single(chain(["Relu", "Exp", "Tanh"]), [1], "no Exp")])
    again = [replace(probe, attempt=1) for probe in job.probes]
    told = document(replace(job, probes=(*job.probes, *again)))
    turned = document(replace(job, probes=(*reversed(again), *reversed(job.probes))))
    for part in ("culprits", "op_table", "partition", "certificate"):
        assert turned[part] == told[part]


def test_op_table_tells_refused_from_passing_and_from_failing_in_combination():
    report = document(pair_job())
    assert row(report, "Exp")["verdict"] == "fail"
    assert row(report, "Relu")["verdict"] == "pass"
    assert row(report, "ReduceMean")["verdict"] == "mixed"
    (proof,) = row(report, "Relu")["proof"]
    assert {"/net/block.0/Relu", "/net/block.3/Relu"} <= set(probe(report, proof)["nodes"] or ())
    assert probe(report, proof)["verdict"] == "pass"
    (proof,) = row(report, "Exp")["proof"]
    assert probe(report, proof)["verdict"] == "fail"


def test_a_passing_op_is_proven_by_the_smallest_probe_that_has_all_its_nodes():
    model = chain(["Relu", "Exp", "Relu", "Abs"])
    both = of([0, 2])
    report = document(job_of(model, [single(model, [3])], more=[(1, PASS, "one Relu"), (both, PASS, "both Relus")]))
    (proof,) = row(report, "Relu")["proof"]
    assert probe(report, proof)["why"] == "both Relus"


def test_nothing_is_said_of_units_that_no_probe_answered():
    model = chain(["Relu", "Exp", "Abs"])
    job = job_of(model, [single(model, [2])])
    unknown = DiagnosisProof(status=CertificateStatus.BOUNDED, unknown=("2 units were not asked about",))
    answered = tuple(record for record in job.probes if not record.verdict.passed)
    job = replace(job, probes=answered, diagnosis=replace(job.diagnosis, certificate=unknown))
    report = document(job)
    jsonschema.validate(report, report_schema())
    assert row(report, "Relu")["verdict"] == "unknown"
    assert row(report, "Relu")["proof"] == []
    assert report["partition"] == []
    assert report["units"]["states"]["unknown"] == "0-1"
    assert report["certificate"]["sentence"].startswith("bounded")


@pytest.mark.parametrize("certainty", [Certainty.SUSPECTED, Certainty.FLAKY])
def test_what_is_not_confirmed_is_never_reported_as_refused(certainty):
    model = chain(["Relu", "Exp"])
    report = document(job_of(model, [single(model, [1], certainty=certainty, confidence=0.9)]))
    assert row(report, "Exp")["verdict"] == "unknown"
    assert report["units"]["states"]["culprit"] == ""
    assert report["units"]["states"]["suspected"] == "1"
    assert report["headline"].endswith("nothing is established yet")


def test_what_needs_context_is_not_refused_and_warns_where_a_piece_tears_it():
    model = chain(["Relu", "Erf", "Mul", "Exp", "Erf"])
    torn = ContextUnits(units=1 << 1, occurrences=(1 << 1, 1 << 4), passes_with=of([1, 2]))
    fails = (1 << 1, refused("Erf alone?"), "Erf alone")
    within = (of([1, 2]), PASS, "Erf with Mul")
    report = document(job_of(model, [single(model, [3])], needs_context=[torn], more=[fails, within]))
    jsonschema.validate(report, report_schema())
    assert row(report, "Erf")["verdict"] == "needs_context"
    around = report["needs_context"][0]["passes_with"]
    assert around
    assert around["nodes"] == ["/net/block.1/Erf", "/net/block.2/Mul"]
    assert [piece["needs_context"] for piece in report["partition"]] == [[], ["/net/block.4/Erf"]]


def test_partition_cuts_the_remainder_around_the_culprits_in_running_order():
    report = document(pair_job())
    assert [piece["nodes"] for piece in report["partition"]] == [["/net/block.0/Relu"], ["/net/block.3/Relu"]]
    assert all(probe(report, piece["proof"])["verdict"] == "pass" for piece in report["partition"])


def test_passes_instead_shows_the_attribute_that_differs_from_a_passing_variant():
    model = chain([node("Softmax", axis=1), "Relu", node("Softmax", axis=0), node("Softmax", axis=1)])
    report = document(job_of(model, [single(model, [2])]))
    (instead,) = report["culprits"][0]["passes_instead"]
    assert instead["differs"] == [{"what": "attribute axis", "culprit": "0", "passes": "1"}]
    assert instead["count"] == 2
    assert probe(report, instead["probe"])["verdict"] == "pass"


def test_passes_instead_never_offers_a_variant_that_did_not_pass():
    model = chain([node("Softmax", axis=1), node("Softmax", axis=0)])
    report = document(job_of(model, [single(model, [0]), single(model, [1])]))
    assert [entry["passes_instead"] for entry in report["culprits"]] == [[], []]


def test_culprits_of_one_op_say_what_tells_them_apart():
    nodes = [node("Softmax", axis=axis) for axis in (0, 1)]
    model = chain([*nodes, "Relu", "Exp", node("Softmax", axis=0)])
    found = [single(model, [0, 4]), single(model, [1]), single(model, [3])]
    told = [entry.get("variant") for entry in document(job_of(model, found))["culprits"]]
    assert told == [[{"what": "attribute axis", "value": "0"}], [{"what": "attribute axis", "value": "1"}], None]


def test_ids_survive_renaming_and_edits_elsewhere_and_differ_between_variants():
    soft = [node("Softmax", axis=axis) for axis in (0, 1)]
    model = chain(["Relu", *soft])
    moved = chain(["Exp", "Tanh", node("Softmax", axis=1)], {2: "renamed"})
    first, second = (entry["id"] for entry in document(job_of(model, [single(model, [i]) for i in (1, 2)]))["culprits"])
    (again,) = (entry["id"] for entry in document(job_of(moved, [single(moved, [2])]))["culprits"])
    assert first != second
    assert again == second


def test_surroundings_are_the_culprit_with_its_neighbours_and_the_types_between_them():
    model = chain(["Relu", "Exp", "Tanh", "Abs"])
    around = document(job_of(model, [single(model, [1])]))["culprits"][0]["surroundings"]
    assert around
    assert [(entry["op"], entry["role"]) for entry in around["nodes"]] == [
        ("Relu", "before"),
        ("Exp", "culprit"),
        ("Tanh", "after"),
    ]
    assert [(edge["from"], edge["to"], edge["type"]) for edge in around["edges"]] == [
        (0, 1, "float[1,4]"),
        (1, 2, "float[1,4]"),
    ]


def test_a_capacity_culprit_of_the_whole_model_stays_small():
    model = chain(["Conv"] * 2000)
    whole, half = model.universe.everything, of(range(1000))
    found = culprit(model, [whole], CulpritKind.CAPACITY, "out of on-chip memory", largest_passing=half)
    report = document(job_of(model, [found], more=[(half, PASS, "the first half")]))
    jsonschema.validate(report, report_schema())
    assert report["culprits"][0]["largest_passing"] == {"size": 1000, "units": "0-999"}
    assert report["culprits"][0]["surroundings"] is None
    assert len(json.dumps(report["probes"])) < 4000


def test_a_model_that_is_too_large_is_in_as_many_pieces_as_split_writes():
    """Each from a probe that compiled; the largest probe alone would leave the other half to the host."""
    model = chain(["Conv"] * 20)
    first, second = of(range(10)), of(range(8, 20))
    found = culprit(model, [model.universe.everything], CulpritKind.CAPACITY, "out of memory", largest_passing=second)
    halves = [(first, PASS, "the first half"), (second, PASS, "the second half")]
    report = document(job_of(model, [found], more=halves))
    jsonschema.validate(report, report_schema())
    assert [(piece["size"], probe(report, piece["proof"])["why"]) for piece in report["partition"]] == [
        (10, "the first half"),
        (10, "the second half"),
    ]


def test_probe_node_lists_are_left_out_where_units_say_it_shorter():
    model = chain(["Relu"] * 60)
    report = document(job_of(model, [single(model, [59])]))
    whole, alone = report["probes"][:2]
    assert (whole["nodes"], whole["units"], whole["size"]) == (None, "0-59", 60)
    assert (alone["nodes"], alone["units"]) == (["/net/block.59/Relu"], "59")


def test_unit_ranges_read_back_as_they_were_written():
    for units in (0, 1, of([0, 1, 2]), of([3]), of([0, 2, 3, 9, 10, 11, 64]), (1 << 200) - 1):
        assert list(indices_of(spell(units))) == list(members(units))
    assert spell(of([0, 1, 2, 5, 7, 8])) == "0-2,5,7-8"


def test_an_unresolved_model_says_that_nothing_is_known():
    model = chain(["Relu"])
    job = job_of(model)
    job = replace(job, probes=(), diagnosis=replace(job.diagnosis, verdict=Status.UNRESOLVED))
    assert document(job)["headline"].startswith("it is not known whether decoder.onnx compiles")


def test_the_certificate_of_a_pair_counts_what_was_taken_out_and_not_what_is_blamed():
    model = chain(["Relu", "Asinh", "Relu", "Cosh"])
    pair, rest = of([1, 3]), (of([0, 1, 2]), of([0, 2, 3]))
    job = job_of(
        model, [culprit(model, [pair], CulpritKind.INTERACTION)], more=[(units, PASS, "broken") for units in rest]
    )
    for probes, sentence in (
        (rest[:1], "proven: with 1 unit taken out, which breaks up this culprit, the other 3 units compile"),
        (rest, "proven: in each of the 2 ways to break up this culprit the rest compiles"),
    ):
        proven = DiagnosisProof(status=CertificateStatus.PROVEN, probes=probes)
        diagnosis = replace(job.diagnosis, certificate=proven, remainder=rest[0])
        report = document(replace(job, diagnosis=diagnosis))
        assert report["certificate"]["sentence"].startswith(sentence)
        assert len(report["certificate"]["probes"]) == len(probes)
