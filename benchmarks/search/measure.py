"""Measure a grid once: `invoke bench-grid`. Every point beside one control runtime, in short interleaved windows.

The work file is a journal: stopped at any moment, the same command goes on with the points that are missing. Speed
alone is measured; the gates are not held, because every point is assembled from components that pass them in runs.
"""

from __future__ import annotations

import argparse
import math
import secrets
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from benchmarks.search.grid import Setting, grid_points, key_of
from benchmarks.search.landscapes import shipped_table
from benchmarks.search.table import Point, Table, Twin
from vibeserve.agents import Assembled
from vibeserve.arguments import VerbParser
from vibeserve.benchmark import RealClock
from vibeserve.cli.boundary import within_boundary
from vibeserve.core.documents import digest_of, from_data, write_document
from vibeserve.core.paths import cache_dir, data_dir, lease_dir, state_dir
from vibeserve.errors import InfraError, ServerError, SpecError
from vibeserve.hardware import HardwareFacts, identity, probe
from vibeserve.journal import Journal
from vibeserve.lease import DeviceLease, devices_of
from vibeserve.plan import Plan, compile_plan
from vibeserve.progress import LineProgress, Progress
from vibeserve.roles.evaluator import Entrant, Evaluator, Series
from vibeserve.roles.workbench import Workbench
from vibeserve.service import Server
from vibeserve.skills import assemble, declared_parameters, load_scaffold, load_skills, resolve, target_facts
from vibeserve.weights import materialise
from vibeserve.workloads import Pool

FOLDER = Path(__file__).parent
CONTROL = "continuous-batching"
"""at its defaults: many requests a window even beside the slow seed, so that the control's own noise is small"""
TWIN_EVERY = 12
"""points between two A/A series of the control"""
MAX_DISTURBED = 3
"""points in a row that other work may spoil before it stops"""
CONTROL_NAME = "control"
GRID, POINT, TWIN = "grid", "point", "twin"


@dataclass(frozen=True, kw_only=True)
class Manner:
    """Document, first event of the work file: how every point of it is measured."""

    target: str
    hardware: str
    metric: str
    load: str
    window_s: float
    warmup_s: float
    num_pairs: int
    skills: str
    """digest of the library and the scaffold"""
    schema_version: int = 1


@dataclass(kw_only=True)
class Grid:
    """One grid under way."""

    bench: Workbench
    setting: Setting
    manner: Manner
    journal: Journal
    progress: Progress
    folder: Path
    points: list[Point] = field(default_factory=list)
    twins: list[Twin] = field(default_factory=list)
    _control: Server | None = None

    def __post_init__(self) -> None:
        first = self.journal.last(GRID)
        if first is None:
            self.journal.append(GRID, self.manner)
        elif from_data(Manner, first.data) != self.manner:
            raise SpecError(
                f"{self.journal.path} was measured otherwise: {first.data}",
                problems=[f"now: {self.manner}"], hint="remove it, or name another one with --work",
            )  # fmt: skip
        self.points = [from_data(Point, event.data) for event in self.journal.events(POINT)]
        self.twins = [from_data(Twin, event.data) for event in self.journal.events(TWIN)]

    def todo(self) -> list[Assembled]:
        """Points that are not measured yet."""
        have = {key_of(each.components, each.parameters, self.setting) for each in self.points}
        return [
            each
            for each in grid_points(self.setting)
            if key_of(each.components, each.parameters, self.setting) not in have
        ]

    def run(self, *, limit_s: float, max_points: int) -> None:
        """Measure what is missing, as far as the limits go."""
        started_s, todo, num_failed = time.monotonic(), self.todo(), 0
        try:
            for number, assembled in enumerate(todo[:max_points]):
                spent_s = time.monotonic() - started_s
                each_s = spent_s / number if number else 0.0
                if number and spent_s + each_s > limit_s:
                    break
                num_failed = 0 if self._measured(assembled) else num_failed + 1
                if num_failed >= MAX_DISTURBED:
                    raise InfraError(
                        f"{num_failed} points in a row were spoilt by other work; {len(self.points)} are measured\n"
                        "next: start the same command again when the machine is quiet"
                    )
                eta = f", about {each_s * (len(todo) - number) / 60:.0f} min to go" if number else ""
                self.progress.event("grid", f"{len(self.points)} of {len(self.points) + len(todo) - number - 1}{eta}")
        finally:
            if self._control is not None:
                self._control.stop(drain_s=0)

    def _measured(self, assembled: Assembled) -> bool:
        """Whether the point has its line now; what other work spoilt is left for later."""
        try:
            if len(self.twins) * TWIN_EVERY <= len(self.points):
                self._measure_twin()
            self._measure_point(assembled)
        except InfraError as error:
            self.progress.event("grid", f"{self._named(assembled)} is left for later: {str(error).splitlines()[0]}")
            return False
        return True

    def _measure_point(self, assembled: Assembled) -> None:
        started_s = time.monotonic()
        values: dict[str, Any] = {"components": assembled.components, "parameters": dict(assembled.parameters)}
        try:
            name = f"g{len(self.points):03d}"
            ours, theirs = self._beside_control(assembled, name=name)
            windows, control = self._values(ours), self._values(theirs)
            if not all(value > 0 for value in (*windows, *control)):
                raise InfraError("a window without a token: longer ones (--window-s), or a quiet machine")
            values |= {"windows": windows, "control": control, "spans": ours.spans}
        except ServerError as error:
            if error.name == CONTROL_NAME:
                raise
            values["error"] = str(error).splitlines()[0]
        point = Point(**values, measured_at=_now(), seconds=round(time.monotonic() - started_s, 1))
        self.journal.append(POINT, point)
        self.points.append(point)
        told = point.error or f"x{math.exp(point.log_ratio):.3f} of the control"
        self.progress.event("grid", f"{self._named(assembled)}: {told}")

    def _named(self, assembled: Assembled) -> str:
        """Its components, and the setting that is not the default."""
        declared = declared_parameters(self.setting.scaffold, resolve(assembled.components, self.setting.skills))
        values = assembled.parameters.items()
        changes = [f"{name}={value}" for name, value in values if value != declared[name].default]
        return " ".join([", ".join(assembled.components) or "seed", *changes])

    def _measure_twin(self) -> None:
        twin = Assembled(components=self._control_set())
        second, first = self._beside_control(twin, name=f"t{len(self.twins):03d}")
        row = Twin(first=self._values(first), second=self._values(second), measured_at=_now())
        self.journal.append(TWIN, row)
        self.twins.append(row)

    def _beside_control(self, assembled: Assembled, *, name: str) -> tuple[Series, Series]:
        """The point's series and the control's. A control that died is started again once."""
        for is_last in (False, True):
            control = self._running_control()
            server = self._served(assembled, name=name)
            try:
                series = Evaluator(self.bench, RealClock(), progress=self.progress).compare(
                    [Entrant(name=each.name, server=each, is_ours=True) for each in (server, control)],
                    load=self.manner.load, pool=Pool.selection, seed=secrets.randbits(31),
                    num_pairs=self.manner.num_pairs, window_s=self.manner.window_s, warmup_s=self.manner.warmup_s,
                    profiled=name,
                )  # fmt: skip
                return series[name], series[control.name]
            except ServerError as error:
                if error.name != control.name or is_last:
                    raise
                control.stop(drain_s=0)
                self._control = None
            finally:
                server.stop(drain_s=0)
        raise AssertionError("unreachable")

    def _running_control(self) -> Server:
        if self._control is None:
            self._control = self._served(Assembled(components=self._control_set()), name=CONTROL_NAME)
            self._control.pause()
        return self._control

    def _served(self, assembled: Assembled, *, name: str) -> Server:
        workspace = self.folder / "workspaces" / name
        chosen = resolve(assembled.components, self.setting.skills)
        assemble(self.bench.scaffold, chosen, assembled.parameters, workspace)
        self.bench.build(workspace)
        return self.bench.serve(workspace, name=name)

    def _control_set(self) -> tuple[str, ...]:
        return tuple(sorted(skill.name for skill in resolve([CONTROL], self.setting.skills)))

    def _values(self, series: Series) -> tuple[float, ...]:
        return tuple(round(window.get(self.manner.metric, 0.0), 4) for window in series.windows)

    def table(self, *, machine: str) -> Table:
        """What is there so far."""
        manner = self.manner
        return Table(
            target=manner.target, load=manner.load, metric=manner.metric, machine=machine, hardware=manner.hardware,
            date=_now()[:10], window_s=manner.window_s, warmup_s=manner.warmup_s, num_pairs=manner.num_pairs,
            control=Point(components=self._control_set(), parameters={}), points=tuple(self.points),
            twins=tuple(self.twins), num_missing=len(self.todo()),
        )  # fmt: skip


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def main(argv: Sequence[str]) -> int:
    """Command line. Returns 0; SpecError for bad options, InfraError where the machine fails."""
    from vibeserve.config import compose_spec

    options = _parser().parse_args(argv)
    progress = LineProgress(sys.stderr)
    facts = probe()
    plan = compile_plan(compose_spec([f"+target={options.target}", *options.overrides]), facts=facts)
    folder = Path(options.work or state_dir(Path.cwd()) / "bench-grid" / options.target)
    model = materialise(plan.spec.model, cache=cache_dir(), target_dir=plan.spec.target.folder_of(""))
    lease = DeviceLease(devices_of(plan.spec.hardware, facts), root=lease_dir(), run="bench-grid", progress=progress)
    with Journal.open(folder / "grid.jsonl") as journal:
        bench = Workbench.open(plan, model=model, run_dir=folder / "bench", lease=lease)
        skills = load_skills(data_dir("skills"))
        setting = Setting(
            facts=target_facts(plan.spec, cpu_flags=facts.cpu_flags), scaffold=load_scaffold(bench.scaffold),
            skills=skills,
        )  # fmt: skip
        manner = _manner(plan, options, facts=facts, setting=setting)
        grid = Grid(
            bench=bench, setting=setting, manner=manner, journal=journal, progress=progress, folder=folder
        )  # fmt: skip
        path = Path(options.out) if options.out else shipped_table(options.target, FOLDER)
        try:
            with lease.shared("bench-grid"):
                grid.run(limit_s=options.limit_s, max_points=options.points)
        finally:
            table = grid.table(machine=f"{facts.num_cpus} x {facts.cpu_model}")
            write_document(path, table)
    measured = len(table.points)
    sys.stdout.write(f"{path}: {measured} of {measured + table.num_missing} points, {len(table.twins)} A/A series\n")
    return 0


def _manner(plan: Plan, options: argparse.Namespace, *, facts: HardwareFacts, setting: Setting) -> Manner:
    spec = plan.spec
    return Manner(
        target=options.target, hardware=digest_of(identity(facts))[:16],
        metric=spec.goals[0].metric if spec.goals else "request_throughput", load=spec.workload.headline_load,
        window_s=options.window_s, warmup_s=options.warmup_s, num_pairs=options.pairs,
        skills=digest_of({skill.name: skill.digest for skill in setting.skills})[:16],
    )  # fmt: skip


def _parser() -> VerbParser:
    parser = VerbParser(
        "bench-grid", is_task=True, description="Measure every assembly of a target beside one control runtime."
    )
    parser.add_argument("--target", default="smollm2_cpu")
    parser.add_argument("overrides", nargs="*", help="of the target, such as budget=smoke")
    parser.add_argument("--limit-s", type=float, default=float("inf"), help="stop before this time is over")
    parser.add_argument("--points", type=_count, default=10**6, help="at most so many points now")
    parser.add_argument("--pairs", type=_count, default=5, help="windows of each side (default 5)")
    parser.add_argument("--window-s", type=float, default=4.0, help="seconds of a window (default 4)")
    parser.add_argument("--warmup-s", type=float, default=1.0, help="seconds before it (default 1)")
    parser.add_argument("--work", metavar="FOLDER", help="where the work file lies (default: .vibeserve/bench-grid/)")
    parser.add_argument("--out", metavar="FILE", help="the table (default: benchmarks/search/TARGET.json)")
    return parser


def _count(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text} is not 1 or more")
    return number


if __name__ == "__main__":
    sys.exit(within_boundary(lambda argv: main(argv), sys.argv[1:]))
