"""Whole trees: killed, paused, counted, found again after the controller died."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from vibeserve.errors import InfraError
from vibeserve.sandbox import forget_process, record_process, run, spawn, sweep_orphans
from vibeserve.sandbox.records import record_start
from vibeserve.sandbox.tree import descendants, is_alive, read_stat
from vibeserve.spec import Tier

# leaves, beside itself: a child in a session of its own, a double-forked daemon, both deaf to SIGTERM
STUBBORN = """
import os, signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
for depth in (1, 2):
    child = os.fork()
    if child == 0:
        os.setsid()
        if depth == 2 and os.fork() != 0:
            os._exit(0)
        while True:
            time.sleep(0.05)
    if depth == 2:
        os.waitpid(child, 0)
print("up", flush=True)
while True:
    time.sleep(0.05)
"""


def _starts(pids: list[int]) -> dict[int, int]:
    return {pid: stat.start_ticks for pid in pids if (stat := read_stat(pid)) is not None}


def _is_gone(starts: dict[int, int]) -> bool:
    return not any(is_alive(pid, start_ticks=ticks) for pid, ticks in starts.items())


def _up(process, until) -> dict[int, int]:
    """Pids inside with their start times, once the stubborn tree is complete."""
    until(lambda: "up" in process.log_tail() and len(process.descendants()) >= 3)
    return _starts(process.descendants())


def test_kill_tree_leaves_nothing(make_wall, start, until) -> None:
    process = start(STUBBORN, wall=make_wall())
    inside = _up(process, until)
    process.kill_tree()
    assert len(inside) >= 3
    assert _is_gone(inside)
    assert process.poll() is not None


def test_what_survives_its_kill_is_an_infrastructure_error(make_wall, start, until, monkeypatch) -> None:
    """As a process in an uninterruptible sleep would: nobody may go on as if it were gone."""
    process = start(STUBBORN, wall=make_wall())
    _up(process, until)
    with monkeypatch.context() as patched, pytest.raises(InfraError, match=r"processes \[.*\] survive SIGKILL"):
        patched.setattr("vibeserve.sandbox.tree.kill_all", lambda *_, **__: 0)
        patched.setattr("vibeserve.sandbox.cgroups.Cgroup.kill", lambda *_, **__: 0)
        patched.setattr("vibeserve.sandbox.process._KILL_TIMEOUT_S", 0.1)
        process.kill_tree()
    process.kill_tree()
    assert process.poll() is not None


def test_a_tree_may_be_killed_while_it_comes_up(make_wall, tmp_path: Path) -> None:
    for number in range(8):
        process = spawn(["/bin/sleep", "60"], wall=make_wall(), log=tmp_path / f"{number}.log")
        process.kill_tree()
        assert process.poll() is not None
        assert not process.descendants()


def test_a_timeout_kills_the_whole_tree(make_wall, tmp_path: Path) -> None:
    done = run([sys.executable, "-c", STUBBORN], wall=make_wall(), log=tmp_path / "log", timeout_s=1.5)
    assert done.timed_out
    assert done.log_tail == "up"
    assert not _alive_under(os.getpid())


def _alive_under(pid: int) -> list[int]:
    return [stat.pid for stat in descendants(pid)]


def test_what_the_command_leaves_behind_goes_with_it(make_wall, start, until) -> None:
    script = """
        import os, time
        if os.fork() == 0:
            os.setsid()
            print(os.getpid(), flush=True)
            time.sleep(60)
        time.sleep(0.5)
    """
    process = start(script, wall=make_wall())
    until(lambda: len(process.descendants()) == 2)
    inside = _starts(process.descendants())
    assert process.wait(10) == 0
    until(lambda: _is_gone(inside))


def test_exit_status_is_the_commands_own(make_wall, tmp_path: Path) -> None:
    wall = make_wall()
    assert run(["/bin/sh", "-c", "exit 7"], wall=wall, log=tmp_path / "log", timeout_s=20).returncode == 7
    assert run(["/bin/sh", "-c", "kill -9 $$"], wall=wall, log=tmp_path / "log", timeout_s=20).returncode == 137


def test_pause_stops_every_process_and_resume_lets_them_go_on(make_wall, start, until, tmp_path: Path) -> None:
    script = """
        import os, time
        os.fork()
        while True:
            with open(f"ticks-{os.getpid()}", "a") as stream:
                stream.write(".")
            time.sleep(0.002)
    """
    process = start(script, wall=make_wall())
    inside = tmp_path / "inside"
    until(lambda: len(list(inside.glob("ticks-*"))) == 2)
    process.pause()
    assert process.is_paused
    before = _sizes(inside)
    time.sleep(0.1)
    assert _sizes(inside) == before
    process.resume()
    until(lambda: all(new > old for new, old in zip(_sizes(inside), before, strict=True)))


def _sizes(folder: Path) -> list[int]:
    return [path.stat().st_size for path in sorted(folder.glob("ticks-*"))]


def test_a_paused_tree_can_be_killed(make_wall, start, until) -> None:
    process = start(STUBBORN, wall=make_wall())
    inside = _up(process, until)
    process.pause()
    process.kill_tree()
    assert _is_gone(inside)


def test_terminate_reaches_the_command(make_wall, start, until) -> None:
    script = """
        import signal, sys, time
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(3))
        print("up", flush=True)
        time.sleep(60)
    """
    process = start(script, wall=make_wall())
    until(lambda: process.log_tail() == "up")
    process.pause()
    process.terminate()
    assert process.wait(10) == 3


def test_memory_counts_the_whole_tree(make_wall, start, until) -> None:
    script = """
        import os, time
        os.fork()
        block = bytearray(os.urandom(1) * (64 << 20))
        print("up", flush=True)
        time.sleep(60)
    """
    process = start(script, wall=make_wall())
    until(lambda: process.log_tail().count("up") == 2)
    assert 0.12 < process.rss_gib() < 0.5


def test_the_peak_is_kept(make_wall, start, until) -> None:
    script = """
        import time
        block = bytearray(b"x" * (128 << 20))
        del block
        print("up", flush=True)
        time.sleep(60)
    """
    process = start(script, wall=make_wall())
    until(lambda: process.log_tail() == "up")
    assert process.rss_gib() > 0.12


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_the_tree_dies_with_its_controller(make_wall, tier: Tier, tmp_path: Path, until, how: signal.Signals) -> None:
    controller, inside = _controller(tier, tmp_path, until)
    controller.send_signal(how)
    controller.wait()
    until(lambda: _is_gone(inside))
    assert sweep_orphans(tmp_path / "run") == 0


def _controller(tier: Tier, tmp_path: Path, until) -> tuple[subprocess.Popen[bytes], dict[int, int]]:
    """A controller in a process of its own, with a stubborn tree that is recorded in tmp_path/run."""
    script = f"""
        import sys, time
        from pathlib import Path
        from vibeserve.sandbox import Wall, spawn
        from vibeserve.spec import Tier
        folder = Path({str(tmp_path)!r})
        process = spawn([sys.executable, "-c", {STUBBORN!r}], wall=Wall(tier=Tier("{tier.value}"), workdir=folder),
                        log=folder / "log", record_dir=folder / "run")
        (folder / "pid").write_text(str(process.pid))
        time.sleep(60)
    """
    controller = subprocess.Popen([sys.executable, "-c", textwrap.dedent(script)])
    until(lambda: (tmp_path / "log").exists() and "up" in (tmp_path / "log").read_text())
    until(lambda: len(descendants(controller.pid)) >= 4)
    return controller, _starts([stat.pid for stat in descendants(controller.pid)])


def test_orphans_of_a_killed_controller_are_swept(tier: Tier, tmp_path: Path, until) -> None:
    """The outer process is killed as well, so that nothing but the record can find what it held."""
    if tier is Tier.A:
        pytest.skip("the pid namespace ends with its first process: nothing can be left")
    controller, inside = _controller(tier, tmp_path, until)
    outer = int((tmp_path / "pid").read_text())
    # stopped, the supervisor cannot clean up when its controller dies; killed, it never will
    os.kill(outer, signal.SIGSTOP)
    controller.kill()
    controller.wait()
    os.kill(outer, signal.SIGKILL)
    until(lambda: not is_alive(outer, start_ticks=inside[outer]))
    assert not _is_gone(inside)
    assert sweep_orphans(tmp_path / "run") >= 2
    assert _is_gone(inside)
    assert sweep_orphans(tmp_path / "run") == 0


def test_a_live_recorded_tree_is_swept(make_wall, start, until, tmp_path: Path) -> None:
    process = start(STUBBORN, wall=make_wall())
    inside = _up(process, until)
    record_process(process, tmp_path / "run")
    assert sweep_orphans(tmp_path / "run") >= 3
    until(lambda: _is_gone(inside))


def test_a_tree_is_recorded_before_it_is_started(tmp_path: Path) -> None:
    """The controller may be killed before it knows the pid: the id in the environment is enough."""
    record_start("feed", tmp_path)
    with subprocess.Popen(["/bin/sleep", "60"], env={"VIBESERVE_TREE": "feed"}) as orphan:
        assert sweep_orphans(tmp_path) == 1
        assert orphan.wait(10) == -signal.SIGKILL


def test_a_start_that_fails_leaves_no_record(make_wall, tmp_path: Path) -> None:
    with pytest.raises(InfraError):
        spawn(
            ["/bin/true"], wall=make_wall(read_only=(tmp_path / "x",)), log=tmp_path / "l", record_dir=tmp_path / "run"
        )
    assert not list(tmp_path.glob("run/*"))


def test_a_reused_pid_is_not_touched(make_wall, start, until, tmp_path: Path) -> None:
    process = start(STUBBORN, wall=make_wall())
    _up(process, until)
    record = record_process(process, tmp_path / "run")
    text = record.read_text().replace(f'"start_ticks": {process.start_ticks}', '"start_ticks": 1')
    record.write_text(text.replace(process.tree_id, "another"))
    assert sweep_orphans(tmp_path / "run") == 0
    assert process.poll() is None


def test_a_forgotten_process_leaves_no_record(make_wall, start, tmp_path: Path) -> None:
    process = start("import time; time.sleep(60)", wall=make_wall())
    record = record_process(process, tmp_path / "run")
    forget_process(process, tmp_path / "run")
    assert not record.exists()


def test_a_spawning_thread_may_end_before_its_process(make_wall, tmp_path: Path) -> None:
    """The parent-death signal follows the thread that forked; walled processes outlive a short-lived caller's."""
    import threading

    started = []
    wall = make_wall()
    thread = threading.Thread(
        target=lambda: started.append(spawn(["/bin/sleep", "60"], wall=wall, log=tmp_path / "log"))
    )
    thread.start()
    thread.join()
    time.sleep(0.3)
    try:
        assert started[0].poll() is None
    finally:
        started[0].kill_tree()


def test_bubblewrap_that_cannot_start_is_an_infrastructure_error(tmp_path: Path, monkeypatch, tier: Tier) -> None:
    if tier is not Tier.A:
        pytest.skip("about bubblewrap")
    from vibeserve.sandbox import Wall, launch

    monkeypatch.setattr(launch, "find_bwrap", lambda: "/bin/false")
    with pytest.raises(InfraError, match="bubblewrap did not start"):
        spawn(["/bin/true"], wall=Wall(tier=Tier.A, workdir=tmp_path), log=tmp_path / "log")


def test_a_terminals_interrupt_does_not_reach_the_inside(make_wall, start) -> None:
    process = start("import time; time.sleep(60)", wall=make_wall())
    groups = {os.getpgid(pid) for pid in (process.pid, *process.descendants())}
    assert os.getpgrp() not in groups


def test_no_signal_is_ignored_or_blocked_inside(make_wall, tmp_path: Path) -> None:
    show = "while read -r key value; do case $key in SigIgn:|SigBlk:) echo $value;; esac; done < /proc/self/status"
    done = run(["/bin/sh", "-c", show], wall=make_wall(), log=tmp_path / "log", timeout_s=20)
    assert done.log_tail.split() == ["0" * 16] * 2


def test_what_the_controller_ignores_is_not_ignored_inside(make_wall, tmp_path: Path) -> None:
    ignored = {number: signal.signal(number, signal.SIG_IGN) for number in (signal.SIGHUP, signal.SIGQUIT)}
    try:
        show = "while read -r key value; do case $key in SigIgn:) echo $value;; esac; done < /proc/self/status"
        done = run(["/bin/sh", "-c", show], wall=make_wall(), log=tmp_path / "log", timeout_s=20)
    finally:
        for number, before in ignored.items():
            signal.signal(number, before)
    assert done.log_tail.split() == ["0" * 16]
