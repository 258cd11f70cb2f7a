"""What is stopped between windows stands still, by whichever means it was stopped, and what does not is told."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from vibeserve.sandbox import (
    Resources,
    Wall,
    hierarchies,
    launch,
    probe_limits,
    probe_tiers,
    spawn,
    sweep_orphans,
)
from vibeserve.sandbox.cgroups import Cgroup
from vibeserve.sandbox.cleanliness import leaderless
from vibeserve.sandbox.hierarchies import cgroup_of, make_cgroup, remove_stale
from vibeserve.sandbox.tree import is_running, read_stat, threads
from vibeserve.spec import Tier

MEANS = (("A", "cgroup v2"), ("B", "cgroup v2"), ("B", "cgroup v1"), ("A", "SIGSTOP"), ("B", "no group"))
"""tier and means of stopping; without a freezer there may be other groups, or none at all"""

BUSY = """
import threading
def work():
    while True:
        sum(range(1000))
for _ in range(2):
    threading.Thread(target=work, daemon=True).start()
print("up", flush=True)
work()
"""
# timers whose signal is SIGCONT; struct sigevent: value, signal, kind. Many, for a stop drops those that are pending
WAKES_ITSELF = """
import ctypes, signal
signal.signal(signal.SIGCONT, lambda *_: None)
libc = ctypes.CDLL(None, use_errno=True)
for number in range(20):
    event, timer = (ctypes.c_int * 16)(), ctypes.c_void_p()
    event[2] = 18
    assert libc.timer_create(1, ctypes.byref(event), ctypes.byref(timer)) == 0
    every = (ctypes.c_long * 4)(1, 0, 0, 1 + number * 50_000_000)
    assert libc.timer_settime(timer, 0, ctypes.byref(every), None) == 0
print("up", flush=True)
while True:
    sum(range(1000))
"""
LEADERLESS = """
import ctypes, threading
block = bytearray(b"x" * (64 << 20))
def work():
    while True:
        sum(range(1000))
threading.Thread(target=work).start()
print("up", flush=True)
ctypes.CDLL(None).pthread_exit(None)
"""
HOPS = """
import os, signal, time
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
if os.fork() == 0:
    end = time.monotonic() + 20
    while time.monotonic() < end:
        os.write(1, b".")
        if os.fork():
            os._exit(0)
    os._exit(0)
print("up", flush=True)
time.sleep(60)
"""


@pytest.fixture
def tier(request: pytest.FixtureRequest) -> Tier:
    """Tier A and B, or the one that goes with a means of stopping."""
    name = getattr(request, "param", "B")
    if probe_tiers()[name] != "available":
        pytest.skip(f"tier {name}: {probe_tiers()[name]}")
    return Tier(name)


@pytest.fixture
def stopped_by(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """A means of stopping, where this machine has it."""
    means = str(request.param)
    if means == "no group":
        monkeypatch.setattr(launch, "make_cgroup", lambda *_, **__: Cgroup(pids=None, memory=None))
        return "SIGSTOP"
    can_freeze = hierarchies._can_freeze

    def chosen(parent: Path) -> bool:
        is_v1 = (parent / "release_agent").exists() or parent.name == "freezer"
        return can_freeze(parent) and means == ("cgroup v1" if is_v1 else "cgroup v2")

    monkeypatch.setattr(hierarchies, "_can_freeze", chosen)
    group = make_cgroup("probe", Resources())
    group.remove()
    if group.stopped_by != means:
        pytest.skip(f"{means}: no such group can be made here")
    return means


def _up(process, until: Callable[..., None]) -> None:
    until(lambda: "up" in process.log_tail())


@pytest.mark.parametrize(("tier", "stopped_by"), MEANS, indirect=True)
def test_what_is_stopped_uses_nothing_and_goes_on(make_wall, start, until, stopped_by: str) -> None:
    process = start(BUSY, wall=make_wall())
    _up(process, until)
    assert process.stopped_by == stopped_by
    for _ in range(3):
        process.pause()
        before_s = process.cpu_s()
        time.sleep(0.1)
        assert process.cpu_s() - before_s < 0.02
        process.pause()  # once more changes nothing
        assert process.is_paused
        process.resume()
        assert (process.moved, process.is_paused) == ("", False)
        until(lambda before_s=before_s: process.cpu_s() > before_s + 0.02)
    assert process.poll() is None


@pytest.mark.slow
@pytest.mark.parametrize(("tier", "stopped_by"), MEANS, indirect=True)
def test_what_is_stopped_can_be_killed(make_wall, start, until, stopped_by: str) -> None:
    process = start(BUSY, wall=make_wall())
    _up(process, until)
    process.pause()
    inside, folders = process.descendants(), process.cgroup.folders
    process.kill_tree()
    assert inside and not any(map(is_running, inside))
    assert not any(folder.exists() for folder in folders)


@pytest.mark.slow
@pytest.mark.parametrize("stopped_by", ["cgroup v2", "cgroup v1", "SIGSTOP", "no group"], indirect=True)
def test_a_timer_that_undoes_the_stop_is_told_or_undoes_nothing(tmp_path: Path, start, until, stopped_by: str) -> None:
    """Tier C: behind a wall such a timer cannot be made."""
    process = start(WAKES_ITSELF, wall=Wall(tier=Tier.C, workdir=tmp_path))
    _up(process, until)
    process.pause()
    before_s = process.cpu_s()
    if stopped_by == "SIGSTOP":
        until(lambda: process.cpu_s() > before_s + 0.05)
    else:
        time.sleep(0.3)
        assert process.cpu_s() < before_s + 0.02
    process.resume()
    if stopped_by == "SIGSTOP":
        assert "of CPU time while it was stopped; at most 0.02 s is allowed" in process.moved
        assert process.poll() is not None
    else:
        assert process.moved == "" and process.poll() is None


@pytest.mark.slow
@pytest.mark.parametrize(("tier", "stopped_by"), MEANS, indirect=True)
def test_what_is_woken_from_outside_is_told(make_wall, start, until, stopped_by: str) -> None:
    """Whoever sends the signal: new threads, CPU time or threads that are awake tell. A freezer heeds no signal."""
    script = "import time; print('up', flush=True)\nwhile True: time.sleep(0.001)"
    process = start(script, wall=make_wall())
    _up(process, until)
    process.pause()
    for pid in process.descendants():
        os.kill(pid, signal.SIGCONT)
    time.sleep(0.1)
    process.resume()
    assert bool(process.moved) == (stopped_by == "SIGSTOP"), process.moved


@pytest.mark.parametrize(("tier", "stopped_by"), MEANS, indirect=True)
def test_a_process_without_its_first_thread_is_stopped_counted_and_killed(
    make_wall, start, until, stopped_by: str
) -> None:
    process = start(LEADERLESS, wall=make_wall())
    _up(process, until)
    until(lambda: any(stat.is_leaderless for stat in map(read_stat, process.descendants()) if stat is not None))
    until(lambda: process.cpu_s() > 0.05)
    assert process.rss_gib() > 0.06
    (found,) = leaderless(process)
    assert found.kind == "leaderless_process"
    process.pause()
    before_s = process.cpu_s()
    time.sleep(0.1)
    assert process.cpu_s() - before_s < 0.02
    process.resume()
    assert process.moved == ""
    inside = process.descendants()
    process.kill_tree()
    assert inside and not any(map(is_running, inside))


@pytest.mark.slow
@pytest.mark.parametrize("tier", ["A", "B"], indirect=True)
def test_an_honest_process_has_its_first_thread(make_wall, start, until) -> None:
    process = start(BUSY, wall=make_wall())
    _up(process, until)
    assert leaderless(process) == []
    assert len(threads(process.descendants()[-1])) == 3


@pytest.mark.slow
@pytest.mark.parametrize(("tier", "stopped_by"), MEANS, indirect=True)
def test_what_hops_from_process_to_process_is_frozen(make_wall, start, until, stopped_by: str) -> None:
    if stopped_by == "SIGSTOP":
        pytest.skip("signals reach it by chance only; docs/wall.md says so")
    process = start(HOPS, wall=make_wall())
    _up(process, until)
    process.pause()
    size = process.log.stat().st_size
    time.sleep(0.2)
    assert process.log.stat().st_size == size
    process.resume()
    until(lambda: process.log.stat().st_size > size)
    assert process.moved == ""


@pytest.mark.parametrize("tier", ["A", "B"], indirect=True)
def test_memory_that_nobody_maps_is_counted_where_the_kernel_counts(make_wall, start, until) -> None:
    script = """
        import os, time
        hidden = os.memfd_create("hidden")
        for _ in range(128):
            os.write(hidden, bytes(1 << 20))
        print("up", flush=True)
        time.sleep(60)
    """
    process = start(script, wall=make_wall())
    _up(process, until)
    if process.memory_counted_by == "processes":
        assert process.rss_gib() < 0.1
    else:
        assert process.rss_gib() > 0.12


@pytest.mark.slow
@pytest.mark.parametrize("tier", ["A", "B"], indirect=True)
def test_memory_that_nobody_maps_is_seen_while_it_lasts(make_wall, start, until) -> None:
    """Between two questions, too: it is sampled."""
    script = """
        import os, time
        hidden = os.memfd_create("hidden")
        for _ in range(128):
            os.write(hidden, bytes(1 << 20))
        while not os.path.exists("enough"):
            time.sleep(0.05)
        os.close(hidden)
        print("up", flush=True)
        time.sleep(60)
    """
    wall = make_wall()
    process = start(script, wall=wall)
    if process.memory_counted_by == "processes":
        pytest.skip("no memory control group can be made here")
    until(lambda: process.guard.peak_own_bytes > 128 << 20)
    (wall.workdir / "enough").touch()
    _up(process, until)
    assert process.cgroup.own_bytes() < 64 << 20
    assert process.rss_gib() > 0.12


def test_the_dead_are_not_stopped(make_wall, tmp_path: Path) -> None:
    """At once: there is no group any more that could say that it stands."""
    process = spawn(["/bin/true"], wall=make_wall(), log=tmp_path / "log")
    process.wait(20)
    process.kill_tree()
    process.pause()
    assert not process.is_paused
    process.resume()
    assert process.cgroup.freeze() == (process.stopped_by != "SIGSTOP")
    assert process.moved == ""


@pytest.mark.slow
@pytest.mark.parametrize("tier", ["A", "B"], indirect=True)
def test_what_was_read_from_files_is_no_memory(make_wall, start, until, tmp_path: Path) -> None:
    """Whether a page of the weights is charged to a group depends on who read it first, so none is."""
    (tmp_path / "inside" / "weights").write_bytes(bytes(128 << 20))
    script = """
        import time
        with open("weights", "rb") as stream:
            while stream.read(1 << 20):
                pass
        print("up", flush=True)
        time.sleep(60)
    """
    process = start(script, wall=make_wall())
    _up(process, until)
    assert process.rss_gib() < 0.1


@pytest.mark.parametrize("tier", ["A", "B"], indirect=True)
def test_the_inside_cannot_leave_its_groups(make_wall, answer, tmp_path: Path) -> None:
    groups = cgroup_of("x")
    if not groups.folders:
        pytest.skip("no group can be made here")
    parents = sorted({str(folder.parent) for folder in groups.folders})
    script = f"""
        import json, os
        found = []
        for folder in {parents!r}:
            for name in ("cgroup.procs", "tasks", "cgroup.freeze"):
                try:
                    with open(os.path.join(folder, name), "w") as stream:
                        stream.write("0")
                    found.append(folder)
                except OSError:
                    pass
            try:
                found += os.listdir(folder)
            except OSError:
                pass
        print(json.dumps(found))
    """
    assert answer(script, wall=make_wall()) == []


@pytest.mark.slow
@pytest.mark.parametrize("tier", ["A", "B"], indirect=True)
def test_whatever_is_forked_is_in_the_groups(make_wall, start, until) -> None:
    script = """
        import os, time
        if os.fork() == 0:
            os.setsid()
            if os.fork() == 0:
                print("up", flush=True)
                time.sleep(60)
        time.sleep(60)
    """
    process = start(script, wall=make_wall())
    _up(process, until)
    if not process.cgroup.folders:
        pytest.skip("no group can be made here")
    for folder in process.cgroup.folders:
        inside = {int(line) for line in (folder / "cgroup.procs").read_text().split()}
        assert set(process.descendants()) <= inside
        assert process.pid not in inside  # the outer process is never frozen


# -- nothing is left behind


CONTROLLER = """
import sys, time
from pathlib import Path
from vibeserve.sandbox import Wall, hierarchies, spawn
from vibeserve.spec import Tier
folder = Path({folder!r})
if {means!r} == "cgroup v1":
    can_freeze = hierarchies._can_freeze
    hierarchies._can_freeze = lambda parent: parent.name == "freezer" and can_freeze(parent)
process = spawn([sys.executable, "-c", "import time; print('up', flush=True); time.sleep(60)"],
                wall=Wall(tier=Tier("{tier}"), workdir=folder), log=folder / "log", record_dir=folder / "run")
while "up" not in process.log_tail():
    time.sleep(0.01)
process.pause()
print(process.stopped_by, *process.cgroup.folders, sep="|", flush=True)
time.sleep(60)
"""


@pytest.mark.slow
@pytest.mark.parametrize("means", ["cgroup v2", "cgroup v1"])
@pytest.mark.parametrize("has_record", [True, False], ids=["its run goes on", "another run starts"])
@pytest.mark.parametrize("tier", ["A", "B"], indirect=True)
def test_a_controller_that_is_killed_in_a_pause_leaves_nothing(
    tier: Tier, tmp_path: Path, until, means: str, has_record: bool
) -> None:
    text = CONTROLLER.format(folder=str(tmp_path), tier=tier.value, means=means)
    argv = [sys.executable, "-c", textwrap.dedent(text)]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as controller:
        assert controller.stdout is not None
        found, *paths = controller.stdout.readline().strip().split("|")
        controller.kill()
    folders = [Path(path) for path in paths]
    if found != means:
        pytest.skip(f"{means}: no such group can be made here")
    assert folders and all(folder.is_dir() for folder in folders)
    if has_record:
        sweep_orphans(tmp_path / "run")
    else:
        remove_stale()
    until(lambda: not any(folder.exists() for folder in folders))


@pytest.mark.slow
@pytest.mark.parametrize("tier", ["A", "B"], indirect=True)
def test_groups_of_controllers_that_live_are_left_alone(make_wall, start, until) -> None:
    process = start(BUSY, wall=make_wall())
    _up(process, until)
    remove_stale()
    assert process.poll() is None
    assert all(folder.is_dir() for folder in process.cgroup.folders)


@pytest.mark.parametrize("tier", ["A", "B"], indirect=True)
def test_a_command_that_ends_leaves_no_group(make_wall, tmp_path: Path) -> None:
    process = spawn(["/bin/true"], wall=make_wall(), log=tmp_path / "log")
    process.wait(20)
    process.kill_tree()
    assert not any(folder.exists() for folder in process.cgroup.folders)


def test_what_stops_and_what_counts_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    found = probe_limits()
    assert found["freezer"] in ("cgroup v2", "cgroup v1", "SIGSTOP")
    monkeypatch.setattr(hierarchies, "_can_freeze", lambda _: False)
    assert probe_limits()["freezer"] == "SIGSTOP"


def test_a_group_that_freezes_nothing_is_not_used(tmp_path: Path) -> None:
    """A folder that looks like a group and is none: tried with a process, not believed."""
    assert not hierarchies._can_freeze(tmp_path)
    assert list(tmp_path.iterdir()) == []
    group = Cgroup(pids=None, memory=None)
    assert (group.freeze(), group.is_frozen(), group.cpu_s(), group.own_bytes()) == (False, False, None, 0)
    assert replace(group, cpu=tmp_path).cpu_s() == 0.0


@pytest.mark.parametrize(
    ("freezer", "state", "advice"),
    [("cgroup v2", "OK", ""), ("cgroup v1", "OK", ""), ("SIGSTOP", "WARNING", "Delegate=yes")],
)
def test_the_doctor_names_the_stop(monkeypatch: pytest.MonkeyPatch, freezer: str, state: str, advice: str) -> None:
    from vibeserve import sandbox
    from vibeserve.cli import doctor

    held = {"memory": "x", "freezer": freezer, "peak_memory": "processes"}
    monkeypatch.setattr(sandbox, "probe_limits", lambda: dict(held), raising=False)
    (found,) = [finding for finding in doctor._walls() if finding.name == "sandbox stop"]
    assert found.detail == f"freezer: {freezer}; peak_memory is counted by: processes"
    assert (found.state.name, found.next.endswith(advice)) == (state, True)
