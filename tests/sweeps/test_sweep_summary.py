"""The table at the end of a sweep, and the events on the way."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from artifact_samples import package_sample, sample_manifest, sample_metric

from vibeserve.core.manifest import BaselineValue
from vibeserve.sweeps.documents import JobState, JobStatus
from vibeserve.sweeps.follow import Follower, event_line
from vibeserve.sweeps.summary import make_rows, quoted_baseline, ratio_text, table


def status(job: int, *overrides: str, **changes: Any) -> JobStatus:
    values = {"state": JobState.DONE, "exit_code": 0, "target": "sample"} | changes
    return JobStatus(job=job, overrides=("+target=sample", "budget=smoke", *overrides), **values)


def test_a_row_says_what_the_artifact_claims(tmp_path: Path) -> None:
    made = package_sample(tmp_path, sample_manifest()).path
    (row,) = make_rows([status(0, artifact=str(made.relative_to(tmp_path)))], project=tmp_path)
    assert (row.metric, row.load, row.value, row.unit, row.level) == (
        "output_throughput",
        "c8",
        120.0,
        "tok/s",
        "quick",
    )
    assert (row.baseline, row.baseline_class) == ("transformers_cb 5.24.0", "competent")
    assert ratio_text(row) == "1.71 [1.66, 1.78] transformers_cb 5.24.0"


def test_only_overrides_that_differ_are_shown(tmp_path: Path) -> None:
    rows = make_rows(
        [status(0, "search=greedy"), status(1, "search=random", "++search.pins.max_waiting=3")], project=tmp_path
    )
    assert [row.overrides for row in rows] == [("search=greedy",), ("search=random", "search.pins.max_waiting=3")]


def test_every_way_to_end_has_a_word(tmp_path: Path) -> None:
    statuses = [
        status(0), status(1, state=JobState.PRESENT), status(2, state=JobState.FAILED, exit_code=3),
        status(3, state=JobState.FAILED, exit_code=2), status(4, state=JobState.DIED, exit_code=5),
        status(5, state=JobState.INTERRUPTED, exit_code=130), status(6, state=JobState.NOT_STARTED, exit_code=130),
        status(7, state=JobState.PRESENT, exit_code=3),
    ]  # fmt: skip
    head, *cells = table(make_rows(statuses, project=tmp_path))
    assert head == ("job", "target", "overrides", "status", "headline", "ratio", "artifact")
    assert [row[3] for row in cells] == [
        "done", "done before", "refused", "bad spec", "died", "interrupted", "not started", "refused before",
    ]  # fmt: skip
    assert cells[0][4:] == ("-", "-", "-")


def test_an_artifact_that_is_gone_leaves_a_row_without_figures(tmp_path: Path) -> None:
    (row,) = make_rows([status(0, artifact="artifacts/sample/gone")], project=tmp_path)
    assert (row.status, row.value, row.ratio) == ("done", None, None)


def baseline(name: str, **changes: Any) -> BaselineValue:
    values = {"baseline_class": "competent", "version": "1", "ratio": 2.0} | changes
    return BaselineValue(name=name, **values)


def quoted(*rows: BaselineValue) -> str:
    from dataclasses import replace

    found = quoted_baseline(replace(sample_metric("output_throughput"), baselines=rows))
    return found.name if found else ""


def test_the_hardest_competent_baseline_of_the_same_bytes_is_quoted() -> None:
    easy, hard = baseline("easy", ratio=3.0), baseline("hard", ratio=1.2)
    other_bytes = baseline("int4", ratio=0.8, precision="any")
    naive = baseline("naive", ratio=0.9, baseline_class="naive")
    assert quoted(easy, hard, other_bytes, naive) == "hard"
    assert quoted(naive, baseline("absent", ratio=None)) == "naive"
    assert quoted(other_bytes) == ""


def test_a_naive_baseline_is_called_one(tmp_path: Path) -> None:
    from dataclasses import replace

    naive = replace(sample_metric("output_throughput"), baselines=(baseline("scaffold", baseline_class="naive"),))
    made = package_sample(tmp_path, sample_manifest(metrics=(naive,))).path
    (row,) = make_rows([status(0, artifact=str(made))], project=tmp_path)
    assert ratio_text(row) == "2.00 scaffold 1 (naive)"


def test_events_are_passed_on_once_and_whole(tmp_path: Path) -> None:
    told: list[tuple[int, str]] = []
    follower = Follower(tmp_path, tell=lambda job, event: told.append((job, event["text"])))
    follower.look()
    (tmp_path / "10").mkdir()
    (tmp_path / "2").mkdir()
    with (tmp_path / "10/events.jsonl").open("a") as stream:
        stream.write(json.dumps({"at_s": 1.0, "stage": "plan", "text": "one"}) + '\n{"at_s": 2.0, "stage"')
        stream.flush()
        follower.look()
        assert told == [(10, "one")]
        stream.write(': "plan", "text": "two"}\n')
        stream.flush()
        (tmp_path / "2/events.jsonl").write_text(json.dumps({"at_s": 0, "stage": "plan", "text": "other"}) + "\n")
        follower.look()
        follower.look()
    assert told == [(10, "one"), (2, "other"), (10, "two")]
    assert event_line({"at_s": 75.3, "stage": "round 1", "text": "accepted"}) == "01:15 round 1      accepted"
