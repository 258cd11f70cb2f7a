"""The judge over a bundle that is no text: what it refuses, and whose fault a failing file is."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from numbers_target import CHECK, REFERENCE, numbers_bundle, numbers_ref

from vibeserve.accuracy import Judged, judge_records
from vibeserve.accuracy.documents import Job, JobKind, packed
from vibeserve.accuracy.judging import refusals_of
from vibeserve.accuracy.rescorer import run_job
from vibeserve.accuracy.scoring import sample
from vibeserve.contract import Pool, Record, Request
from vibeserve.core.documents import from_data, to_data
from vibeserve.errors import ContractError, InfraError
from vibeserve.modalities import Bundle

NUM_RECORDS = 8


def honest(bundle: Bundle, *, num: int = NUM_RECORDS) -> list[Record]:
    requests = islice(bundle.workload.requests(7, Pool.selection), num)
    return [served(request, [value / 2 for value in reversed(request.payload)]) for request in requests]


def served(request: Request, output: Any, *, sent_s: float = 0.0) -> Record:
    return Record(request=request, output=output, scheduled_s=sent_s, sent_s=sent_s, end_s=sent_s + 1.0)


def judge(folder: Path, records: Sequence[Record], *, limits: dict[str, float] | None = None) -> Judged:
    return judge_records(
        records, bundle=numbers_ref(folder, limits=limits), num_threads=1, max_replies=0, seed=0,
        run_dir=folder.parent / "run",
    )  # fmt: skip


def judge_here(bundle: Bundle, records: Sequence[Record]) -> dict[str, str]:
    """What the child and its parent find, without the cost of a process: class -> text."""
    job = Job(bundle=bundle.ref, kind=JobKind.RECORDS, records=tuple(from_json(packed(each)) for each in records))
    scores = run_job(job).scores
    assert scores is not None
    return {refusal.reason_class: refusal.text for refusal in refusals_of(scores)[0]}


def from_json(value: Any) -> Any:
    import json

    from vibeserve.client.records import to_json

    return json.loads(to_json(value))


@pytest.fixture
def bundle(tmp_path: Path) -> Bundle:
    return numbers_bundle(tmp_path / "numbers")


def test_right_outputs_pass_with_a_figure_for_every_limit(bundle: Bundle, tmp_path: Path) -> None:
    judged = judge(tmp_path / "numbers", honest(bundle))
    assert judged.refusals == ()
    assert judged.figures == {"error_max": 0.0, "error_mean": 0.0}
    assert judged.scores.num_offered == NUM_RECORDS == len(judged.scores.replies)


def test_one_wrong_output_among_right_ones_is_above_the_largest_that_is_allowed(bundle: Bundle, tmp_path: Path) -> None:
    first, *others = honest(bundle)
    wrong = replace(first, output=[value * 1.02 for value in first.output])
    judged = judge(tmp_path / "numbers", [wrong, *others])
    assert [(refusal.gate, refusal.reason_class) for refusal in judged.refusals] == [("accuracy", "wrong_error")]
    assert judged.refusals[0].text.startswith("error_max is 0.02, at most 0.01 is allowed (")


def test_a_targets_own_bounds_come_before_the_checks(bundle: Bundle, tmp_path: Path) -> None:
    folder, records = tmp_path / "numbers", honest(bundle)
    noisy = [replace(record, output=[value * 1.004 for value in record.output]) for record in records]
    assert judge(folder, noisy).refusals == ()
    texts = [refusal.text for refusal in judge(folder, noisy, limits={"error/mean": 0.001}).refusals]
    assert len(texts) == 1 and texts[0].startswith("error_mean is 0.004, at most 0.001 is allowed")
    (added,) = judge(folder, noisy, limits={"other/p99": 1.0}).refusals
    assert (added.reason_class, added.text) == ("missing_other", "no reply has a value of other, which is limited to 1")


@pytest.mark.parametrize(
    ("output", "expected"),
    [
        (None, "8 of 8 replies have no output: a finished reply has no output"),
        ([1.0], "8 of 8 replies have no error: another number of numbers"),
        ([math.nan] * 3, "8 of 8 replies have no error: 3 of 3 values are not finite numbers"),
    ],
    ids=["no output", "the check says why", "not a number"],
)
def test_missing_distances_refuse(bundle: Bundle, output: Any, expected: str) -> None:
    records = [
        replace(record, request=replace(record.request, payload=[1, 2, 3]), output=output) for record in honest(bundle)
    ]
    assert expected in judge_here(bundle, records).values()


def test_a_check_that_compares_nothing_refuses(tmp_path: Path) -> None:
    text = CHECK.replace("    if len", "    return []\n    if len")
    bundle = numbers_bundle(tmp_path / "numbers", check=text)
    found = judge_here(bundle, honest(bundle))
    assert found["missing_output"] == "8 of 8 replies have no output: compare gave no distance"
    assert "missing_error" in found


def test_requests_are_judged_alike_for_every_workload(bundle: Bundle, tmp_path: Path) -> None:
    first, second, *others = honest(bundle)
    failed = replace(first, output=None, error="HTTP 500: no")
    waiting = replace(second, output=None, error="cut", end_s=9.0)
    judged = judge(tmp_path / "numbers", [failed, waiting, *others])
    found = {refusal.reason_class: (refusal.gate, refusal.text) for refusal in judged.refusals}
    assert found["failed_requests"] == ("requests", "1 of 8 requests failed, such as selection-7-0: HTTP 500: no")
    assert found["stalled_requests"][1].startswith("selection-7-1 is in flight for more than 5.0 s")
    assert judged.scores.num_offered == 6


def test_without_a_finished_request_nothing_is_started_and_nothing_passes(bundle: Bundle, tmp_path: Path) -> None:
    for records in ([], [replace(record, error="cut", output=None) for record in honest(bundle)]):
        judged = judge(tmp_path / "numbers", records)
        assert {refusal.reason_class for refusal in judged.refusals} == {"missing_replies", "missing_scores"}
    assert not (tmp_path / "run").exists()


def test_one_output_for_different_requests_is_stale_where_it_is_not_right(tmp_path: Path) -> None:
    mild = CHECK.replace("bound=0.01", "bound=1e9").replace("bound=0.005", "bound=0.9")
    folder = tmp_path / "numbers"
    bundle = numbers_bundle(folder, check=mild)
    records = honest(bundle, num=40)
    first = records[0]
    asked = [value / 2 for value in reversed(first.output)]  # a quarter of what is sent would be right
    stale = [served(replace(each.request, payload=asked), first.output, sent_s=1.0) for each in records[1:6]]
    judged = judge(folder, [first, *stale, *records[6:]])
    (refusal,) = judged.refusals
    assert (refusal.gate, refusal.reason_class) == ("accuracy", "stale")
    assert refusal.text.startswith("5 of 40 replies repeat the output to an earlier, different request; the mean of")


def test_an_output_that_is_right_for_several_requests_may_come_again(tmp_path: Path) -> None:
    folder = tmp_path / "numbers"
    bundle = numbers_bundle(folder, reference=REFERENCE.replace("reversed(request.payload)", "[2.0, 4.0]"))
    records = [replace(record, output=[1.0, 2.0]) for record in honest(bundle)]
    assert judge(folder, records).refusals == ()


def test_findings_and_figures_of_the_check_are_the_judges(tmp_path: Path) -> None:
    text = (
        CHECK
        + """
from vibeserve.contract import Finding, Judgement


def inspect(records):
    return [Finding(gate="lengths", reason_class="short", text=f"{len(records)} records")]


def judge(replies):
    return Judgement(findings=(Finding(reason_class="odd", text="odd"),), figures={"num": len(replies), "bad": 1e999})
"""
    )
    bundle = numbers_bundle(tmp_path / "numbers", check=text)
    judged = judge(tmp_path / "numbers", honest(bundle))
    assert [refusal.feedback for refusal in judged.refusals] == ["lengths/short: 8 records", "accuracy/odd: odd"]
    assert judged.figures == {"error_max": 0.0, "error_mean": 0.0, "num": 8.0}


FAILING = {
    "compare raises": ("check", CHECK.replace("    if len", "    1 / 0\n    if len"), r"check\.py:10: ZeroDivision"),
    "compare gives floats": ("check", CHECK + "\ndef compare(*_):\n    return [0.0]\n", "compare gave a float"),
    "compare exits": ("check", CHECK.replace("    if len", "    raise SystemExit(0)\n    if len"), r"SystemExit: 0"),
    "run raises": ("reference", REFERENCE.replace("return [value", "return [None + value"), r"reference\.py:9: Type"),
    "load raises": ("reference", REFERENCE.replace("return Halves(", "return Halve("), r"reference\.py:13: NameError"),
    "no run": ("reference", REFERENCE.replace("def run", "def ran"), r"what load\(\) returns has no run"),
}  # fmt: skip


@pytest.mark.parametrize(("name", "text", "expected"), FAILING.values(), ids=FAILING.keys())
def test_what_a_targets_own_file_does_wrong_is_said_as_that(
    tmp_path: Path, name: str, text: str, expected: str
) -> None:
    folder = tmp_path / "numbers"
    bundle = numbers_bundle(folder, **{name: text})
    with pytest.raises(ContractError, match=expected):
        judge(folder, honest(bundle))


@pytest.mark.parametrize("name", ["compare", "score", "inspect"])
def test_what_nobody_can_read_refuses_the_server_and_does_not_end_the_run(tmp_path: Path, name: str) -> None:
    texts = {"check": CHECK, "reference": REFERENCE}
    if name == "score":
        score = "    def score(self, request, output):\n        sum(output)\n        return self.run(request)\n"
        texts["reference"] = REFERENCE.replace("\n\ndef load", f"\n{score}\n\ndef load")
    if name == "inspect":
        texts["check"] += (
            "\n\ndef inspect(records):\n    return [] if sum(sum(each.output) for each in records) else []\n"
        )
    folder = tmp_path / "numbers"
    bundle = numbers_bundle(folder, **texts)
    first, *others = honest(bundle)
    odd = replace(first, output=["many", "words", "here", "are", "no", "numbers"][: len(first.output)])
    refusals = judge(folder, [odd, *others]).refusals
    texts_found = " ".join(refusal.text for refusal in refusals)
    assert {refusal.reason_class for refusal in refusals} == (
        {"missing_output", "unreadable_output"} if name == "inspect" else {"missing_output"}
    )
    assert "a reply cannot be read (" in texts_found and "TypeError" in texts_found
    assert judge(folder, [first, *others]).refusals == ()


def test_a_child_that_dies_is_the_machines_doing(tmp_path: Path) -> None:
    folder = tmp_path / "numbers"
    bundle = numbers_bundle(folder, reference=REFERENCE + "\nimport os\n\n\ndef load(*_):\n    os._exit(9)\n")
    with pytest.raises(InfraError, match=r"re-scoring under the reference failed \(exit 9\)"):
        judge(folder, honest(bundle))


def test_a_child_that_answers_nothing_is_the_machines_doing(tmp_path: Path) -> None:
    folder = tmp_path / "numbers"
    bundle = numbers_bundle(folder, reference=REFERENCE + "\nimport os\n\n\ndef load(*_):\n    os._exit(0)\n")
    with pytest.raises(InfraError, match="re-scoring answered no document"):
        judge(folder, honest(bundle))


def test_what_a_file_prints_is_never_evidence(tmp_path: Path) -> None:
    folder = tmp_path / "numbers"
    shouting = REFERENCE.replace("        return [", '        print("{}", flush=True)\n        return [')
    bundle = numbers_bundle(folder, reference=shouting)
    assert judge(folder, honest(bundle)).refusals == ()
    assert "{}" in (tmp_path / "run/records.log").read_text()


def test_the_sample_holds_every_kind_of_request(tmp_path: Path) -> None:
    text = CHECK + '\n\ndef group(record):\n    return "long" if len(record.request.payload) == 6 else "short"\n'
    bundle = numbers_bundle(tmp_path / "numbers", check=text)
    records = honest(bundle, num=60)
    drawn = sample(bundle, records, max_replies=6, seed=5)
    assert len(drawn) == 6 and any(len(record.request.payload) == 6 for record in drawn)
    assert drawn == sample(bundle, records, max_replies=6, seed=5) != sample(bundle, records, max_replies=6, seed=6)
    assert len(sample(bundle, records, max_replies=0, seed=5)) == 60


def test_a_document_of_scores_is_read_back_as_it_is(bundle: Bundle, tmp_path: Path) -> None:
    scores = judge(tmp_path / "numbers", honest(bundle)).scores
    assert from_data(type(scores), to_data(scores)) == scores
