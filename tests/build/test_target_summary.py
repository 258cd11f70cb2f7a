"""What a finished run says in text."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from artifact_samples import sample_manifest, sample_metric

from vibeserve.build.target import RunSummary, _concluded, describe
from vibeserve.build.told import broken_invariant, search_lines
from vibeserve.config import compose_spec
from vibeserve.core.manifest import AuditResult, BaselineValue, GoalResult, RoundEntry, Selection
from vibeserve.core.nouns import Outcome, Refusal
from vibeserve.core.paths import data_dir
from vibeserve.errors import InfraError
from vibeserve.hardware import probe
from vibeserve.journal import Journal
from vibeserve.plan.unmeasured import compile_unmeasured
from vibeserve.spec import Spec
from vibeserve.synthesis import SEARCH_ENDED


def test_the_headline_every_baseline_and_every_goal_are_told() -> None:
    summary = RunSummary(
        artifact="artifacts/sample/0123456789abcdef", latest="artifacts/sample/latest", manifest=sample_manifest()
    )
    assert str(summary).splitlines() == [
        "certified   sample 0123456789abcdef, level quick, assembled",
        "headline    output_throughput at c8: 120 tok/s",
        "            transformers_cb 5.24.0 (competent, same_bytes): 70, ratio 1.714 [1.663, 1.783]",
        "            vllm (competent, any): skipped, not installed",
        "            one start of each: what differs between two starts is not in the interval",
        "goal        output_throughput at c8 against competent: ratio 1.710: met",
        "artifact    artifacts/sample/0123456789abcdef",
        "next        vibeserve serve artifacts/sample/latest",
    ]


def test_reasons_and_what_is_missing_are_told() -> None:
    reason = Refusal(gate="baseline", reason_class="missing_baseline", text="required baseline 'a' was not measured")
    goals = (
        GoalResult(metric="ttft_p50", load="c8", against="naive", ratio=None, ci_low=None, met=False),
        GoalResult(
            metric="peak_memory",
            load="c8",
            against="",
            ratio=None,
            ci_low=None,
            met=False,
            value=2.5,
            limit=2,
            unit="GiB",
        ),
        GoalResult(metric="ttft_p99", load="c8", against="", ratio=None, ci_low=None, met=False, limit=50, unit="ms"),
    )
    screened = BaselineValue(
        name="a", baseline_class="naive", version="1", value=9.0, ratio=13.3333, state="screened", note="one window"
    )
    metric = replace(sample_metric("output_throughput"), baselines=(screened,))
    lines = describe(sample_manifest(status="uncertified", reasons=(reason,), goals=goals, metrics=(metric,)))
    assert lines[2:] == [
        "            a 1 (naive, same_bytes): 9, ratio 13.333, screened",
        "goal        ttft_p50 at c8 against naive: too few (p50 needs 5 samples, the slowest not failed): missed",
        "goal        peak_memory at c8: 2.5 GiB, limit 2: missed",
        "goal        ttft_p99 at c8: too few (p99 needs 662 samples, the slowest not failed), limit 50: missed",
        "refused     baseline/missing_baseline: required baseline 'a' was not measured",
    ]


def test_an_interval_of_one_start_says_so() -> None:
    told = "            one start of each: what differs between two starts is not in the interval"
    assert told in describe(sample_manifest())
    assert told not in describe(sample_manifest(level="standard"))


def test_a_run_that_measured_nothing_has_no_headline() -> None:
    lines = describe(sample_manifest(status="uncertified", metrics=(), goals=()))
    assert lines == ["uncertified sample 0123456789abcdef, level quick, assembled"]


def test_audits_and_the_number_that_chose_the_winner_are_lines() -> None:
    audits = (AuditResult(name="soak", passed=True, text="steady"), AuditResult(name="possible", passed=False, text=""))
    selection = Selection(
        metric="output_throughput", unit="tok/s", load="c8", selected=150.0, certified=120.0, ratio=0.8
    )
    lines = describe(sample_manifest(audits=audits, selection=selection, candidates_tried=9))
    assert "audits      1 of 2 passed; not possible" in lines
    told = "output_throughput at c8: 150 tok/s in the search, certified 120 (x0.800)"
    assert f"selection   {told}; 9 candidates tried" in lines


def round_of(number: int, outcome: Outcome) -> RoundEntry:
    return RoundEntry(number=number, outcome=outcome, reason="")


def search_of(journal: Path, *outcomes: Outcome, baseline: str = "transformers") -> list[str]:
    plan = compile_unmeasured(compose_spec(["+target=tiny_cpu"], cwd=data_dir("targets").parent), facts=probe())
    rounds = tuple(round_of(number, outcome) for number, outcome in enumerate(outcomes))
    row = BaselineValue(name=baseline, baseline_class="naive", version="1", value=9.0, ratio=1.01)
    metric = replace(sample_metric("output_throughput"), baselines=(row,))
    return list(search_lines(plan, sample_manifest(rounds=rounds, metrics=(metric,)), journal=journal))


def test_a_search_that_tried_nothing_says_so_and_why(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    with Journal.open(path) as journal:
        journal.append(
            SEARCH_ENDED, {"why": "budget: 22 s are left before certification and a round takes about 116 s"}
        )
        journal.append("packaged")
    assert search_of(path, Outcome.BASELINE) == [
        "no round was tried: 22 s are left before certification and a round takes about 116 s; the winner is round 0's "
        "runtime (budget.wall_s is 900; a larger one has time)"
    ]
    # the state may be gone, the artifact is not
    assert search_of(tmp_path / "gone", Outcome.BASELINE) == ["no round was tried; the winner is round 0's runtime"]
    assert search_of(path, Outcome.BASELINE, Outcome.INFRA) == [
        "none of 1 rounds was accepted; the winner is round 0's runtime"
    ]
    assert search_of(path, Outcome.BASELINE, Outcome.ACCEPTED, baseline="scaffold") == []


def test_a_ratio_of_a_runtime_to_itself_is_called_that(tmp_path: Path) -> None:
    lines = search_of(tmp_path / "gone", Outcome.BASELINE, baseline="scaffold")
    told = "baseline 'scaffold' is that runtime too: its ratio compares it with itself, and shows the noise"
    assert lines[1:] == [told]
    summary = RunSummary(artifact="a", latest="l", manifest=sample_manifest(), search=tuple(lines))
    assert [line for line in str(summary).splitlines() if line.startswith("search ")][1] == f"search      {told}"


def test_a_search_whose_state_contradicted_itself_ends_the_command_with_that(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    with Journal.open(path) as journal:
        journal.append(SEARCH_ENDED, {"why": "plateau: 3 rounds in a row without a gain"})
        assert broken_invariant(path) == ""
        journal.append(SEARCH_ENDED, {"why": "the search's state contradicts itself: r1", "incumbent": "r00a1"})
    assert broken_invariant(tmp_path / "gone") == ""
    summary = RunSummary(artifact="a", latest="l", manifest=sample_manifest(), fault=broken_invariant(path))
    with pytest.raises(InfraError, match="the search's state contradicts itself: r1") as caught:
        _concluded(summary, spec=Spec())
    assert caught.value.exit_code == 5 and "certified   sample" in str(caught.value)
