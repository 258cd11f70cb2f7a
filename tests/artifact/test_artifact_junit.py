"""JUnit XML: a test case per check, in the shape that Ant's and Jenkins' schemas both accept."""

from __future__ import annotations

import re
from dataclasses import replace
from xml.etree import ElementTree

import pytest
from artifact_samples import sample_manifest, sample_metric

from vibeserve.artifact.checks import GATES
from vibeserve.artifact.claims import claim_refusals, judge_claims, overall
from vibeserve.artifact.junit import error_junit, junit_text
from vibeserve.artifact.signature import Signature, SignatureState
from vibeserve.artifact.verification import Verification
from vibeserve.core.manifest import AuditResult, VerifyResult
from vibeserve.core.nouns import Refusal
from vibeserve.errors import InfraError

CHECKS = ("scan", "build", "start", "probe", "replies", "accuracy", "integrity", "own_tests")
ATTRIBUTES = {
    "testsuite": {"name", "tests", "failures", "errors", "skipped", "time", "timestamp", "hostname"},
    "properties": set(), "property": {"name", "value"}, "testcase": {"name", "classname", "time"},
    "failure": {"message", "type"}, "error": {"message", "type"}, "skipped": {"message"}, "system-out": set(),
    "system-err": set(),
}  # fmt: skip
"""exactly these: what one of the two schemas requires the other allows"""
CHILDREN = {
    "testsuite": r"properties,(testcase,)*system-out,system-err,", "properties": r"(property,)*",
    "testcase": r"((failure|error|skipped),)?",
}  # fmt: skip


def done(**changes: object) -> Verification:
    fields: dict[str, object] = {
        "level": "bytes", "reasons": (), "manifest": sample_manifest(),
        "signature": Signature(state=SignatureState.NONE),
    }  # fmt: skip
    return Verification(**(fields | changes))  # type: ignore[arg-type]


def measured(peer: float) -> Verification:
    result = VerifyResult(
        level="performance", checks=CHECKS, metrics=(sample_metric("output_throughput", peer=peer),),
        audits=(AuditResult(name="possible", passed=True, text="within the roofline"),),
    )  # fmt: skip
    claims = tuple(judge_claims(sample_manifest().metrics, result.metrics))
    return done(
        level="performance", result=result, claims=claims, performance=overall(claims),
        reasons=tuple(claim_refusals(claims)),
    )  # fmt: skip


def states(verification: Verification) -> dict[str, str]:
    """Name of every test case -> failure, error, skipped or passed."""
    suite = checked(junit_text(verification))
    return {case.attrib["name"]: next((child.tag for child in case), "passed") for case in suite.iter("testcase")}


def checked(text: str) -> ElementTree.Element:
    """The suite, after its shape was checked."""
    suite = ElementTree.fromstring(text)
    for element in suite.iter():
        assert set(element.attrib) == ATTRIBUTES[element.tag], element.tag
        order = "".join(f"{child.tag}," for child in element)
        assert re.fullmatch(CHILDREN.get(element.tag, ""), order), f"{element.tag}: {order}"
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d", suite.attrib["timestamp"])
    assert re.fullmatch(r"\d+\.\d+", suite.attrib["time"])
    names = [(case.attrib["classname"], case.attrib["name"]) for case in suite.iter("testcase")]
    assert len(set(names)) == len(names)
    counts = {tag: len(list(suite.iter(tag))) for tag in ("testcase", "failure", "error", "skipped")}
    assert [suite.attrib[key] for key in ("tests", "failures", "errors", "skipped")] == [
        str(count) for count in counts.values()
    ]
    return suite


def test_the_byte_level_has_six_checks_and_skips_the_rest_by_name() -> None:
    found = states(done())
    assert found == {
        "files": "passed", "documents": "passed", "pages": "passed",
        "origin": "skipped", "signature": "skipped", "certified": "passed",
        **dict.fromkeys(GATES, "skipped"), "claim": "skipped",
    }  # fmt: skip


def test_every_gate_audit_and_claim_that_ran_is_a_case() -> None:
    found = states(measured(70.0))
    ran = [*GATES, "possible", "output_throughput at c8 against transformers_cb (same_bytes)"]
    assert [found[name] for name in ran] == ["passed"] * len(ran)


def test_a_regression_fails_the_claim_alone() -> None:
    suite = checked(junit_text(measured(110.0)))
    (failure,) = suite.iter("failure")
    assert failure.attrib["type"] == "regression" and "claim 1.71x is refused" in failure.attrib["message"]
    assert suite.find("system-out").text.startswith("refused: sample")  # type: ignore[union-attr]


def test_reasons_go_to_the_check_that_they_belong_to() -> None:
    reasons = tuple(
        Refusal(gate=gate, reason_class="x", text=f"of {gate}")
        for gate in ("lengths", "usage", "spec", "own_tests", "audit", "serving")
    )
    found = states(done(level="accuracy", reasons=reasons, result=VerifyResult(level="accuracy", checks=CHECKS)))
    failed = {name for name, state in found.items() if state == "failure"}
    assert failed == {"replies", "rules", "own_tests", "audits", "serving"}


def test_a_refused_audit_is_its_own_case() -> None:
    audit = AuditResult(name="repeats", passed=False, text="answered from a cache; and again")
    reasons = (Refusal(gate="audit", reason_class="repeat_prompt", text="answered from a cache"),)
    result = VerifyResult(level="full", checks=(*CHECKS, "audits"), audits=(audit,))
    verification = done(level="full", result=result, reasons=reasons)
    found = states(verification)
    assert found["repeats"] == "failure" and list(found.values()).count("failure") == 1


def test_changed_bytes_fail_the_files_and_nothing_else_is_claimed() -> None:
    refusal = Refusal(gate="integrity", reason_class="digest_mismatch", text="manifest.json is missing", file="x")
    found = states(done(manifest=None, reasons=(refusal,)))
    assert found["files"] == "failure"
    assert set(found.values()) == {"failure", "skipped"}


@pytest.mark.parametrize(
    ("state", "expected"),
    [(SignatureState.VALID, "passed"), (SignatureState.NONE, "skipped"), (SignatureState.UNCHECKED, "skipped")],
)
def test_only_a_checked_signature_passes(state: SignatureState, expected: str) -> None:
    assert states(done(signature=Signature(state=state, identity="me")))["signature"] == expected


def test_an_uncertified_artifact_without_a_word_fails_all_the_same() -> None:
    manifest = replace(sample_manifest(), status="uncertified", reasons=())
    assert states(done(manifest=manifest))["certified"] == "failure"


def test_what_was_not_judged_is_an_error() -> None:
    suite = checked(error_junit(InfraError("no space left\nnext: make some")))
    (error,) = suite.iter("error")
    assert (error.attrib["type"], error.attrib["message"]) == ("InfraError", "no space left")


def test_a_servers_log_cannot_break_the_document() -> None:
    refusal = Refusal(gate="start", reason_class="died", text="\x1b[31m<b> & \x00 \ud800 ]]>")
    suite = checked(junit_text(done(level="accuracy", reasons=(refusal,))))
    (failure,) = suite.iter("failure")
    assert failure.attrib["message"] == "\ufffd[31m<b> & \ufffd \ufffd ]]>"
