"""A small skills library and scripted roles, for the tests of the loops.

The skills, the playbook, the fake clock and the checkpoint store are the real ones; what starts processes is scripted
by candidate name.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import yaml

from vibeserve.accuracy import Scores
from vibeserve.agents import Assembled, PlanningState
from vibeserve.agents.playbook import PlaybookEvaluator, PlaybookImplementer, PlaybookJudge
from vibeserve.benchmark import FakeClock
from vibeserve.checkpoint import CheckpointStore
from vibeserve.core.nouns import METRICS, Candidate, Outcome, Proposal, Refusal, Round, Verdict
from vibeserve.core.spent import Spent
from vibeserve.profiles import Profile
from vibeserve.progress import QuietProgress
from vibeserve.roles.evaluator import Entrant, Series
from vibeserve.roles.judge import Screening
from vibeserve.rounds import Checkpoint, Team
from vibeserve.schedules import SCHEDULES
from vibeserve.skills import Skill, TargetFacts, load_scaffold, load_skills
from vibeserve.spec import Budget, Goal, Level, Search, Spec, Workload

SPANS = {"queue": 0.2, "prefill": 0.2, "decode.linear": 0.4, "decode.attention": 0.1, "http": 0.1}
LIMIT = {"type": "int", "default": 8, "range": [1, 64], "tune": [4, 8, 16]}
WRONG_TOKENS = Refusal(gate="accuracy", reason_class="wrong_tokens", text="top-1 agreement 0.50")


def write_skill(library: Path, name: str, *, seams: tuple[str, ...] = ("linear",), **card: Any) -> Path:
    """A skill whose component fills `seams`; further keyword arguments go into its card."""
    folder = library / name
    (folder / "assets").mkdir(parents=True)
    (folder / "SKILL.md").write_text(f"---\nname: {name}\ndescription: What {name} is for.\n---\nBody.\n")
    files = {}
    for seam in seams:
        (folder / f"assets/{seam}.py").write_text(f'"""{seam} of {name}."""\n')
        files[f"assets/{seam}.py"] = f"runtime/{seam}.py"
    data = {"schema_version": 1, "name": name, "seams": list(seams), "files": files, **card}
    (folder / "component.yaml").write_text(yaml.safe_dump(data))
    return folder


def write_scaffold(root: Path) -> Path:
    """One module per seam that the tests touch and one parameter that only a component may raise."""
    (root / "runtime").mkdir(parents=True)
    (root / "tests").mkdir()
    for seam in ("linear", "attention", "scheduler", "model", "sampler"):
        (root / f"runtime/{seam}.py").write_text(f'"""{seam} of the scaffold."""\n')
    for name, text in {"runtime/__init__.py": "", "README.md": "# Runtime\n", "requirements.lock": ""}.items():
        (root / name).write_text(text)
    argv = '["{python}", "-m", "runtime", "--model-dir", "{model_dir}", "--host", "{host}", "--port", "{port}"]'
    (root / "service.yaml").write_text(f"schema_version: 1\nbuild: null\nargv: {argv}\n")
    parameters = {"max_num_seqs": {"type": "int", "default": 1, "range": [1, 1]}}
    (root / "scaffold.yaml").write_text(yaml.safe_dump({"schema_version": 1, "requires": [], "parameters": parameters}))
    return root


def facts(**changes: Any) -> TargetFacts:
    values: dict[str, Any] = {
        "architecture": "llama", "modality": "text", "hardware": "cpu", "cpu_flags": frozenset({"avx512f"}),
        "precision": "same_bytes", "reuse": "none",
    }  # fmt: skip
    return TargetFacts(**(values | changes))


@dataclass
class Library:
    """A skills folder and a scaffold under one root."""

    root: Path

    def __post_init__(self) -> None:
        self.skills_root = self.root / "skills"
        self.skills_root.mkdir(parents=True)
        self.scaffold = write_scaffold(self.root / "scaffold")

    def add(self, name: str, **card: Any) -> None:
        write_skill(self.skills_root, name, **card)

    @property
    def skills(self) -> list[Skill]:
        return load_skills(self.skills_root)

    def state(
        self, *components: str, parameters: dict[str, Any] | None = None, records: Sequence[Round] = (), **changes: Any
    ) -> PlanningState:
        values: dict[str, Any] = {
            "facts": facts(), "scaffold": load_scaffold(self.scaffold), "skills": self.skills, "spans": SPANS,
            "incumbent": Assembled(components=components, parameters=parameters or {}), "records": list(records),
            "min_effect": 0.02,
        }  # fmt: skip
        return PlanningState(**(values | changes))


def tried(proposal: Proposal | None, outcome: Outcome = Outcome.REJECTED, **changes: Any) -> Round:
    """The record of a round that tried `proposal`."""
    assert proposal is not None
    return Round(number=1, proposal=proposal, candidate=None, outcome=outcome, reason="scripted", **changes)


@dataclass
class FakeServer:
    name: str
    base_url: str = "http://127.0.0.1:8000"
    startup_s: float = 0.5
    status: int | None = None
    is_paused: bool = False
    num_stops: int = 0
    outcome: str = "died"

    def pause(self) -> None:
        self.is_paused = True

    def resume(self) -> None:
        self.is_paused = False

    def poll(self) -> int | None:
        return self.status

    def log_tail(self) -> str:
        return "the last line of the log"

    def peak_memory_gib(self) -> float:
        return 1.0

    def cpu_s(self) -> float:
        return 0.0

    def check_counted(self, *, cpu_s: float) -> None:
        assert cpu_s == self.cpu_s()

    def stop(self, *, drain_s: float = 10.0) -> bool:
        self.num_stops += 1
        return True


@dataclass
class RecordingLease:
    """Grants everything at once, and knows how it is held. `held` lists what is held now, the innermost last."""

    held: list[tuple[str, str]] = field(default_factory=list)
    granted: list[tuple[str, str]] = field(default_factory=list)

    @property
    def is_exclusive(self) -> bool:
        return any(mode == "exclusive" for mode, _ in self.held)

    @contextmanager
    def _block(self, mode: str, what: str) -> Iterator[None]:
        self.held.append((mode, what))
        self.granted.append((mode, what))
        try:
            yield
        finally:
            self.held.pop()

    def shared(self, what: str) -> AbstractContextManager[None]:
        return self._block("shared", what)

    def exclusive(self, what: str) -> AbstractContextManager[None]:
        return self._block("exclusive", what)

    @contextmanager
    def aside(self) -> Iterator[None]:
        outer, self.held = self.held, []
        self.granted.append(("aside", ""))
        try:
            yield
        finally:
            self.held = outer

    def monotonic(self) -> float:
        return time.monotonic()


@dataclass
class FakeBench:
    """Serves everything at once. `failures` maps a candidate's name to what its start, or its build, raises."""

    plan: Any
    run_dir: Path
    failures: dict[str, Exception] = field(default_factory=dict)
    build_failures: dict[str, Exception] = field(default_factory=dict)
    servers: list[FakeServer] = field(default_factory=list)
    lease: RecordingLease = field(default_factory=RecordingLease)
    spent: Spent = field(default_factory=Spent)
    metrics: Any = field(default_factory=lambda: METRICS)

    def build(self, workspace: Path) -> None:
        if workspace.name in self.build_failures:
            raise self.build_failures[workspace.name]

    def serve(self, workspace: Path, *, name: str) -> FakeServer:
        assert (workspace / "runtime").is_dir(), f"{workspace} is no workspace"
        if name in self.failures:
            raise self.failures[name]
        self.servers.append(FakeServer(name))
        return self.servers[-1]


@dataclass
class FakeJudge:
    """`screened` and `judged` map a candidate's name to the refusals before and after it was measured, `failed` are
    those of the runtime's own tests."""

    bench: FakeBench
    screened: dict[str, tuple[Refusal, ...]] = field(default_factory=dict)
    judged: dict[str, tuple[Refusal, ...]] = field(default_factory=dict)
    failed: tuple[Refusal, ...] = ()
    not_probed: tuple[str, ...] = ()
    calls: list[str] = field(default_factory=list)

    def screen(self, workspace: Path, *, name: str, seed: int, is_thorough: bool = False) -> Screening:
        self.calls.append(f"screen {name}")
        refusals = self.screened.get(name, ())
        server: Any = None if refusals else self.bench.serve(workspace, name=name)
        return Screening(
            refusals=refusals, checks=("scan",), server=server, before=None, not_run=self.not_probed  # type: ignore[arg-type]
        )  # fmt: skip

    def screen_statically(self, workspace: Path) -> Screening | None:
        """Of those to be screened out, the ones that the scan or the build refuses."""
        self.calls.append(f"static {workspace.name}")
        found = tuple(r for r in self.screened.get(workspace.name, ()) if r.gate in ("scan", "build"))
        return Screening(refusals=found, checks=("scan",), server=None, before=None) if found else None  # type: ignore[arg-type]

    def own_tests(self, workspace: Path) -> list[Refusal]:
        self.calls.append("own tests")
        return list(self.failed)

    def verdict(self, replies: Any, *, name: str, added: Sequence[Refusal] = (), **_: Any) -> tuple[Verdict, Scores]:
        self.calls.append(f"verdict {name}")
        refusals = (*self.judged.get(name, ()), *added)
        return Verdict(refusals=refusals, accuracy={"top1_agreement": 0.99}, checks=("accuracy",)), Scores()


@dataclass
class FakeEvaluator:
    """Windows from the clock's declared factors. `failures` maps a candidate's name to what comparing it raises."""

    clock: FakeClock
    failures: dict[str, Exception] = field(default_factory=dict)
    compared: list[tuple[str, ...]] = field(default_factory=list)
    halved: list[tuple[str, ...]] = field(default_factory=list)
    profiles: dict[str, Profile] = field(default_factory=dict)
    """of candidates, by name"""
    profiled_names: list[str] = field(default_factory=list)
    scaled: dict[str, dict[str, float]] = field(default_factory=dict)
    """factors on a candidate's metrics, beside the clock's"""
    truth: Callable[[str], float] | None = None
    """ratio over the seed by candidate, in place of what the cards claim"""
    refused: dict[str, tuple[Refusal, ...]] = field(default_factory=dict)
    """what a candidate's windows show by their timing"""

    def compare(self, entrants: Sequence[Entrant], *, num_pairs: int, **_: Any) -> dict[str, Series]:
        self.compared.append(tuple(entrant.name for entrant in entrants))
        for entrant in entrants:
            if entrant.name in self.failures:
                raise self.failures[entrant.name]
        return {entrant.name: self._series(entrant.name, num_pairs) for entrant in entrants}

    def profiled(self, row: Series, entrant: Entrant, **_: Any) -> Series:
        self.profiled_names.append(entrant.name)
        return replace(row, profile=self.profiles.get(entrant.name))

    def halve(self, entrants: Sequence[Entrant], **_: Any) -> str:
        self.halved.append(tuple(entrant.name for entrant in entrants))
        return entrants[-1].name

    def _series(self, name: str, num_pairs: int) -> Series:
        if self.truth is not None:
            self.clock.declare(name, factor=self.truth(name))
        read = self.clock.read(name, [{"peak_memory": 1.0}] * num_pairs)
        factors = self.scaled.get(name, {})
        windows = tuple({key: value * factors.get(key, 1.0) for key, value in window.items()} for window in read)
        refusals = self.refused.get(name, ())
        return Series(name=name, windows=windows, replies=(), spans=dict(SPANS), refusals=refusals)


def small_spec(**budget: Any) -> Spec:
    """A spec that decides on output throughput at one load."""
    spec = Spec(budget=Budget(**{"level": Level.quick, **budget}), search=Search(patience=2), workload=Workload())
    spec.goals = [Goal(metric="output_throughput", min_ratio=1.5, against="naive")]
    return spec


def make_team(library: Library, folder: Path, *, spec: Spec | None = None) -> Team:
    """A team over scripted roles; state lies in `folder`, as a run's would."""
    plan = SimpleNamespace(spec=spec or small_spec(), schedule=SCHEDULES[Level.quick], engine_cpus=(0, 1))
    bench, clock = FakeBench(plan=plan, run_dir=folder), FakeClock()
    return Team(
        bench=bench, judge=FakeJudge(bench), evaluator=FakeEvaluator(clock), clock=clock,  # type: ignore[arg-type]
        implementer=PlaybookImplementer(library.scaffold, skills=library.skills), reviewer=PlaybookJudge(),
        explainer=PlaybookEvaluator(),
        scaffold=load_scaffold(library.scaffold), skills=library.skills, store=CheckpointStore(folder / "store.git"),
        progress=QuietProgress(), run_id="run-1",
    )  # fmt: skip


@dataclass
class LibrarySeed:
    """Round 0 is the library's scaffold."""

    library: Library
    origin: str = "scaffold"

    def materialise(self, destination: Path) -> None:
        from vibeserve.skills import assemble

        assemble(self.library.scaffold, [], {}, destination)


def seed_checkpoint(team: Team, library: Library) -> Checkpoint:
    """Round 0's checkpoint without a round."""
    workspace = team.bench.run_dir / "workspaces" / "r00a1"
    LibrarySeed(library).materialise(workspace)
    commit = team.store.commit(workspace, parent=None, message="seed", ref="refs/vibeserve/seeds/r00a1")
    candidate = Candidate(candidate_id="r00a1", commit=commit, workspace=str(workspace), origin="scaffold")
    team.clock.declare("r00a1", factor=1.0)
    return Checkpoint(candidate=candidate, assembled=Assembled(), workspace=workspace, spans=SPANS, num_lines=10)
