"""Children of ours end with what started them: nothing polls, probes or scores for a run that was killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from vibeserve.sandbox import tree

STARTER = """
import subprocess, sys, time
from pathlib import Path
from types import SimpleNamespace
import vibeserve.service.server as server
from vibeserve.sandbox import join_argv
poller = Path(server.__file__).with_name("poller.py")
argv = [sys.executable, "-I", "-S", str(poller), "127.0.0.1", "1", "/health", "0.05"]
child = subprocess.Popen(join_argv(SimpleNamespace(network_pid=None), argv))
print(child.pid, flush=True)
time.sleep(600)
"""


def test_a_poll_ends_with_the_run_that_was_killed() -> None:
    """The smallest input that left an orphan: it asked a server that was gone, for ever."""
    starter = subprocess.Popen([sys.executable, "-c", STARTER], stdout=subprocess.PIPE, text=True)
    assert starter.stdout is not None
    pid = int(starter.stdout.readline())
    time.sleep(0.5)
    stat = tree.read_stat(pid)
    assert stat is not None and stat.state not in "ZX"
    starter.kill()
    starter.communicate()
    deadline_s = time.monotonic() + 10.0
    while tree.is_alive(pid, start_ticks=stat.start_ticks) and time.monotonic() < deadline_s:
        time.sleep(0.02)
    assert not tree.is_alive(pid, start_ticks=stat.start_ticks)


def test_a_child_whose_parent_is_gone_does_not_begin() -> None:
    module = "vibeserve.accuracy.rescorer"
    scored = subprocess.run([sys.executable, "-m", module, "/nowhere", "--parent", "1"], check=False)
    assert scored.returncode == 128 + signal.SIGKILL
    join = str(Path(tree.__file__).with_name("join.py"))
    joined = subprocess.run([sys.executable, join, "0", "-", "1", "--", "/bin/true"], check=False)
    assert joined.returncode == 128 + signal.SIGKILL
    mine = subprocess.run([sys.executable, join, "0", "-", str(os.getpid()), "--", "/bin/true"], check=False)
    assert mine.returncode == 0
