"""The manifest of a finished run: status and its reasons, authorship, what was not run, the rounds."""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from loop_fakes import WRONG_TOKENS

from vibeserve.agents.ledger import Spend
from vibeserve.agents.requests import AgentUsage
from vibeserve.build.authorship import authorship
from vibeserve.build.manifests import make_manifest, not_run, num_candidates, round_records, spent_by_agents
from vibeserve.certification import Certification
from vibeserve.checkpoint import CheckpointStore
from vibeserve.core.documents import digest_file, digest_of
from vibeserve.core.manifest import AuditResult, BaselineValue, MetricResult, Selection
from vibeserve.core.nouns import (
    Candidate,
    Decision,
    Direction,
    Outcome,
    Proposal,
    RatioInterval,
    Refusal,
    Role,
    Round,
    Verdict,
)
from vibeserve.core.paths import data_dir
from vibeserve.hardware import probe
from vibeserve.journal import Journal
from vibeserve.skills import assemble, load_skills, resolve
from vibeserve.spec import Baseline, ClockKind, Evaluation, Goal, Level, Load, Spec, Workload
from vibeserve.synthesis import Entry, Search

PASSED = Verdict(checks=("replies", "accuracy"), accuracy={"top1_agreement": 0.99})


def headline(*baselines: BaselineValue) -> MetricResult:
    return MetricResult(
        name="output_throughput", unit="tok/s", direction=Direction.MAX, role=Role.HEADLINE, load="c4", candidate=8.0,
        baselines=baselines,
    )  # fmt: skip


def value(name: str, **changes: Any) -> BaselineValue:
    fields: dict[str, Any] = {"name": name, "baseline_class": "competent", "version": "1", "value": 4.0, "ratio": 2.0}
    return BaselineValue(**(fields | changes))


def proposal(card: str, *, num_variants: int = 0) -> Proposal:
    return Proposal(
        proposal_id=f"p-{card}", title=f"adopt {card}", hypothesis="", mechanism="", activation_evidence="",
        falsification="", forecast_ratio=2.0, components=(card,), parameters={}, card=card,
        variants=({"x": 1},) * num_variants,
    )  # fmt: skip


def entry(
    number: int,
    outcome: Outcome,
    *,
    origin: str = "scaffold",
    ratio: float | None = None,
    commit: str = "",
    **changes: Any,
) -> Entry:
    interval = RatioInterval(ratio=ratio, ci_low=ratio, ci_high=ratio, num_pairs=5) if ratio else None
    record = Round(
        number=number, proposal=proposal(origin) if number else None, outcome=outcome, reason="scripted", seconds=10.0,
        candidate=Candidate(candidate_id=f"r0{number}a1", commit=commit, workspace="", origin=origin),
        decision=Decision(accepted=outcome is Outcome.ACCEPTED, reason="", headline=interval, noise_floor=0.01),
    )  # fmt: skip
    return Entry(record=replace(record, **changes), checkpoint=None)


def workspace_with(folder: Path, **lines: int) -> Path:
    """A file of so many lines by each origin, as it was assembled."""
    (folder / "runtime").mkdir(parents=True)
    files = []
    for origin, num_lines in lines.items():
        path = folder / f"{num_lines}.py"
        path.write_text("".join(f"line {n}\n" for n in range(num_lines)))
        files.append({"path": path.name, "origin": origin, "digest": digest_file(path), "num_lines": num_lines})
    (folder / "runtime/assembly.json").write_text(json.dumps({"files": files}))
    return folder


def committed(store: CheckpointStore, workspace: Path, each: Entry) -> Entry:
    """The entry with `workspace` as its candidate's tree."""
    assert each.record.candidate is not None
    name = each.record.candidate.candidate_id
    sha = store.commit(workspace, parent=None, message=name, ref=f"run/{name}")
    return replace(each, record=replace(each.record, candidate=replace(each.record.candidate, commit=sha)))


@pytest.fixture
def spec() -> Spec:
    loads = {"c4": Load(concurrency=4), "c1": Load(concurrency=1), "c16": Load(concurrency=16)}
    return Spec(
        workload=Workload(loads=loads, headline_load="c4"), baseline={"a": Baseline(required=True), "b": Baseline()},
        goals=[Goal(metric="output_throughput", min_ratio=1.5, against="competent")],
    )  # fmt: skip


@pytest.fixture
def run(tmp_path: Path, spec: Spec) -> Any:
    """What a manifest reads of a run."""
    plan = SimpleNamespace(spec=spec, target="sample", plan_id="0" * 16, digests={"framework": "f" * 64})
    journal = Journal.open(tmp_path / "journal.jsonl")
    journal.append("opened", {})
    journal.append("tier", "A")
    store = CheckpointStore(tmp_path / "store.git")
    model = SimpleNamespace(digest="w" * 64, path=tmp_path / "model")
    yield SimpleNamespace(
        plan=plan, journal=journal, facts=probe(), model=lambda: model, store=lambda: store, assemble=None
    )
    journal.close()


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    return workspace_with(tmp_path / "workspace", scaffold=900)


def manifest_of(run: Any, workspace: Path, result: Certification, *entries: Entry) -> Any:
    search = Search()
    for each in entries or (entry(0, Outcome.BASELINE),):
        search.add(committed(run.store(), workspace, each))
    return make_manifest(run, search, result)


def test_every_gate_passed_and_the_required_baseline_measured_is_certified(run: Any, workspace: Path) -> None:
    result = Certification(verdict=PASSED, metrics=(headline(value("a", ratio=0.5), value("b", state="skipped")),))
    manifest = manifest_of(run, workspace, result)
    # a goal that is missed is another matter
    assert (manifest.status, manifest.reasons, manifest.goals[0].met) == ("certified", (), False)
    assert (manifest.sandbox_tier, manifest.level, manifest.heading) == ("A", "standard", "assembled")
    assert manifest.digests == {"framework": "f" * 64, "weights": "w" * 64}
    assert manifest.accuracy == {"top1_agreement": 0.99}
    assert len(digest_of(manifest)) == 64  # it is a document: no NaN, nothing that is not JSON


@pytest.mark.parametrize(
    "baselines",
    [(), (value("b"),), (value("a", value=None, ratio=None),), (value("a", value=0.0, ratio=None), value("b"))],
)
def test_a_required_baseline_without_a_ratio_is_uncertified_with_a_reason(
    run: Any, workspace: Path, baselines: tuple[BaselineValue, ...]
) -> None:
    manifest = manifest_of(run, workspace, Certification(verdict=PASSED, metrics=(headline(*baselines),)))
    assert manifest.status == "uncertified"
    text = "required baseline 'a' has no value of the headline metric to compare with"
    assert manifest.reasons == (Refusal(gate="baseline", reason_class="missing_baseline", text=text),)


def test_another_metric_than_the_headline_does_not_stand_in_for_it(run: Any, workspace: Path) -> None:
    other = replace(headline(value("a")), name="startup", role=Role.DIAGNOSTIC)
    manifest = manifest_of(run, workspace, Certification(verdict=PASSED, metrics=(headline(), other)))
    assert [reason.reason_class for reason in manifest.reasons] == ["missing_baseline"]


def test_passing_without_any_measurement_is_not_certified(run: Any, workspace: Path) -> None:
    assert manifest_of(run, workspace, Certification(verdict=PASSED)).status == "uncertified"


def test_no_check_at_all_is_not_certified(run: Any, workspace: Path) -> None:
    result = Certification(verdict=Verdict(), metrics=(headline(value("a")),))
    assert manifest_of(run, workspace, result).status == "uncertified"


def test_a_refused_winner_is_uncertified_for_that_reason_alone(run: Any, workspace: Path) -> None:
    refused = Certification(verdict=Verdict(refusals=(WRONG_TOKENS,), checks=("accuracy",)))
    assert manifest_of(run, workspace, refused).reasons == (WRONG_TOKENS,)


# -- what was not run


def test_what_was_not_run_is_listed(run: Any, spec: Spec) -> None:
    result = Certification(verdict=PASSED, not_run=("soak with drift tests",))
    assert not_run(run, result) == ("soak with drift tests", "loads c1, c16 (evaluation.loads=all)")
    spec.evaluation = Evaluation(clock=ClockKind.fake, window_scale=0.1, loads="all")
    assert not_run(run, result) == (
        "soak with drift tests", "search decisions on measured time: they came from a fake clock",
        "windows of the level's length: scaled by 0.1, not quotable",
    )  # fmt: skip


def test_a_level_of_one_start_says_what_its_intervals_do_not_hold(run: Any, spec: Spec) -> None:
    spec.evaluation.loads = "all"
    spec.budget.level = Level.quick
    assert not_run(run, Certification(verdict=PASSED)) == (
        "a second start: what differs between two starts of one server is not in the intervals",
    )


def test_a_full_run_that_left_nothing_out_lists_nothing(run: Any, spec: Spec) -> None:
    spec.budget.level = Level.full
    spec.evaluation.loads = "all"
    assert not_run(run, Certification(verdict=PASSED)) == ()


# -- audits, and the number that chose the winner


def test_audits_are_in_the_manifest(run: Any, workspace: Path) -> None:
    audit = AuditResult(name="repeated_prompt", passed=True, text="1.01 times as fast", figures={"ratio": 1.01})
    result = Certification(verdict=PASSED, metrics=(headline(value("a")),), audits=(audit,))
    assert manifest_of(run, workspace, result).audits == (audit,)


def chosen_at(selected: float, **changes: Any) -> Entry:
    metrics = {"candidate": {"output_throughput": selected}, "incumbent": {"output_throughput": 1.0}}
    return entry(2, Outcome.ACCEPTED, origin="component:x", ratio=2.0, metrics=metrics, **changes)


def test_the_number_of_the_round_that_chose_the_winner_stands_beside_the_certified_one(
    run: Any, workspace: Path
) -> None:
    result = Certification(verdict=PASSED, metrics=(headline(value("a")),))
    entries = (entry(0, Outcome.BASELINE), chosen_at(10.0), entry(3, Outcome.REJECTED, metrics={"candidate": {}}))
    selection = manifest_of(run, workspace, result, *entries).selection
    assert selection == Selection(
        metric="output_throughput", unit="tok/s", load="c4", selected=10.0, certified=8.0, ratio=0.8
    )


def test_of_a_latency_the_ratio_is_turned(run: Any, workspace: Path) -> None:
    row = replace(headline(value("a")), name="ttft_p50", direction=Direction.MIN)
    metrics = {"candidate": {"ttft_p50": 4.0}}
    won = entry(2, Outcome.ACCEPTED, origin="component:x", ratio=2.0, metrics=metrics)
    selection = manifest_of(run, workspace, Certification(verdict=PASSED, metrics=(row,)), won).selection
    assert selection is not None and selection.ratio == 0.5


def test_where_the_search_measured_nothing_there_is_no_number_beside(run: Any, workspace: Path, spec: Spec) -> None:
    result = Certification(verdict=PASSED, metrics=(headline(value("a")),))
    assert manifest_of(run, workspace, result).selection is None
    assert manifest_of(run, workspace, result, chosen_at(math.nan)).selection is None
    spec.evaluation.clock = ClockKind.fake
    assert manifest_of(run, workspace, result, chosen_at(10.0)).selection is None


# -- authorship


def shares_of(store: CheckpointStore, *rounds: tuple[Entry, Path]) -> dict[str, tuple[int, float]]:
    entries = [committed(store, workspace, each) for each, workspace in rounds]
    return {row.origin: (row.lines, row.share_of_log_ratio) for row in authorship(entries, store=store)}


def test_gains_are_shared_by_log_ratio_and_lines_by_file(tmp_path: Path) -> None:
    workspace = workspace_with(tmp_path / "w", **{"scaffold": 700, "component:batching": 200, "component:linears": 100})
    rounds = (
        entry(0, Outcome.BASELINE),
        entry(1, Outcome.ACCEPTED, origin="component:batching", ratio=4.0),
        entry(2, Outcome.REJECTED, origin="component:other", ratio=9.0),
        entry(3, Outcome.ACCEPTED, origin="component:linears", ratio=2.0),
        entry(4, Outcome.ACCEPTED, origin="tuning", ratio=2.0),
    )
    shares = shares_of(CheckpointStore(tmp_path / "s.git"), *((each, workspace) for each in rounds))
    assert shares == {
        "scaffold": (700, 0.0), "component:batching": (200, 0.5), "component:linears": (100, 0.25), "tuning": (0, 0.25),
    }  # fmt: skip
    assert math.isclose(sum(share for _, share in shares.values()), 1.0)


def test_a_line_belongs_to_the_round_that_brought_it(tmp_path: Path) -> None:
    """Of a file that somebody edited, what stayed is the scaffold's; what a refused round wrote is nobody's."""
    seed = workspace_with(tmp_path / "seed", scaffold=10)
    first = shutil.copytree(seed, tmp_path / "first")
    (first / "10.py").write_text((first / "10.py").read_text() + "one\ntwo\n")
    (first / "new.py").write_text("three\n")
    refused = shutil.copytree(first, tmp_path / "refused")
    (refused / "new.py").write_text("bad\n" * 50)
    second = shutil.copytree(first, tmp_path / "second")
    (second / "10.py").write_text((second / "10.py").read_text().replace("two\n", "2\n").replace("line 0\n", ""))
    shares = shares_of(
        CheckpointStore(tmp_path / "s.git"),
        (entry(0, Outcome.BASELINE), seed),
        (entry(1, Outcome.ACCEPTED, origin="agent:codex/m", ratio=2.0), first),
        (entry(2, Outcome.REJECTED, origin="agent:codex/m", ratio=3.0), refused),
        (entry(3, Outcome.ACCEPTED, origin="human", ratio=2.0), second),
    )
    assert shares == {"scaffold": (9, 0.0), "agent:codex/m": (2, 0.5), "human": (1, 0.5)}


def test_of_a_component_that_its_own_round_edited_the_rest_stays_the_components(tmp_path: Path) -> None:
    scaffold, skills = data_dir("templates") / "runtime" / "text", load_skills(data_dir("skills"))

    def assemble_into(names: Sequence[str], parameters: Mapping[str, Any], folder: Path) -> None:
        assemble(scaffold, resolve(names, skills), parameters, folder)

    seed, edited = tmp_path / "seed", tmp_path / "edited"
    assemble_into([], {}, seed)
    assemble_into(["continuous-batching"], {}, edited)
    scheduler = edited / "runtime" / "scheduler.py"
    num_lines = len(scheduler.read_text().splitlines())
    scheduler.write_text(scheduler.read_text().replace("import", "import  # seen", 1) + "one\ntwo\n")
    store = CheckpointStore(tmp_path / "s.git")
    entries = [
        committed(store, seed, entry(0, Outcome.BASELINE)),
        committed(store, edited, entry(1, Outcome.ACCEPTED, origin="agent:codex/m", ratio=2.0)),
    ]

    def lines(assembled: Any) -> dict[str, int]:
        return {row.origin: row.lines for row in authorship(entries, store=store, assemble=assembled)}

    known, unknown = lines(assemble_into), lines(None)
    assert known["agent:codex/m"] == 3, "the changed line, and the two that were added"
    # without the component's own text it cannot be told: what was edited counts as the agent's
    assert num_lines <= unknown["agent:codex/m"] + unknown["scaffold"] and unknown["agent:codex/m"] > 3
    assert known["component:continuous-batching"] - unknown["component:continuous-batching"] >= num_lines - 20


def test_without_any_gain_nobody_has_a_share(tmp_path: Path) -> None:
    workspace = workspace_with(tmp_path / "w", scaffold=700)
    rounds = (entry(0, Outcome.BASELINE), entry(1, Outcome.ACCEPTED, origin="tuning", ratio=0.999))
    shares = shares_of(CheckpointStore(tmp_path / "s.git"), *((each, workspace) for each in rounds))
    assert [share for _, share in shares.values()] == [0.0, 0.0]


def test_what_agents_spent_is_summed_and_what_has_no_price_is_told() -> None:
    def spend(role: str, tokens: int, usd: float | None) -> Spend:
        return Spend(role=role, key="", backend="b", model="m", usage=AgentUsage(input_tokens=tokens), usd=usd)

    assert spent_by_agents([]) == {"tokens": 0.0, "usd": 0.0}
    spends = [spend("judge", 10, 0.5), spend("planner", 20, None), spend("judge", 1, 0.25)]
    assert spent_by_agents(spends) == {
        "tokens": 31.0, "usd": 0.75, "judge_tokens": 11.0, "planner_tokens": 20.0, "unpriced_tokens": 20.0,
    }  # fmt: skip


def test_every_candidate_and_variant_counts_as_a_look() -> None:
    search = Search()
    search.add(entry(0, Outcome.BASELINE))
    search.add(entry(1, Outcome.REJECTED, attempts=2))
    search.add(entry(2, Outcome.ACCEPTED, proposal=proposal("tuning", num_variants=5)))
    assert num_candidates(search) == 1 + 2 + 6


# -- rounds


def test_rounds_carry_the_cumulative_ratio_and_the_patch_against_the_incumbent(run: Any, tmp_path: Path) -> None:
    store, commits = run.store(), []
    for number, text in enumerate(("base\n", "faster\n", "worse\n", "fastest\n")):
        folder = tmp_path / f"w{number}"
        folder.mkdir()
        (folder / "model.py").write_text(text)
        commits.append(store.commit(folder, parent=None, message="", ref=f"run/r{number}"))
    search = Search()
    search.add(entry(0, Outcome.BASELINE, commit=commits[0]))
    search.add(entry(1, Outcome.ACCEPTED, ratio=2.0, commit=commits[1]))
    refused = Verdict(refusals=(WRONG_TOKENS,), checks=("accuracy",))
    search.add(entry(2, Outcome.REJECTED, ratio=3.0, commit=commits[2], verdict=refused))
    search.add(entry(3, Outcome.ACCEPTED, ratio=1.5, commit=commits[3]))
    records = round_records(run, search)
    assert [record.entry.cumulative_ratio for record in records] == [1.0, 2.0, 6.0, 3.0]
    assert "-faster\n+worse\n" in records[2].patch
    assert "-faster\n+fastest\n" in records[3].patch
    assert records[2].entry.refusals == (WRONG_TOKENS,)


def test_a_round_that_offered_nothing_has_no_patch(run: Any) -> None:
    search = Search()
    search.add(entry(1, Outcome.INFRA, candidate=None, decision=None))
    (record,) = round_records(run, search)
    assert (record.patch, record.entry.commit, record.entry.cumulative_ratio) == ("", "", None)


def test_what_people_asked_and_how_good_forecasts_were_is_in_it(run: Any, workspace: Path, spec: Spec) -> None:
    asked = {
        "schema_version": 1, "number": 4, "command": "veto", "arguments": {"item": "b2", "why": "no"}, "who": "person",
        "at_s": 0.0, "phase": "proposal", "round": 1, "effect": "it is not tried", "refused": "", "item": "b2",
    }  # fmt: skip
    run.journal.append("control", asked)
    run.journal.append("control", {**asked, "number": 5, "effect": "", "refused": "b2 is abandoned already"})
    entries = (entry(0, Outcome.BASELINE), entry(1, Outcome.ACCEPTED, ratio=1.5, verdict=PASSED))
    manifest = manifest_of(run, workspace, Certification(verdict=PASSED), *entries)
    assert [(each.text, each.at, each.state, each.effect) for each in manifest.interventions] == [
        ("veto b2", "1970-01-01T00:00:00+00:00", "applied", "it is not tried"),
        ("veto b2", "1970-01-01T00:00:00+00:00", "refused", "b2 is abandoned already"),
    ]
    assert manifest.calibration.judgement == "too few"
    assert [(row.round, row.forecast, row.measured) for row in manifest.calibration.forecasts] == [(1, 2.0, 1.5)]
    spec.evaluation = Evaluation(clock=ClockKind.fake)
    assert manifest_of(run, workspace, Certification(verdict=PASSED), *entries).calibration is None
