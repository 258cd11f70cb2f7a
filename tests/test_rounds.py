"""The inner loop over scripted roles: what becomes of a candidate, and that a round never raises for one."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from loop_fakes import LIMIT, WRONG_TOKENS, FakeEvaluator, Library, make_team, seed_checkpoint, small_spec

from vibeserve.agents import Assembled, Implementation, Review, Reviewed
from vibeserve.agents.playbook import PlaybookPlanner
from vibeserve.core.nouns import Outcome, Proposal, Refusal
from vibeserve.errors import ContractError, InfraError, RefusedError, ServerError
from vibeserve.roles.evaluator import Series
from vibeserve.rounds import (
    Checkpoint,
    Ground,
    RoundResult,
    Team,
    count_lines,
    guards_of,
    implied_guards,
    origin_of,
    run_round,
)
from vibeserve.spec import Goal


@dataclass
class Rig:
    """A library with one card that triples the speed, a team, and round 0."""

    root: Path
    spec: Any = field(default_factory=lambda: small_spec(attempts=1))

    def __post_init__(self) -> None:
        self.library = Library(self.root)
        self.library.add("card", parameters={"block": LIMIT}, relieves=["prefill"], expected_factor=3.0)
        self.team: Team = make_team(self.library, self.root / "run", spec=self.spec)
        self.incumbent: Checkpoint = seed_checkpoint(self.team, self.library)

    @property
    def bench(self) -> Any:
        return self.team.bench

    @property
    def judge(self) -> Any:
        return self.team.judge

    @property
    def evaluator(self) -> Any:
        return self.team.evaluator

    def proposal(self) -> Proposal:
        proposal = PlaybookPlanner().propose(self.library.state())
        assert proposal is not None
        return proposal

    def run(self, proposal: Proposal | None = None, *, seed_floor: float = 0.01) -> RoundResult:
        return run_round(
            self.team, proposal or self.proposal(), number=1, state=self.library.state(),
            ground=Ground(parent=self.incumbent, incumbent=self.incumbent, seed_floor=seed_floor),
        )  # fmt: skip

    def assert_nothing_runs(self) -> None:
        assert all(server.num_stops > 0 for server in self.bench.servers)


@pytest.fixture
def make_rig(tmp_path: Path) -> Callable[..., Rig]:
    def make(**budget: Any) -> Rig:
        return Rig(tmp_path, spec=small_spec(**{"attempts": 1, **budget}))

    return make


@pytest.fixture
def rig(make_rig: Callable[..., Rig]) -> Rig:
    return make_rig()


def died(name: str, outcome: str = "died") -> ServerError:
    return ServerError(name, outcome=outcome, detail="exit status -11", log_tail="Segmentation fault")


def test_a_faster_candidate_is_accepted_and_becomes_a_checkpoint(rig: Rig) -> None:
    result = rig.run()
    record, checkpoint = result.record, result.checkpoint
    assert (record.outcome, record.number, record.attempts) == (Outcome.ACCEPTED, 1, 1)
    assert record.reason.startswith("headline: output_throughput x3.0")
    assert record.metrics["candidate"]["output_throughput"] == pytest.approx(300, rel=0.01)
    assert record.metrics["incumbent"]["output_throughput"] == pytest.approx(100, rel=0.01)
    assert checkpoint is not None
    assert checkpoint.assembled.components == ("card",)
    assert checkpoint.assembled.parameters == {"block": 8, "max_num_seqs": 1}
    assert checkpoint.candidate.origin == "component:card"
    assert rig.team.store.refs("run-1") == {"run-1/r01a1": checkpoint.candidate.commit}
    assert rig.evaluator.compared == [("r01a1", "r00a1")]
    rig.assert_nothing_runs()


def test_a_candidate_that_is_not_faster_is_rejected_and_no_checkpoint(rig: Rig) -> None:
    result = rig.run(seed_floor=9.0)
    assert (result.record.outcome, result.checkpoint) == (Outcome.REJECTED, None)
    assert result.record.reason.startswith("tie: output_throughput")
    assert not result.record.is_refused


def test_an_adopted_incumbent_has_a_noise_floor_of_its_own(rig: Rig) -> None:
    """The serial seed's floor says nothing about a runtime that serves many requests at once."""
    rig.incumbent = replace(rig.incumbent, assembled=Assembled(components=("other",)))
    record = rig.run(seed_floor=9.0).record
    assert record.outcome is Outcome.ACCEPTED
    assert record.decision is not None and 0 < record.decision.noise_floor < 0.01


def test_a_refused_candidate_keeps_its_numbers_and_is_never_ranked(rig: Rig) -> None:
    rig.judge.judged["r01a1"] = (WRONG_TOKENS,)
    result = rig.run()
    assert (result.record.outcome, result.checkpoint) == (Outcome.REJECTED, None)
    assert result.record.reason == "refused: accuracy/wrong_tokens: top-1 agreement 0.50"
    assert result.record.is_refused
    assert result.record.metrics["candidate"]["output_throughput"] == pytest.approx(300, rel=0.01)
    assert result.record.decision is not None and result.record.decision.accepted
    assert set(result.series) == {"r01a1", "r00a1"}


def test_one_whose_windows_are_saved_up_for_is_refused(rig: Rig) -> None:
    text = "3 of 900 outputs came in the warm-ups"
    rig.evaluator.refused["r01a1"] = (Refusal(gate="timing", reason_class="held_back", text=text),)
    record = rig.run().record
    assert (record.outcome, record.reason) == (Outcome.REJECTED, f"refused: timing/held_back: {text}")


def test_one_that_screening_refuses_is_not_measured(rig: Rig) -> None:
    rig.judge.screened["r01a1"] = (Refusal(gate="scan", reason_class="engine_import", text="imports vllm"),)
    record = rig.run().record
    assert (record.outcome, record.reason) == (Outcome.REJECTED, "scan/engine_import: imports vllm")
    assert rig.evaluator.compared == []
    assert rig.judge.calls == ["screen r01a1"]


def test_a_target_s_own_broken_file_ends_the_run_and_blames_no_candidate(rig: Rig) -> None:
    rig.evaluator.failures["r01a1"] = ContractError("workload.py:7: IndexError: list index out of range")
    with pytest.raises(ContractError, match=r"workload\.py:7: IndexError"):
        rig.run()
    rig.assert_nothing_runs()


@pytest.mark.parametrize(
    ("reason_class", "outcome"),
    [("died", Outcome.CRASHED), ("build_failed", Outcome.CRASHED), ("timed_out", Outcome.TIMED_OUT)],
)
def test_one_that_does_not_start_crashed_or_timed_out(rig: Rig, reason_class: str, outcome: Outcome) -> None:
    rig.judge.screened["r01a1"] = (Refusal(gate="start", reason_class=reason_class, text="no port"),)
    assert rig.run().record.outcome is outcome


@pytest.mark.parametrize(("server_outcome", "outcome"), [("died", Outcome.CRASHED), ("timed_out", Outcome.TIMED_OUT)])
def test_one_that_dies_under_load_is_an_outcome(rig: Rig, server_outcome: str, outcome: Outcome) -> None:
    rig.evaluator.failures["r01a1"] = died("r01a1", server_outcome)
    record = rig.run().record
    assert (record.outcome, record.reason) == (outcome, f"server 'r01a1' {server_outcome}: exit status -11")
    assert record.verdict is not None
    assert record.verdict.refusals[0].gate == "serving"
    assert "Segmentation fault" in record.verdict.refusals[0].text
    rig.assert_nothing_runs()


def test_a_machine_that_fails_is_no_verdict(rig: Rig) -> None:
    rig.evaluator.failures["r01a1"] = InfraError("load generator 'r01a1' ended with 1\nmore")
    result = rig.run()
    assert (result.record.outcome, result.record.reason) == (Outcome.INFRA, "load generator 'r01a1' ended with 1")
    assert result.record.verdict is None
    assert result.checkpoint is None
    rig.assert_nothing_runs()


@pytest.mark.parametrize("where", ["failures", "build_failures"])
def test_an_incumbent_that_fails_is_the_machines_doing(rig: Rig, where: str) -> None:
    """It passed every gate before; the candidate beside it is not to blame."""
    getattr(rig.bench, where)["r00a1"] = died("r00a1")
    record = rig.run().record
    assert (record.outcome, record.verdict) == (Outcome.INFRA, None)
    rig.assert_nothing_runs()


def test_components_that_do_not_go_together_are_refused(rig: Rig) -> None:
    record = rig.run(replace(rig.proposal(), parameters={"block": 1000})).record
    assert (record.outcome, record.reason) == (Outcome.REJECTED, "the parameters do not fit the components")
    assert record.verdict is not None
    assert record.verdict.refusals[0].reason_class == "invalid_proposal"


def test_a_workspace_that_no_checkpoint_can_hold_is_refused(rig: Rig) -> None:
    class Linker:
        origin = "agent:test"

        def implement(self, proposal: Proposal, given: Implementation) -> None:
            given.workspace.mkdir(parents=True)
            (given.workspace / "model.py").symlink_to("/etc/passwd")

        def revise(self, *_: Any, **__: Any) -> None:
            return None

    rig.team.implementer = Linker()  # type: ignore[assignment]
    record = rig.run().record
    assert (record.outcome, record.candidate) == (Outcome.REJECTED, None)
    assert record.reason.startswith("model.py is a symbolic link to /etc/passwd")
    assert record.is_refused


def test_an_agents_refusal_is_added_and_cannot_be_outweighed(rig: Rig) -> None:
    class Strict:
        def review(self, review: Review) -> Reviewed:
            assert review.verdict.passed and review.decision is not None and review.decision.accepted
            assert "+" in review.patch
            unclear = Refusal(gate="review", reason_class="unclear", text=f"{review.proposal.card} is not explained")
            return Reviewed(refusals=(unclear,))

    rig.team.reviewer = Strict()
    record = rig.run().record
    assert (record.outcome, record.reason) == (Outcome.REJECTED, "refused: review/unclear: card is not explained")


def test_an_agent_is_credited_with_what_it_wrote(rig: Rig) -> None:
    rig.team.implementer.origin = "agent:test/model"  # type: ignore[misc]
    checkpoint = rig.run().checkpoint
    assert checkpoint is not None
    assert checkpoint.candidate.origin == "agent:test/model"
    assert origin_of(None) == "scaffold"
    assert origin_of(replace(rig.proposal(), variants=({},))) == "tuning"


# -- attempts


def test_a_refused_candidate_is_revised_and_both_attempts_are_kept(make_rig: Callable[..., Rig]) -> None:
    rig = make_rig(attempts=2)
    rig.judge.judged["r01a1"] = (WRONG_TOKENS,)
    result = rig.run()
    record = result.record
    assert (record.outcome, record.attempts) == (Outcome.ACCEPTED, 2)
    assert record.proposal is not None and record.proposal.parameters["block"] == 4
    (earlier,) = record.refused_attempts
    assert (earlier.outcome, earlier.proposal.parameters["block"]) == (Outcome.REJECTED, 8)
    assert earlier.verdict is not None and earlier.verdict.refusals == (WRONG_TOKENS,)
    assert earlier.metrics["candidate"]["output_throughput"] > 0
    assert result.checkpoint is not None and result.checkpoint.candidate.candidate_id == "r01a2"
    assert set(rig.team.store.refs("run-1")) == {"run-1/r01a1", "run-1/r01a2"}


def test_attempts_end_with_the_budget_and_never_repeat_a_setting(make_rig: Callable[..., Rig]) -> None:
    rig = make_rig(attempts=3)
    for attempt in (1, 2, 3):
        rig.judge.judged[f"r01a{attempt}"] = (WRONG_TOKENS,)
    record = rig.run().record
    assert (record.outcome, record.attempts) == (Outcome.REJECTED, 3)
    blocks = [attempt.proposal.parameters["block"] for attempt in record.refused_attempts]
    assert record.proposal is not None
    assert [*blocks, record.proposal.parameters["block"]] == [8, 4, 16]


def test_a_card_without_another_setting_is_given_up_before_the_budget_is(make_rig: Callable[..., Rig]) -> None:
    rig = make_rig(attempts=9)
    for attempt in range(1, 10):
        rig.judge.judged[f"r01a{attempt}"] = (WRONG_TOKENS,)
    assert rig.run().record.attempts == 3


@pytest.mark.parametrize("failure", [InfraError("disk full"), None])
def test_what_is_not_refused_is_not_attempted_again(make_rig: Callable[..., Rig], failure: Exception | None) -> None:
    rig = make_rig(attempts=2)
    if failure is not None:
        rig.evaluator.failures["r01a1"] = failure
    record = rig.run(seed_floor=9.0).record
    assert record.attempts == 1
    assert record.refused_attempts == ()


# -- tuning


def tuning(rig: Rig) -> Proposal:
    state = rig.library.state("card", parameters={"block": 8, "max_num_seqs": 1})
    proposal = PlaybookPlanner().propose(state)
    assert proposal is not None and len(proposal.variants) == 2
    return proposal


def test_variants_are_halved_and_the_best_one_is_offered(rig: Rig) -> None:
    result = rig.run(tuning(rig))
    assert rig.evaluator.halved == [("r01a1v0", "r01a1v1")]
    assert result.record.proposal is not None
    assert result.record.proposal.parameters == {"block": 16, "max_num_seqs": 1}
    assert result.record.candidate is not None and result.record.candidate.origin == "tuning"
    rig.assert_nothing_runs()


def test_variants_that_do_not_start_or_are_refused_are_left_out(rig: Rig) -> None:
    rig.bench.failures["r01a1v1"] = died("r01a1v1")
    assert rig.run(tuning(rig)).record.outcome is Outcome.ACCEPTED
    assert rig.evaluator.halved == [("r01a1v0",)]
    rig.bench.build_failures["r01a1v0"] = RefusedError("service.yaml is refused")
    record = rig.run(tuning(rig)).record
    assert (record.outcome, record.reason) == (Outcome.CRASHED, "server 'r01a1' died: no variant starts")


# -- small things


def test_goals_with_limits_guard_the_decision(make_rig: Callable[..., Rig]) -> None:
    rig = make_rig()
    rig.spec.goals += [
        Goal(metric="peak_memory", max_gib=0.5), Goal(metric="ttft_p50", max_ms=50.0),
        Goal(metric="request_throughput", min_per_s=2.0), Goal(metric="tpot_p50", min_ratio=1.0, against="naive"),
        Goal(metric="e2el_p50", load="c1", max_ms=1.0),
    ]  # fmt: skip
    bounds = [(guard.metric.name, guard.max_value, guard.min_value) for guard in guards_of(rig.team)]
    assert bounds == [("peak_memory", 0.5, None), ("ttft_p50", 0.05, None), ("request_throughput", None, 2.0)]
    # the incumbent breaks the bound on memory just as far: that is no reason against the candidate
    assert rig.run().record.outcome is Outcome.ACCEPTED


def test_a_latency_is_not_bought_with_another_one(make_rig: Callable[..., Rig]) -> None:
    """Tokens that are held back and then sent fast: TPOT is three times better, and TTFT so much worse."""
    rig = make_rig()
    rig.spec.goals[:] = [Goal(metric="tpot_p50", min_ratio=1.5, against="naive")]
    rig.evaluator.scaled["r01a1"] = {"ttft_p50": 5.0}
    record = rig.run().record
    assert record.outcome is Outcome.REJECTED
    assert re.fullmatch(r"guard: ttft_p50 0\.01\d+ s \(max 0\.01\d+\), incumbent 0\.0\d+", record.reason)


def test_a_latency_that_costs_no_other_one_is_a_gain(make_rig: Callable[..., Rig]) -> None:
    rig = make_rig()
    rig.spec.goals[:] = [Goal(metric="tpot_p50", min_ratio=1.5, against="naive")]
    assert rig.run().record.outcome is Outcome.ACCEPTED


def test_a_trade_that_a_goal_speaks_of_is_the_goals_to_bound(make_rig: Callable[..., Rig]) -> None:
    rig = make_rig()
    rig.spec.goals[:] = [
        Goal(metric="tpot_p50", min_ratio=1.5, against="naive"), Goal(metric="ttft_p99", max_ms=100.0)
    ]  # fmt: skip
    assert [guard.metric.name for guard in implied_guards(rig.team, windows_of(rig))] == ["e2el_p50"]
    rig.spec.goals[:] = [Goal(metric="output_throughput", min_ratio=1.5, against="naive")]
    assert implied_guards(rig.team, windows_of(rig)) == [], "a throughput is bought with latency by right"


def windows_of(rig: Rig) -> Any:
    from vibeserve.roles.evaluator import Entrant

    rig.team.clock.declare("seed", factor=1.0)
    return rig.evaluator.compare([Entrant(name="seed", server=None)], num_pairs=3)["seed"]  # type: ignore[arg-type]


def test_lines_of_sources_are_counted_whatever_their_bytes(tmp_path: Path) -> None:
    (tmp_path / "runtime/native").mkdir(parents=True)
    (tmp_path / "runtime/model.py").write_text("a\nb\n")
    (tmp_path / "runtime/native/k.cpp").write_bytes(b"// \xff\n")
    (tmp_path / "runtime/notes.txt").write_text("not counted\n")
    assert count_lines(tmp_path) == 3


class NoisyEvaluator(FakeEvaluator):
    """The candidate's first windows come from a machine that stumbles; `later` scales those of a second measurement."""

    later = 1.0

    def _series(self, name: str, num_pairs: int) -> Series:
        series = super()._series(name, num_pairs)
        if name != "r01a1":
            return series
        is_first = num_pairs == len(STUMBLES)
        factors = STUMBLES if is_first else (self.later,) * num_pairs
        windows = tuple(
            {key: value * factor for key, value in window.items()}
            for window, factor in zip(series.windows, factors, strict=True)
        )
        return replace(series, windows=windows)


STUMBLES = (0.2, 1.0, 0.9, 0.2, 1.0)
"""a gain of 2.7 in the median, and an interval that begins at 0.6"""


def noisy(rig: Rig, *, later: float) -> Rig:
    evaluator = NoisyEvaluator(rig.team.clock)  # type: ignore[arg-type]
    evaluator.later = later
    rig.team.evaluator = evaluator  # type: ignore[assignment]
    return rig


def test_an_undecided_candidate_is_measured_once_more_and_that_decides(rig: Rig) -> None:
    result = noisy(rig, later=1.0).run()
    record = result.record
    assert record.outcome is Outcome.ACCEPTED and record.decision is not None
    assert record.decision.headline is not None and record.decision.headline.ratio == pytest.approx(3.0, rel=0.01)
    assert "over 10 pairs" in record.reason and "; undecided at first: output_throughput x2.7" in record.reason
    assert rig.evaluator.compared == [("r01a1", "r00a1")] * 2
    assert {"r01a1-undecided", "r01a1"} <= set(result.series)
    rig.assert_nothing_runs()


def test_the_second_measurement_may_reject_what_the_first_flattered(rig: Rig) -> None:
    result = noisy(rig, later=0.3).run()
    assert (result.record.outcome, result.checkpoint) == (Outcome.REJECTED, None)
    assert result.record.reason.startswith("headline: output_throughput x0.9")


@pytest.mark.parametrize("why", ["spec", "time", "refused", "decided"])
def test_what_is_decided_refused_or_out_of_time_is_measured_once(rig: Rig, why: str) -> None:
    noisy(rig, later=1.0)
    if why == "spec":
        rig.spec.evaluation.measure_again = False
    elif why == "time":
        rig.team.search_left_s = lambda: -1.0
    elif why == "refused":
        rig.judge.judged["r01a1"] = (WRONG_TOKENS,)
    else:
        rig.team.evaluator = FakeEvaluator(rig.team.clock)  # type: ignore[assignment, arg-type]
    record = rig.run().record
    assert rig.evaluator.compared == [("r01a1", "r00a1")]
    assert "undecided" not in record.reason


class KilledError(BaseException):
    pass


@dataclass
class Killing:
    """A judge whose run is killed while it reads."""

    num_asked: int = 0
    is_killed: bool = True

    def review(self, review: Review) -> Reviewed:
        self.num_asked += 1
        if self.is_killed:
            raise KilledError
        return Reviewed()


def test_a_round_that_is_killed_in_its_review_is_not_measured_again(rig: Rig) -> None:
    reviewer = rig.team.reviewer = Killing()
    with pytest.raises(KilledError):
        rig.run()
    reviewer.is_killed = False
    result = rig.run()
    assert result.record.outcome is Outcome.ACCEPTED and result.checkpoint is not None
    assert result.record.metrics["candidate"]["output_throughput"] == pytest.approx(300, rel=0.01)
    assert {"r01a1", "r00a1"} == set(result.series) and result.series["r01a1"].windows
    assert rig.evaluator.compared == [("r01a1", "r00a1")], "measured once"
    assert rig.judge.calls.count("screen r01a1") == 1 and reviewer.num_asked == 2


def test_another_candidate_or_opponent_is_measured_anew(rig: Rig) -> None:
    reviewer = rig.team.reviewer = Killing()
    with pytest.raises(KilledError):
        rig.run()
    reviewer.is_killed = False
    other = rig.incumbent.candidate
    rig.incumbent = replace(rig.incumbent, candidate=replace(other, candidate_id="r00a2"))
    rig.team.clock.declare("r00a2", factor=1.0)
    rig.run()
    assert rig.evaluator.compared == [("r01a1", "r00a1"), ("r01a1", "r00a2")]
    rig.run(replace(rig.proposal(), parameters={"block": 4}))
    assert len(rig.evaluator.compared) == 3
