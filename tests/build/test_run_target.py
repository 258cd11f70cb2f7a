"""A run from the command's side, its steps replaced by one that packages a sample: who measures and who reports."""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from artifact_samples import sample_contents, sample_manifest

from vibeserve.artifact import package
from vibeserve.build.bandwidth import NUM_READINGS
from vibeserve.build.graph import Step, StepContext, StepResult
from vibeserve.build.runs import Run, least_s
from vibeserve.build.target import artifact_of, is_packaged, report_run, run_target
from vibeserve.config import compose_spec
from vibeserve.core.paths import data_dir, lease_dir
from vibeserve.errors import BudgetError, GoalMissedError, RefusedError
from vibeserve.hardware import probe
from vibeserve.journal import read_events
from vibeserve.lease import DeviceQueue, Mode, living_owner
from vibeserve.plan import Plan
from vibeserve.plan.unmeasured import compile_unmeasured
from vibeserve.progress import LineProgress, QuietProgress
from vibeserve.spec import Baseline, Goal, Spec


class World:
    """What the scripted step does and what was seen."""

    def __init__(self) -> None:
        self.num_packaged = 0
        self.num_measured = 0
        self.waited_s = self.wait_s = 0.0
        """in which other work waited for a core, in all and during one reading"""
        self.status = "certified"
        self.seen: list[tuple[Mode, str]] = []
        """lease entries of this machine while something was measured or a step ran"""

    def look(self) -> None:
        entries = DeviceQueue(lease_dir() / "cpu", expiry_s=60.0).entries()
        self.seen += [(entry.mode, entry.what) for entry in entries if entry.is_held]

    def measure(self, cpus: tuple[int, ...]) -> float:
        self.num_measured += 1
        self.waited_s += self.wait_s
        self.look()
        return 12.5 - self.num_measured % NUM_READINGS

    def steps(self, run: Run) -> list[Step]:
        def body(context: StepContext) -> StepResult:
            self.num_packaged += 1
            assert living_owner(run.folder) is not None
            manifest = sample_manifest(target=run.plan.target, plan_id=run.plan.plan_id, status=self.status)
            contents = replace(sample_contents(context.work_dir / str(self.num_packaged), manifest), spec=run.plan.spec)
            package(contents, out_dir=run.project / run.plan.spec.out_dir, journal=run.journal)
            return StepResult(document={})

        return [Step(name="package", body=body, outputs=(artifact_of(run.plan, project=run.project),))]


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    world = World()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("VIBESERVE_LEASES", str(tmp_path / "leases"))
    monkeypatch.setattr("vibeserve.build.target.make_steps", world.steps)
    monkeypatch.setattr("vibeserve.build.bandwidth.measure_bandwidth_gb_s", world.measure)
    monkeypatch.setattr("vibeserve.build.bandwidth.pressure_total_s", lambda: world.waited_s)
    return world


@pytest.fixture
def spec() -> Spec:
    return compose_spec(["+target=tiny_cpu", "sandbox=none"], cwd=data_dir("targets").parent)


def plan_of(spec: Spec) -> Plan:
    return compile_unmeasured(spec, facts=probe())


def test_the_bandwidth_is_measured_once_a_run_with_the_device_held(world: World, spec: Spec, tmp_path: Path) -> None:
    words = ["budget.rounds=1", "'search=random'"]
    first, second = (run_target(spec, progress=QuietProgress(), overrides=words) for _ in range(2))
    assert (world.num_measured, world.num_packaged) == (NUM_READINGS, 1)
    assert world.seen == [(Mode.EXCLUSIVE, "read bandwidth")] * NUM_READINGS
    (journal,) = tmp_path.glob(".vibeserve/runs/*/journal.jsonl")
    opened = [event.data for event in read_events(journal) if event.kind == "opened"]
    assert [(event["bandwidth_gb_s"], event["is_bandwidth_disturbed"]) for event in opened] == [(12.5, False)]
    assert opened[0]["overrides"] == words, "for `vibeserve status`"
    assert first.manifest == second.manifest
    assert first.artifact == f"artifacts/tiny_cpu/{plan_of(spec).plan_id}"


def test_a_reading_while_other_work_waits_for_cores_is_not_trusted(world: World, spec: Spec, tmp_path: Path) -> None:
    world.wait_s = 1e6
    run_target(spec, progress=QuietProgress())
    (journal,) = tmp_path.glob(".vibeserve/runs/*/journal.jsonl")
    (opened,) = [event.data for event in read_events(journal) if event.kind == "opened"]
    assert opened["is_bandwidth_disturbed"] is True


def test_a_run_says_at_its_start_that_a_goal_has_no_opponent(
    world: World, spec: Spec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VIBESERVE_CACHE", str(tmp_path / "cache"))
    lines = io.StringIO()
    spec.baseline["llama_cpp"] = Baseline()
    spec.goals[0] = Goal(metric="output_throughput", min_ratio=1.1, against="llama_cpp")
    run_target(spec, progress=LineProgress(lines))
    assert lines.getvalue().splitlines()[0].endswith(
        "goals[0]: nothing to measure it against is here, so that it cannot be met (llama_cpp: not installed; "
        "vibeserve peers install llama_cpp)"
    )


def test_nobody_holds_a_run_that_has_ended(world: World, spec: Spec, tmp_path: Path) -> None:
    run_target(spec, progress=QuietProgress())
    (folder,) = (tmp_path / ".vibeserve/runs").iterdir()
    assert living_owner(folder) is None
    assert DeviceQueue(lease_dir() / "cpu", expiry_s=60.0).entries() == []


@pytest.fixture
def change(tmp_path: Path, spec: Spec) -> Callable[[], None]:
    def call() -> None:
        path = artifact_of(plan_of(spec), project=tmp_path) / "runtime/service.yaml"
        path.write_text(path.read_text() + "# changed\n")

    return call


def test_a_plan_is_packaged_when_every_byte_of_its_artifact_is_there(
    world: World, spec: Spec, tmp_path: Path, change: Callable[[], None]
) -> None:
    plan = plan_of(spec)
    assert not is_packaged(plan, project=tmp_path)
    run_target(spec, progress=QuietProgress())
    assert is_packaged(plan, project=tmp_path)
    change()
    assert not is_packaged(plan, project=tmp_path)


def test_a_finished_run_is_reported_without_measuring_or_running(world: World, spec: Spec, tmp_path: Path) -> None:
    run_target(spec, progress=QuietProgress())
    summary = report_run(plan_of(spec), spec=spec, project=tmp_path)
    assert summary.manifest.status == "certified"
    assert (world.num_measured, world.num_packaged) == (NUM_READINGS, 1)


def test_what_was_not_good_enough_is_not_when_it_is_reported_either(world: World, spec: Spec, tmp_path: Path) -> None:
    world.status = "uncertified"
    with pytest.raises(RefusedError, match="the result is not certified"):
        run_target(spec, progress=QuietProgress())
    with pytest.raises(RefusedError, match="the result is not certified"):
        report_run(plan_of(spec), spec=spec, project=tmp_path)
    assert world.num_packaged == 1


def test_a_missed_goal_fails_a_report_that_requires_it(world: World, spec: Spec, tmp_path: Path) -> None:
    run_target(spec, progress=QuietProgress())
    demanding = replace(spec, require_goal=True)
    plan = plan_of(demanding)
    assert plan.plan_id == plan_of(spec).plan_id, "the same run: only the exit code differs"
    path = artifact_of(plan, project=tmp_path) / "manifest.json"
    path.write_text(path.read_text().replace('"met": true', '"met": false'))
    with pytest.raises(GoalMissedError, match="1 declared goals are missed"):
        report_run(plan, spec=demanding, project=tmp_path)
    assert report_run(plan, spec=spec, project=tmp_path).manifest.status == "certified"


def test_a_run_from_below_the_repository_is_the_repositorys(
    world: World, spec: Spec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "targets").mkdir()
    below = tmp_path / "a" / "b"
    below.mkdir(parents=True)
    monkeypatch.chdir(below)
    summary = run_target(spec, progress=QuietProgress())
    assert summary.artifact == f"../../artifacts/tiny_cpu/{plan_of(spec).plan_id}"
    assert summary.latest == "../../artifacts/tiny_cpu/latest"
    assert list(below.iterdir()) == []
    monkeypatch.chdir(tmp_path)
    assert run_target(spec, progress=QuietProgress()).artifact == f"artifacts/tiny_cpu/{plan_of(spec).plan_id}"
    assert world.num_packaged == 1


def test_a_budget_that_cannot_hold_the_measurements_is_refused_before_anything(
    world: World, spec: Spec, tmp_path: Path
) -> None:
    needed_s = least_s(plan_of(spec))
    spec.budget.wall_s = needed_s - 0.5
    with pytest.raises(BudgetError, match=r"budget.wall_s is .* at level quick takes .* and more; nothing was started"):
        run_target(spec, progress=QuietProgress())
    assert (world.num_measured, world.num_packaged) == (0, 0) and not (tmp_path / ".vibeserve").exists()
    spec.budget.wall_s = needed_s
    run_target(spec, progress=QuietProgress())
    assert world.num_packaged == 1
