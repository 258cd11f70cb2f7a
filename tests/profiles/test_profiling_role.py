"""Taking a profile: when none is taken, how slices take turns, and that no tool and no server can spoil a round."""

from __future__ import annotations

import stat
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from load_samples import PIECES, reply, text_bundle
from loop_fakes import FakeServer, RecordingLease
from plan_samples import CPU, SMOLLM2, spec_of
from profile_samples import FOLDED, profile_sample

from vibeserve.benchmark import RealClock
from vibeserve.core.nouns import Reply
from vibeserve.core.spent import Spent
from vibeserve.errors import InfraError, ServerError
from vibeserve.plan.nouns import Roof
from vibeserve.plan.steps import PROFILE_S, plan_steps
from vibeserve.profiles import LinuxPerf, Profile, PySpy, Recording, Target, profile_lines
from vibeserve.profiles import linux_perf as perf_module
from vibeserve.profiles.py_spy import command_line
from vibeserve.profiles.samples import NativeSample, parse_folded
from vibeserve.profiles.tools import find_tool, run_tool
from vibeserve.progress import QuietProgress
from vibeserve.roles.evaluator import Entrant, Evaluator, Series
from vibeserve.roles.profiling import NUM_EACH, SLICE_S, Profiling
from vibeserve.schedules import SCHEDULES
from vibeserve.spec import Budget, ClockKind, Level, ProfileKind, Spec
from vibeserve.workloads import Pool

SPANS = {"decode.linear": 0.75, "queue": 0.25}


@dataclass
class Stage:
    """One clock for load, slices and tools. `speed` is tokens per second, under a profiler times `effect`."""

    now_s: float = 0.0
    effect: float = 1.0
    tokens: list[float] = field(default_factory=list)
    log: list[str] = field(default_factory=list)

    def go(self, seconds: float, *, speed: float = 100.0) -> None:
        num = int(seconds * speed)
        self.tokens += [self.now_s + seconds * (n + 0.5) / num for n in range(num)]
        self.now_s += seconds

    def sleep(self, seconds: float) -> None:
        self.log.append(f"sleep {seconds:g}")
        self.go(seconds)


@dataclass
class StagedSession:
    stage: Stage
    server: FakeServer
    is_started: bool = False
    error: InfraError | None = None

    def start(self) -> None:
        assert not self.server.is_paused, "a load needs a server that runs"
        self.is_started = True

    def active_now_s(self) -> float:
        return self.stage.now_s

    def check(self) -> None:
        if self.error is not None:
            raise self.error

    def stop(self) -> list[Reply]:
        self.stage.log.append("stop")
        return [reply([(at_s, PIECES[0])], scheduled_s=at_s - 0.001) for at_s in self.stage.tokens]


@dataclass
class StagedTool:
    stage: Stage
    name: str = "stacks"
    missing: str = ""
    recording: Recording = field(default_factory=lambda: Recording(stacks=tuple(parse_folded(FOLDED))))

    def why_not(self) -> str:
        return self.missing

    def record(self, target: Target, *, seconds: int) -> Recording:
        assert target.folder.is_dir() and list(target.wrap(["tool"])) == ["join", "tool"]
        self.stage.log.append(f"{self.name} {seconds}")
        self.stage.go(seconds, speed=100.0 * self.stage.effect)
        return self.recording

    def read(self, recording: Recording) -> Recording:
        self.stage.log.append(f"read {self.name}")
        return recording


@dataclass
class Rig:
    root: Path
    stage: Stage = field(default_factory=Stage)
    server: Any = field(default_factory=lambda: FakeServer("r01a1", is_paused=True))
    lease: RecordingLease = field(default_factory=RecordingLease)
    spec: Spec = field(default_factory=Spec)

    def __post_init__(self) -> None:
        self.server.process = SimpleNamespace(descendants=list)
        self.session = StagedSession(self.stage, self.server)
        self.stacks, self.perf = StagedTool(self.stage), StagedTool(self.stage, name="perf")
        self.perf.recording = Recording(native=(NativeSample(1, "mkl_sgemm", "libtorch_cpu.so"),))
        (self.root / "runtime").mkdir()

    def take(self, *, reply_s: float = 0.0) -> Profile | None:
        plan = SimpleNamespace(spec=self.spec, client_cpus=(1,), decode=(), roof=Roof(bandwidth_gb_s=10.0))
        bench: Any = SimpleNamespace(
            plan=plan, run_dir=self.root, lease=self.lease, spent=Spent(), bundle=text_bundle(),
            session=lambda server, **_: self.session,
            host=SimpleNamespace(join_argv=lambda process, argv, cpus: ["join", *argv]),
        )  # fmt: skip
        profiling = Profiling(bench=bench, stacks=self.stacks, native=self.perf, sleep=self.stage.sleep)
        return profiling.take(
            self.server, workspace=self.root, load="c4", pool=Pool.selection, seed=1, spans=SPANS, reply_s=reply_s
        )  # fmt: skip


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    return Rig(tmp_path)


def test_control_and_profiled_slices_take_turns_and_native_symbols_come_last(rig: Rig) -> None:
    profile = rig.take()
    assert rig.stage.log == [
        "sleep 1", f"sleep {SLICE_S}", f"stacks {SLICE_S}", f"stacks {SLICE_S}", f"sleep {SLICE_S}", "perf 1", "stop",
        "read perf",
    ]  # fmt: skip
    assert profile is not None and profile.is_timed and profile.tool == "stacks"
    assert profile.observed is not None and profile.observed.ratio == pytest.approx(1.0, abs=0.02)
    assert profile.observed.num_slices == NUM_EACH and profile.observed.metric == "output_throughput"
    assert profile.bottlenecks[0].name == "sampler" and profile.num_samples == 400
    assert [each.name for each in profile.structure.symbols] == ["mkl_sgemm"]
    assert rig.server.is_paused, "what comes next runs alone"
    assert rig.lease.granted == [("exclusive", "profile of r01a1")] and rig.lease.held == []


@pytest.mark.parametrize(("reply_s", "num_each"), [(0.5, 2), (2.6, 2), (3.0, 3), (5.0, 4), (6.1, 5), (90.0, 6)])
def test_slow_replies_are_looked_at_for_longer(rig: Rig, reply_s: float, num_each: int) -> None:
    """A look that is shorter than a reply falls into its prefill or beside it."""
    profile = rig.take(reply_s=reply_s)
    assert rig.stage.log.count(f"stacks {SLICE_S}") == rig.stage.log.count(f"sleep {SLICE_S}") == num_each
    assert profile is not None and profile.observed is not None and profile.observed.num_slices == num_each


@pytest.mark.parametrize("effect", [0.7, 1.4])
def test_a_profiler_that_changes_the_speed_leaves_facts_of_structure(rig: Rig, effect: float) -> None:
    rig.stage.effect = effect
    profile = rig.take()
    assert profile is not None and not profile.is_timed and profile.bottlenecks == ()
    assert "runtime/sampler.py:spin" in profile.structure.functions and profile.structure.symbols
    assert f"{effect:.2f} of the control's output_throughput: not timed" in profile_lines(profile)[0]


def test_under_a_fake_clock_and_where_it_is_off_no_tool_is_asked(rig: Rig) -> None:
    rig.stacks.missing = "must not be asked"
    rig.spec.evaluation.clock = ClockKind.fake
    assert rig.take() is None
    rig.spec.evaluation.clock = ClockKind.real
    rig.spec.evaluation.profile = ProfileKind.off
    assert rig.take() is None
    assert rig.stage.log == [] and rig.lease.granted == []


def test_spans_alone_are_the_servers_own_word_and_take_no_time(rig: Rig) -> None:
    rig.spec.evaluation.profile = ProfileKind.spans
    profile = rig.take()
    assert profile is not None and profile.is_own_word and profile.tool == "spans" and not profile.is_timed
    assert [row.name for row in profile.bottlenecks] == ["decode.linear", "queue"]
    assert rig.stage.log == []


@pytest.mark.parametrize("kind", [ProfileKind.auto, ProfileKind.stacks])
def test_without_the_tool_the_profile_says_how_to_install_it(rig: Rig, kind: ProfileKind) -> None:
    rig.spec.evaluation.profile = kind
    rig.stacks.missing = "py-spy: not installed; next: pip install py-spy"
    profile = rig.take()
    assert profile is not None and profile.is_own_word
    assert profile.notes == ("py-spy: not installed; next: pip install py-spy",)
    assert rig.stage.log == []


def test_without_perf_the_rest_stands_and_a_note_says_what_is_missing(rig: Rig) -> None:
    rig.perf.missing = "perf: not installed"
    profile = rig.take()
    assert profile is not None and profile.is_timed and profile.notes == ("perf: not installed",)
    assert profile.structure.symbols == ()


def test_a_tool_that_fails_is_a_note(rig: Rig) -> None:
    rig.stacks.recording = Recording(why_not="py-spy: may not")
    profile = rig.take()
    assert profile is not None and profile.bottlenecks == () and profile.structure.functions == ()
    assert profile.notes[:1] == ("py-spy: may not",)


def test_a_server_that_dies_under_it_is_a_note_and_no_outcome(rig: Rig) -> None:
    rig.session.error = ServerError("r01a1", outcome="died", detail="exit status -9", log_tail="")
    profile = rig.take()
    assert profile is not None and profile.is_own_word
    assert profile.notes == ("not profiled: server 'r01a1' died: exit status -9",)
    assert "stop" in rig.stage.log and rig.lease.held == []


# -- the tools' own programs


def program(path: Path, script: str) -> str:
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return str(path)


def target(folder: Path, pids: Sequence[int] = (7, 8)) -> Target:
    return Target(pids=lambda: pids, folder=folder)


def test_py_spy_looks_from_outside_and_stops_nothing(tmp_path: Path) -> None:
    argv = command_line("/bin/py-spy", pid=7, seconds=2, output=tmp_path / "o")
    assert argv[:4] == ["/bin/py-spy", "record", "--pid", "7"]
    assert {"--nonblocking", "--subprocesses", "--threads"} <= set(argv) and "--native" not in argv


def test_what_py_spy_writes_is_read_and_removed(tmp_path: Path) -> None:
    (tmp_path / "recorded").write_text(FOLDED)
    fake = program(tmp_path / "py-spy", f'for last; do :; done; cp {tmp_path}/recorded "$last"')
    (tmp_path / "folder").mkdir()
    recording = PySpy(fake).record(target(tmp_path / "folder"), seconds=1)
    assert (len(recording.stacks), recording.why_not) == (8, "")
    assert list((tmp_path / "folder").iterdir()) == []


@pytest.mark.parametrize(
    ("script", "told"),
    [
        ("echo 'Error: Permission Denied: Try running again with elevated permissions' >&2; exit 1",
         "py-spy: Error: Permission Denied: Try running again with elevated permissions; it may not read the server's "
         "memory; next: run as root, or `sysctl kernel.yama.ptrace_scope=0`"),
        ("exit 3", "py-spy: exit status 3"), ("exit 0", "py-spy: no stack of Python was seen"),
    ],
)  # fmt: skip
def test_py_spy_that_fails_says_why_and_what_to_do(tmp_path: Path, script: str, told: str) -> None:
    recording = PySpy(program(tmp_path / "py-spy", script)).record(target(tmp_path), seconds=1)
    assert (recording.stacks, recording.why_not) == ((), told)


def test_a_server_without_a_process_is_told(tmp_path: Path) -> None:
    fake = program(tmp_path / "py-spy", "exit 0")
    assert "no process any more" in PySpy(fake).record(target(tmp_path, ()), seconds=1).why_not


def test_a_program_that_is_not_there_is_a_problem_and_no_crash(tmp_path: Path) -> None:
    assert "No such file" in run_tool([str(tmp_path / "gone")], timeout_s=5).problem
    assert run_tool(["sleep", "5"], timeout_s=0.1).problem == "did not end within 0.1 s"
    assert find_tool("no-such-profiler") is None


def test_a_tool_that_would_fill_the_disk_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A candidate chooses how many stacks there are and how long their names."""
    monkeypatch.setattr("vibeserve.profiles.tools.MAX_FILE_BYTES", 1 << 16)
    fake = program(tmp_path / "py-spy", 'for last; do :; done; exec head -c 1000000 /dev/zero > "$last"')
    recording = PySpy(fake).record(target(tmp_path), seconds=1)
    assert recording.stacks == () and recording.why_not.startswith("py-spy: ")
    assert [path.name for path in tmp_path.iterdir()] == ["py-spy"]


def test_the_evaluator_keeps_the_profile_with_the_windows_and_tells_of_it(rig: Rig) -> None:
    told = QuietProgress()
    profiling: Any = SimpleNamespace(take=lambda server, **given: profile_sample(load=given["load"]))
    evaluator = Evaluator(SimpleNamespace(), RealClock(), progress=told, profiling=profiling)  # type: ignore[arg-type]
    row = Series(name="r01a1", windows=({"output_throughput": 1.0},), replies=(), spans=SPANS)
    entrant = Entrant(name="r01a1", server=rig.server)
    kept = evaluator.profiled(row, entrant, workspace=rig.root, load="c4", pool=Pool.selection, seed=1)
    assert kept.profile == profile_sample() and kept.windows == row.windows
    assert [stage for stage, _ in told.events] == ["profile"] and told.events[0][1].startswith("stacks, 398 samples")


def test_a_plan_counts_what_profiles_take() -> None:
    def minutes(kind: ProfileKind, clock: ClockKind = ClockKind.real) -> float:
        spec = spec_of(SMOLLM2, CPU, budget=Budget(rounds=4, attempts=1, wall_s=1e6))
        spec.evaluation.profile, spec.evaluation.clock = kind, clock
        steps = plan_steps(spec, SCHEDULES[Level.standard])
        return next(step.minutes for step in steps if step.name == "synthesize")

    assert minutes(ProfileKind.auto) - minutes(ProfileKind.off) == pytest.approx(5 * PROFILE_S / 60, abs=0.02)
    assert minutes(ProfileKind.spans) == minutes(ProfileKind.off)
    assert minutes(ProfileKind.auto, ClockKind.fake) == minutes(ProfileKind.off, ClockKind.fake)


def test_without_either_program_both_say_how_to_get_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("vibeserve.profiles.py_spy.find_tool", lambda name: None)
    monkeypatch.setattr(perf_module, "find_tool", lambda name: None)
    assert PySpy().why_not() == "py-spy: not installed; next: pip install py-spy"
    assert PySpy().record(target(tmp_path), seconds=1).why_not == PySpy().why_not()
    assert LinuxPerf().why_not().startswith("perf: not installed, so no native symbol is known; next: install linux-")


def test_perf_records_first_and_looks_names_up_afterwards(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    script = Path(__file__).parent / "perf_script.txt"
    fake = program(
        tmp_path / "perf",
        f'if [ "$1" = script ]; then cat {script}; exit; fi\n'
        'echo "$@" > "' + str(tmp_path) + '/asked"; while [ "$1" != --output ]; do shift; done; echo x > "$2"',
    )
    monkeypatch.setattr(perf_module, "find_tool", lambda name: fake)
    recording = LinuxPerf().record(target(tmp_path), seconds=1)
    asked = (tmp_path / "asked").read_text()
    assert "record --pid 7,8 " in asked and "cpu-clock" in asked and asked.endswith("-- sleep 1\n")
    assert recording.native == () and recording.data is not None and recording.data.is_file()
    read = LinuxPerf().read(recording)
    assert len(read.native) == 6 and not recording.data.exists()


def test_perf_that_may_not_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    fake = program(tmp_path / "perf", "echo 'Error:\nAccess to performance monitoring is limited.' >&2; exit 255")
    monkeypatch.setattr(perf_module, "find_tool", lambda name: fake)
    recording = LinuxPerf().record(target(tmp_path), seconds=1)
    assert recording.why_not.startswith("perf: Error:") and "perf_event_paranoid" in recording.why_not
