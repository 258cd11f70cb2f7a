"""The load generator's way into a walled server's network."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from vibeserve import sandbox
from vibeserve.sandbox import join_argv
from vibeserve.spec import Tier


def test_a_child_of_ours_joins_the_network(make_wall, start, until, tier: Tier, free_port: int) -> None:
    port = 8000 if tier is Tier.A else free_port
    script = f"""
        import socket
        server = socket.create_server(("127.0.0.1", {port}))
        print("up", flush=True)
        while True:
            connection, _ = server.accept()
            connection.sendall(b"hello")
            connection.close()
    """
    process = start(script, wall=make_wall(bind_port=port))
    until(lambda: process.log_tail() == "up")
    cpu = min(os.sched_getaffinity(0))
    client = f"""import os, socket
print(socket.create_connection(("127.0.0.1", {port}), 5).recv(9).decode(), sorted(os.sched_getaffinity(0)),
      os.path.exists({__file__!r}))"""
    done = subprocess.run(
        join_argv(process, [sys.executable, "-c", client], cpus=(cpu,)), capture_output=True, text=True
    )
    assert done.stdout.strip() == f"hello [{cpu}] True", done.stderr
    assert (process.network_pid is None) == (tier is Tier.B)


def test_joining_a_process_that_is_gone_says_so(make_wall, start, tier: Tier) -> None:
    if tier is not Tier.A:
        pytest.skip("tier B joins nothing")
    process = start("pass", wall=make_wall())
    process.wait(10)
    process.kill_tree()
    done = subprocess.run(join_argv(process, ["/bin/true"]), capture_output=True, text=True)
    assert done.returncode == 125
    assert f"cannot join the network of process {process.network_pid}" in done.stderr


def test_two_walls_may_have_the_same_port(make_wall, start, until, tier: Tier) -> None:
    if tier is not Tier.A:
        pytest.skip("tier B shares the host's ports")
    script = (
        'import socket, time; s = socket.create_server(("127.0.0.1", 8000)); print("up", flush=True); time.sleep(60)'
    )
    first, second = start(script, wall=make_wall()), start(script, wall=make_wall())
    until(lambda: first.log_tail() == second.log_tail() == "up")
    assert (first.poll(), second.poll()) == (None, None)


DEATH_SIGNAL = """
import ctypes
found = ctypes.c_int(-1)
ctypes.CDLL(None).prctl(2, ctypes.byref(found))
print(found.value)
"""  # PR_GET_PDEATHSIG


def test_a_parent_outside_of_its_pid_namespace_is_not_waited_for() -> None:
    """What starts a command in a container ends at once: the command must not end with it."""
    join = [sys.executable, "-I", "-S", str(Path(sandbox.__file__).with_name("join.py")), "0", "-"]
    script = ["--", sys.executable, "-c", DEATH_SIGNAL]
    apart = ["unshare", "--user", "--map-root-user", "--pid", "--fork"]
    inside = subprocess.run([*apart, *join, "0", *script], capture_output=True, text=True, check=False)
    if "unshare" in inside.stderr:
        pytest.skip(f"no pid namespace can be made here: {inside.stderr.strip()}")
    assert inside.stdout == "0\n", inside.stderr
    beside = subprocess.run([*join, str(os.getpid()), *script], capture_output=True, text=True, check=False)
    assert beside.stdout == "9\n"
    claimed = subprocess.run([*join, "0", *script], capture_output=True, text=True, check=False)
    assert claimed.returncode == 137, "a parent that is there cannot be called none"
