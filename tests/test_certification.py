"""Certification over scripted servers: what is measured, what is left out, whose failure is whose, what is kept."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from load_samples import PIECES, reply, text_bundle
from loop_fakes import WRONG_TOKENS, FakeJudge, FakeServer, RecordingLease

from vibeserve.accuracy import Scores
from vibeserve.certification import Certification, Certifier, Extent, certify_extent
from vibeserve.contract import Distance, ReplyDistances
from vibeserve.core.documents import from_data, to_data
from vibeserve.core.manifest import BaselineValue
from vibeserve.core.nouns import METRICS, Refusal, Verdict
from vibeserve.core.spent import Spent
from vibeserve.errors import InfraError, ServerError
from vibeserve.live_audits import Audited
from vibeserve.live_audits.nouns import audited, not_applicable
from vibeserve.plan import Ceiling
from vibeserve.plan.nouns import DECLARED, Roof
from vibeserve.progress import QuietProgress
from vibeserve.results import WINNER
from vibeserve.rivals import Rival
from vibeserve.roles.evaluator import Entrant, Series
from vibeserve.schedules import SCHEDULES, AuditScope
from vibeserve.service import Launch
from vibeserve.spec import Evaluation, Goal, Level, Load, Spec, Workload

EXTENT = Extent(loads=("c4",), num_starts=1, num_pairs=3, window_s=1.0, warmup_s=0.1, screen_window_s=1.0)


@dataclass
class FakeBench:
    """Serves winner and rivals at once; `failures` maps a name to what its start, or its warm-up, raises."""

    spec: Spec
    failures: dict[str, Exception] = field(default_factory=dict)
    cold: dict[str, Exception] = field(default_factory=dict)
    servers: list[FakeServer] = field(default_factory=list)
    bundle: Any = field(default_factory=text_bundle)
    metrics: Any = field(default_factory=lambda: METRICS)
    lease: RecordingLease = field(default_factory=RecordingLease)
    spent: Spent = field(default_factory=Spent)
    ceilings: tuple[Ceiling, ...] = ()
    started_measuring: list[bool] = field(default_factory=list)
    """of every start: whether the devices were held for measuring"""

    @property
    def plan(self) -> Any:
        return SimpleNamespace(
            spec=self.spec, ceilings=self.ceilings, engine_cpus=(0,), roof=Roof(bandwidth_gb_s=10.0)
        )

    def start(self, launch: Launch, *, dialect: str, model: str) -> FakeServer:
        return self._up(launch.name)

    def serve(self, workspace: Path, *, name: str) -> FakeServer:
        return self._up(name)

    def warm_up(self, server: FakeServer, *, dialect: str, model: str) -> None:
        if server.name in self.cold:
            raise self.cold[server.name]

    def _up(self, name: str) -> FakeServer:
        self.started_measuring.append(self.lease.is_exclusive)
        if name in self.failures:
            raise self.failures[name]
        self.servers.append(FakeServer(name, startup_s=float(len(self.servers) + 1)))
        return self.servers[-1]


@dataclass
class FakeEvaluator:
    """Streams `speeds[name]` words a second to every entrant; `failures` maps a name to what comparing it raises."""

    speeds: dict[str, int]
    failures: dict[str, Exception] = field(default_factory=dict)
    compared: list[tuple[str, tuple[str, ...], int]] = field(default_factory=list)
    refused: tuple[Refusal, ...] = ()
    """what the winner's windows show by their timing, on every start"""

    def compare(self, entrants: Sequence[Entrant], *, load: str, num_pairs: int, **_: Any) -> dict[str, Series]:
        self.compared.append((load, tuple(entrant.name for entrant in entrants), num_pairs))
        for entrant in entrants:
            if entrant.name in self.failures:
                raise self.failures[entrant.name]
        return {e.name: self._series(e.name, num_pairs) for e in entrants}

    def _series(self, name: str, num_pairs: int) -> Series:
        speed, call = self.speeds[name], len(self.compared)
        windows = tuple(
            {"output_throughput": float(speed), "peak_memory": 1.0, "start_s": float(n), "end_s": n + 1.0}
            for n in range(num_pairs)
        )
        whole = reply([(0.5, PIECES[0])] * speed)
        replies = [whole, replace(whole, error="cut"), replace(whole, error="HTTP 500")]
        named = tuple(
            replace(each, request=replace(each.request, request_id=f"{name}-{call}-{n}"))
            for n, each in enumerate(replies)
        )
        refusals = self.refused if name == WINNER else ()
        return Series(name=name, windows=windows, replies=named, refusals=refusals)


@dataclass
class FakeAuditor:
    """Answers `found`, and keeps what it was asked for and how the devices were held."""

    lease: RecordingLease
    found: list[Audited] = field(default_factory=list)
    error: Exception | None = None
    asked: list[tuple[AuditScope, float]] = field(default_factory=list)
    held: list[bool] = field(default_factory=list)

    def run(self, workspace: Path, *, scope: AuditScope, soak_s: float, name: str) -> list[Audited]:
        self.asked.append((scope, soak_s))
        self.held.append(self.lease.is_exclusive)
        if self.error is not None:
            raise self.error
        return self.found


def rival(name: str, *, is_required: bool = True) -> Rival:
    return Rival(
        name=name, baseline_class="competent", precision="same_bytes", version="1", flags=(), is_required=is_required,
        launch=Launch(name=name, argv=("true",), workdir=Path("/"), model_dir=None), dialect="vllm", model="",
    )  # fmt: skip


@dataclass
class Rig:
    speeds: dict[str, int] = field(default_factory=lambda: {WINNER: 8, "a": 4, "b": 4})

    def __post_init__(self) -> None:
        loads = {"c1": Load(concurrency=1), "c4": Load(concurrency=4), "c8": Load(concurrency=8)}
        spec = Spec(workload=Workload(loads=loads, headline_load="c4"))
        spec.goals = [Goal(metric="output_throughput", min_ratio=1.5, against="competent")]
        self.bench: Any = FakeBench(spec)
        self.judge: Any = FakeJudge(self.bench)
        self.evaluator: Any = FakeEvaluator(self.speeds)
        self.auditor: Any = FakeAuditor(self.bench.lease)
        self.progress = QuietProgress()

    def certify(self, *rivals: Rival, skipped: Sequence[BaselineValue] = (), extent: Extent = EXTENT) -> Certification:
        certifier = Certifier(self.bench, self.judge, self.evaluator, progress=self.progress, auditor=self.auditor)
        return certifier.certify(Path("/workspace"), rivals=rivals, skipped=skipped, extent=extent)

    def assert_nothing_runs(self) -> None:
        assert self.bench.servers
        assert all(server.num_stops > 0 for server in self.bench.servers)


@pytest.fixture
def rig() -> Rig:
    return Rig()


def headline_of(result: Certification) -> dict[str, BaselineValue]:
    return {row.name: row for row in result.metrics[0].baselines}


def test_the_winner_is_measured_beside_every_rival(rig: Rig) -> None:
    result = rig.certify(rival("a"), rival("b"))
    assert rig.evaluator.compared == [("c4", (WINNER, "a", "b"), 3)]
    assert result.verdict.passed
    assert {name: row.ratio for name, row in headline_of(result).items()} == pytest.approx({"a": 2.0, "b": 2.0})
    assert result.num_requests == 3
    rig.assert_nothing_runs()


def test_the_devices_are_held_from_the_first_start_to_the_last_window_and_not_while_replies_are_judged(
    rig: Rig,
) -> None:
    judged: list[bool] = []
    verdict, own_tests = rig.judge.verdict, rig.judge.own_tests

    def judging(*arguments: Any, **more: Any) -> Any:
        judged.append(rig.bench.lease.is_exclusive)
        return verdict(*arguments, **more)

    def testing(workspace: Path) -> Any:
        judged.append(rig.bench.lease.is_exclusive)
        return own_tests(workspace)

    rig.judge.verdict, rig.judge.own_tests = judging, testing
    rig.certify(rival("a"), rival("b", is_required=False), extent=replace(EXTENT, num_starts=2))
    assert rig.bench.lease.granted == [("exclusive", "certification")]
    assert len(rig.bench.started_measuring) == 8 and all(rig.bench.started_measuring)
    assert judged == [False, False]


def test_every_start_is_fresh_and_has_a_seed_of_its_own(rig: Rig) -> None:
    result = rig.certify(rival("a"), extent=replace(EXTENT, num_starts=3, loads=("c4", "c1")))
    assert [load for load, _, _ in rig.evaluator.compared] == ["c4", "c1"] * 3
    assert [server.name for server in rig.bench.servers] == [WINNER, "a"] * 3
    assert result.golden is not None
    assert set(result.golden.seeds) == {f"{load}/{start}" for load in ("c4", "c1") for start in range(3)}
    assert len(set(result.golden.seeds.values())) == 6
    startup = next(metric for metric in result.metrics if metric.name == "startup")
    assert startup.candidate == 5.0, "the slowest of the starts"
    rig.assert_nothing_runs()


def test_the_loads_of_the_extent_are_the_plans_headline_first() -> None:
    rig = Rig()
    plan: Any = SimpleNamespace(spec=rig.bench.spec, schedule=SCHEDULES[Level.standard])
    assert certify_extent(plan).loads == ("c4",)
    rig.bench.spec.evaluation = Evaluation(loads="all")
    extent = certify_extent(plan)
    assert extent.loads == ("c4", "c1", "c8")
    assert (extent.num_starts, extent.num_pairs, extent.window_s) == (3, 3, 20.0)


def test_an_optional_rival_far_behind_is_measured_once(rig: Rig) -> None:
    rig.speeds |= {"slow": 2, "near": 3}
    result = rig.certify(rival("a"), rival("slow", is_required=False), rival("near", is_required=False))
    assert rig.evaluator.compared[:3] == [("c4", ("a",), 3), ("c4", ("slow",), 3), ("c4", ("near",), 3)]
    assert rig.evaluator.compared[3] == ("c4", (WINNER, "a", "near"), 3)
    rows = headline_of(result)
    assert (rows["slow"].state, rows["slow"].value, rows["slow"].ci_low) == ("screened", 2.0, None)
    assert rows["slow"].ratio == pytest.approx(result.metrics[0].candidate / 2.0)
    assert rows["near"].state == "measured"
    assert ("certify", "slow is screened out: 2 tok/s, the best has 4") in rig.progress.events
    rig.assert_nothing_runs()


def test_a_required_rival_is_interleaved_however_slow(rig: Rig) -> None:
    rig.speeds |= {"a": 1}
    rig.certify(rival("a"), rival("b", is_required=False))
    assert rig.evaluator.compared[-1] == ("c4", (WINNER, "a", "b"), 3)


def test_skipped_baselines_are_rows(rig: Rig) -> None:
    absent = BaselineValue(name="vllm", baseline_class="competent", version="", state="skipped", note="not installed")
    assert headline_of(rig.certify(rival("a"), skipped=[absent]))["vllm"] == absent


def test_a_winner_that_screening_refuses_is_not_measured(rig: Rig) -> None:
    rig.judge.screened[WINNER] = (WRONG_TOKENS,)
    result = rig.certify(rival("a"))
    assert (result.verdict, result.metrics) == (Verdict(refusals=(WRONG_TOKENS,), checks=("scan",)), ())
    assert "repeated-prompt audit" in result.not_run
    assert rig.bench.servers == []


def test_a_winner_whose_replies_are_refused_keeps_its_numbers(rig: Rig) -> None:
    rig.judge.judged[WINNER] = (WRONG_TOKENS,)
    result = rig.certify(rival("a"))
    assert not result.verdict.passed
    assert result.metrics


def test_a_winner_whose_windows_are_saved_up_for_is_refused_once(rig: Rig) -> None:
    rig.evaluator.refused = (Refusal(gate="timing", reason_class="held_back", text="0 of 900 in the warm-ups"),)
    result = rig.certify(rival("a"))
    assert result.verdict.refusals == rig.evaluator.refused and result.metrics


def test_what_the_probes_cannot_look_at_is_listed(rig: Rig) -> None:
    rig.judge.not_probed = ("chat: the model has no chat template",)
    assert "chat: the model has no chat template" in rig.certify(rival("a")).not_run


def test_a_winner_that_fails_its_own_tests_is_refused(rig: Rig) -> None:
    rig.judge.failed = (Refusal(gate="own_tests", reason_class="failed", text="1 failed"),)
    verdict = rig.certify(rival("a")).verdict
    assert verdict.refusals == rig.judge.failed
    assert "own_tests" in verdict.checks


def test_a_winner_that_dies_under_load_is_refused(rig: Rig) -> None:
    rig.evaluator.failures[WINNER] = ServerError(WINNER, outcome="died", detail="exit status -9", log_tail="killed")
    result = rig.certify(rival("a"))
    (refusal,) = result.verdict.refusals
    assert (refusal.gate, refusal.reason_class) == ("serving", "died")
    assert (result.metrics, result.golden) == ((), None)
    rig.assert_nothing_runs()


@pytest.mark.parametrize("where", ["start", "warm-up", "load"])
def test_a_rival_that_fails_is_the_machines_doing(rig: Rig, where: str) -> None:
    error = ServerError("a", outcome="died", detail="exit status 1", log_tail="out of memory")
    target = {"start": rig.bench.failures, "warm-up": rig.bench.cold, "load": rig.evaluator.failures}[where]
    target["a"] = error
    with pytest.raises(ServerError, match="server 'a' died"):
        rig.certify(rival("a"))
    rig.assert_nothing_runs()


def test_a_generator_that_fails_is_the_machines_doing(rig: Rig) -> None:
    rig.evaluator.failures[WINNER] = InfraError("load generator 'winner' ended with 1")
    with pytest.raises(InfraError, match="load generator"):
        rig.certify(rival("a"))
    rig.assert_nothing_runs()


def test_golden_replies_are_the_finished_ones_with_their_distances(rig: Rig) -> None:
    scored = ReplyDistances(request_id="winner-1-0", distances=(Distance(name="margin", values=(0.0, 0.1)),))
    scores = Scores(replies=(scored,))
    rig.judge.verdict = lambda *_, **__: (Verdict(checks=("accuracy",)), scores)
    golden = rig.certify(rival("a")).golden
    assert golden is not None
    found = [(each.request_id, each.load, each.distances) for each in golden.replies]
    assert found == [("winner-1-0", "c4", {"margin": (0.0, 0.1)})]


def test_a_certification_survives_its_step_stamp(rig: Rig) -> None:
    result = rig.certify(rival("a"))
    assert from_data(Certification, to_data(result)) == result


# -- audits


def test_the_audits_of_the_extent_run_while_the_devices_are_held(rig: Rig) -> None:
    rig.certify(rival("a"), extent=replace(EXTENT, audits=AuditScope.full, soak_s=600.0))
    assert rig.auditor.asked == [(AuditScope.full, 600.0)]
    assert rig.auditor.held == [True]


def test_a_refused_audit_refuses_and_one_that_cannot_be_held_is_listed(rig: Rig) -> None:
    rig.auditor.found = [
        audited("repeated_prompt", text="", figures={"ratio": 2.0}, refused={"repeat_prompt": "2 times as fast"}),
        not_applicable("shared_prefix", "shared-prefix audit: no prompts"),
    ]  # fmt: skip
    result = rig.certify(rival("a"))
    assert [(r.gate, r.reason_class) for r in result.verdict.refusals] == [("audit", "repeat_prompt")]
    assert "audits" in result.verdict.checks
    assert [audit.name for audit in result.audits] == ["start_up", "repeated_prompt"]
    assert "shared-prefix audit: no prompts" in result.not_run
    assert any(event[1].startswith("start_up passed") for event in rig.progress.events)


def test_audits_replies_are_judged_with_the_timed_ones(rig: Rig) -> None:
    judged: list[Any] = []
    verdict = rig.judge.verdict

    def judging(replies: Any, **more: Any) -> Any:
        judged.extend(replies)
        return verdict(replies, **more)

    rig.judge.verdict = judging
    evidence = replace(reply([(0.1, PIECES[0])]), end_s=9.0)
    rig.auditor.found = [audited("repeated_prompt", text="", figures={}, refused={}, evidence=[evidence])]
    result = rig.certify(rival("a"))
    assert evidence in judged and result.num_requests == len(judged) == 4
    assert result.golden is not None and len(result.golden.replies) == 1, "golden is the timed traffic alone"


def test_an_audit_that_the_machine_breaks_is_no_result(rig: Rig) -> None:
    rig.auditor.error = InfraError("load generator 'repeat_prompt' ended with 1")
    with pytest.raises(InfraError, match="load generator"):
        rig.certify(rival("a"))


@pytest.mark.parametrize(
    ("scope", "num_left_out"), [(AuditScope.full, 0), (AuditScope.cheap, 6), (AuditScope.none, 10)]
)
def test_what_the_scope_leaves_out_is_listed(rig: Rig, scope: AuditScope, num_left_out: int) -> None:
    result = rig.certify(rival("a"), extent=replace(EXTENT, audits=scope, is_fresh_per_window=True))
    left_out = [text for text in result.not_run if "impossible" not in text]
    assert len(left_out) == num_left_out


def test_a_slow_start_is_refused(rig: Rig) -> None:
    rig.bench.spec.evaluation = Evaluation(startup_max_s=0.5)
    assert [r.reason_class for r in rig.certify(rival("a")).verdict.refusals] == ["slow_start"]


def test_a_number_beyond_the_roofline_is_refused(rig: Rig) -> None:
    reached = rig.certify(rival("a")).metrics[0].candidate
    at_most = Ceiling(metric="output_throughput", unit="tok/s", value=0.99 * reached, bound_by=DECLARED, load="c4")
    rig.bench.ceilings = (at_most,)
    assert [r.reason_class for r in rig.certify(rival("a")).verdict.refusals] == ["impossible"]
    rig.bench.ceilings = (replace(at_most, value=reached),)
    result = rig.certify(rival("a"))
    assert result.verdict.passed
    assert [audit.name for audit in result.audits] == ["start_up", "possible"]


def test_fresh_servers_for_every_window_are_pooled_by_start(rig: Rig) -> None:
    extent = replace(EXTENT, num_starts=2, num_pairs=3, is_fresh_per_window=True)
    result = rig.certify(rival("a"), extent=extent)
    assert rig.evaluator.compared == [("c4", (WINNER, "a"), 1)] * 6
    assert [server.name for server in rig.bench.servers] == [WINNER, "a"] * 6
    assert result.golden is not None
    assert set(result.golden.seeds) == {f"c4/{start}.{window}" for start in range(2) for window in range(3)}
    assert len(set(result.golden.seeds.values())) == 6, "no window sees another one's prompts"
    assert "fresh servers for every window" not in result.not_run
    row = headline_of(result)["a"]
    assert row.ratio == pytest.approx(2.0)
    rig.assert_nothing_runs()


@pytest.mark.parametrize("num_rescored", [0, 2])
def test_as_many_replies_are_rescored_as_the_extent_says(rig: Rig, num_rescored: int) -> None:
    """A fast winner answers hundreds of times; which of them count is drawn when all were served."""
    asked: list[int] = []
    verdict = rig.judge.verdict

    def judging(*arguments: Any, max_replies: int, **more: Any) -> Any:
        asked.append(max_replies)
        return verdict(*arguments, max_replies=max_replies, **more)

    rig.judge.verdict = judging
    rig.certify(rival("a"), extent=replace(EXTENT, num_rescored=num_rescored))
    assert asked == [num_rescored]


def test_levels_say_how_many_replies_are_rescored() -> None:
    assert {level.value: schedule.certify_rescored for level, schedule in SCHEDULES.items()} == {
        "quick": 128, "standard": 384, "full": 0
    }  # fmt: skip
