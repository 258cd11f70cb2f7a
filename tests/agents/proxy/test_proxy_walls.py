"""A client inside a wall of either tier: it reaches the proxy and nothing else, and finds the key nowhere."""

from __future__ import annotations

import json
import os
import socket
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from proxy_rig import KEY, Call, ScriptedApi, Setup, responses_events

from vibeserve.agents.proxy import admitted, forwarded_argv
from vibeserve.hosts import LocalHost
from vibeserve.sandbox import Finished, Wall, probe_tiers, run, spawn
from vibeserve.spec import Tier

Start = Callable[..., Setup]
CLIENT = """
import http.client, json, os, socket, sys
PORT, KEY = int(sys.argv[1]), sys.argv[2]
def ask(body, path="/v1/responses", key=KEY):
    connection = http.client.HTTPConnection("127.0.0.1", PORT, timeout=30)
    connection.request("POST", path, json.dumps(body), {"Authorization": "Bearer " + key})
    return connection.getresponse()
def attempt(action):
    try:
        action()
    except OSError as error:
        return type(error).__name__
    return "done"
"""
REQUEST = {"model": "big", "input": "hello"}
REFUSED = {"PermissionError", "ConnectionRefusedError", "OSError", "FileNotFoundError", "TimeoutError"}


@pytest.fixture(params=["A", "B"])
def tier(request: pytest.FixtureRequest) -> Tier:
    """Each tier that this machine can build."""
    state = probe_tiers()[request.param]
    if state != "available":
        pytest.skip(f"tier {request.param}: {state}")
    return Tier(request.param)


@pytest.fixture
def inside(tmp_path: Path) -> Path:
    folder = tmp_path / "workspace"
    folder.mkdir()
    return folder


@pytest.fixture
def run_client(tier: Tier, inside: Path, tmp_path: Path) -> Callable[..., Finished]:
    """Run a Python script as the client of a proxy, behind a wall like an agent's."""

    def run_it(setup: Setup, script: str, **changes: Any) -> Finished:
        port = LocalHost().lease_port()
        plain = Wall(tier=tier, workdir=inside, writable=(inside,), hidden_modules=("vibeserve",), **changes)
        client = [sys.executable, "-c", CLIENT + textwrap.dedent(script), str(port), setup.proxy.client_key]
        argv = forwarded_argv(client, socket=setup.proxy.socket, port=port)
        wall = admitted(plain, socket=setup.proxy.socket, port=port)
        return run(argv, wall=wall, log=tmp_path / "client.log", timeout_s=60)

    return run_it


def last_line(done: Finished) -> Any:
    assert done.returncode == 0, done.log_tail
    return json.loads(done.log_tail.splitlines()[-1])


def test_a_walled_client_reaches_the_model(start: Start, api: ScriptedApi, run_client: Callable[..., Finished]) -> None:
    api.answers(lambda call: call.stream(responses_events()))
    setup = start()
    done = run_client(setup, f"answer = ask({REQUEST!r})\nprint(json.dumps([answer.status, len(answer.read())]))")
    status, length = last_line(done)
    assert status == 200 and length > 100
    assert setup.ledger.usage(key="r01a1-implementer").tokens == 1050


def test_a_walled_client_reaches_nothing_else(
    start: Start, api: ScriptedApi, run_client: Callable[..., Finished], tmp_path: Path
) -> None:
    api.answers(lambda call: call.stream(responses_events()))
    setup = start()
    other = Path("/tmp") / f"vibeserve-other-{os.getpid()}.sock"
    with socket.create_server(("127.0.0.1", 0)) as ours, socket.socket(socket.AF_UNIX) as by_path:
        by_path.bind(str(other))
        by_path.listen()
        done = run_client(setup, f"""
            to = lambda *address: socket.create_connection(address, 2).close()
            print(json.dumps([
                attempt(lambda: to("127.0.0.1", PORT)),
                attempt(lambda: to("127.0.0.1", {ours.getsockname()[1]})),
                attempt(lambda: to("127.0.0.1", {api.url.rpartition(":")[2]})),
                attempt(lambda: to("192.0.2.1", 80)),
                attempt(lambda: to("192.0.2.1", PORT)),
                attempt(lambda: to("::ffff:192.0.2.1", PORT)),
                attempt(lambda: socket.socket(socket.AF_UNIX).connect({str(other)!r})),
                attempt(lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b"x", ("192.0.2.1", 53))),
            ]))
        """)  # fmt: skip
    other.unlink()
    proxy, *others = last_line(done)
    assert proxy == "done"
    assert set(others) <= REFUSED, others
    assert api.calls == []


def test_a_walled_client_finds_the_key_nowhere(
    start: Start, api: ScriptedApi, run_client: Callable[..., Finished], tmp_path: Path
) -> None:
    """Its environment, the controller's processes, every file that it may read outside the system, the answers."""
    api.answers(
        lambda call: call.json({"error": {"message": f"bad key {call.headers['Authorization']}"}}, 401),
        lambda call: call.stream(responses_events(text=call.headers["Authorization"])),
    )
    setup = start()
    done = run_client(setup, f"""
        needle = {KEY[:-4]!r} + {KEY[-4:]!r}
        seen = [str(dict(os.environ)), open("/proc/self/cmdline").read(), open("/proc/self/environ").read()]
        denied = [attempt(lambda: open(f"/proc/{os.getpid()}/{{name}}").read()) for name in ("environ", "mem")]
        for folder in ({str(tmp_path)!r}, {str(setup.proxy.socket.parent)!r}, "/tmp", "/run", os.environ["TMPDIR"]):
            for root, folders, files in os.walk(folder):
                for name in files:
                    try:
                        with open(os.path.join(root, name), "rb") as stream:
                            seen.append(stream.read().decode("latin-1"))
                    except OSError:
                        pass
        for name in [name for name in map(str, range(100)) if os.path.exists(f"/proc/{{name}}")]:
            for part in ("environ", "cmdline"):
                try:
                    seen.append(open(f"/proc/{{name}}/{{part}}").read())
                except OSError:
                    pass
        seen += [ask({REQUEST!r}).read().decode() for _ in range(2)]
        print(json.dumps([denied, len(seen), [text[:80] for text in seen if needle in text], "redacted" in seen[-1]]))
    """)  # fmt: skip
    denied, num_seen, found, is_redacted = last_line(done)
    assert set(denied) <= {"FileNotFoundError", "PermissionError"}
    # its own command line does hold the needle in two pieces
    assert num_seen >= 5 and found == [] and is_redacted
    assert KEY not in done.log_tail
    assert KEY not in (setup.record_dir / "traffic.jsonl").read_text()


def test_a_stranger_on_the_port_is_refused(start: Start, api: ScriptedApi, run_client: Callable[..., Finished]) -> None:
    setup = start()
    done = run_client(setup, f'print(json.dumps(ask({REQUEST!r}, key="guess").status))')
    assert last_line(done) == 401 and api.calls == []


def test_many_connections_at_once_and_a_large_body(
    start: Start, api: ScriptedApi, run_client: Callable[..., Finished]
) -> None:
    api.answers(lambda call: call.stream(responses_events(text="t" * 300_000)))
    setup = start()
    done = run_client(setup, f"""
        import threading
        lengths = []
        def one():
            lengths.append(len(ask({{**{REQUEST!r}, "input": "q" * 500_000}}).read()))
        threads = [threading.Thread(target=one) for _ in range(8)]
        [thread.start() for thread in threads]
        [thread.join() for thread in threads]
        print(json.dumps([len(lengths), min(lengths)]))
    """)  # fmt: skip
    assert last_line(done)[0] == 8 and last_line(done)[1] > 300_000
    assert setup.proxy.num_turns == 8


def test_a_broken_answer_reaches_the_walled_client_as_one(
    start: Start, api: ScriptedApi, run_client: Callable[..., Finished]
) -> None:
    def cut(call: Call) -> None:
        call.begin(200, kind="text/event-stream")
        call.send(b"data: {}\n\n")
        call.hang_up()

    api.answers(cut)
    setup = start()
    done = run_client(setup, f"""
        try:
            ask({REQUEST!r}).read()
        except http.client.IncompleteRead as error:
            print(json.dumps(error.partial.decode()))
    """)  # fmt: skip
    assert last_line(done) == "data: {}\n\n"


@pytest.mark.parametrize(
    ("script", "code"),
    [("sys.exit(7)", 7), ("os.kill(os.getpid(), 9)", 137), ("print(os.getcwd(), sys.argv[3:])", 0)],
)
def test_the_clients_status_is_the_commands(
    start: Start, run_client: Callable[..., Finished], inside: Path, script: str, code: int, tier: Tier
) -> None:
    done = run_client(start(), script)
    assert done.returncode == code, done.log_tail
    assert code != 0 or done.log_tail == f"{inside} []"


def test_a_client_that_is_not_there_and_a_taken_port_are_told(start: Start, tier: Tier, inside: Path) -> None:
    setup = start()
    port = LocalHost().lease_port()
    wall = admitted(Wall(tier=tier, workdir=inside), socket=setup.proxy.socket, port=port)
    argv = forwarded_argv(["/nowhere/codex"], socket=setup.proxy.socket, port=port)
    done = run(argv, wall=wall, log=inside / "log", timeout_s=60)
    assert done.returncode == 127
    assert done.log_tail == "forward: cannot start /nowhere/codex: No such file or directory"
    nested = forwarded_argv(argv, socket=setup.proxy.socket, port=port)
    done = run(nested, wall=wall, log=inside / "log2", timeout_s=60)
    assert done.returncode == 125
    assert done.log_tail == f"forward: cannot listen on 127.0.0.1:{port}: Address already in use"


def test_what_ends_the_command_ends_the_client(start: Start, tier: Tier, inside: Path, until) -> None:
    setup = start()
    port = LocalHost().lease_port()
    script = "import signal, sys, time\nsignal.signal(15, lambda *_: sys.exit(3))\nopen('up', 'w')\ntime.sleep(60)"
    argv = forwarded_argv([sys.executable, "-c", script], socket=setup.proxy.socket, port=port)
    plain = Wall(tier=tier, workdir=inside, writable=(inside,))
    process = spawn(argv, wall=admitted(plain, socket=setup.proxy.socket, port=port), log=inside / "log")
    try:
        until(lambda: (inside / "up").exists())
        process.terminate()
        assert process.wait(60) == 3
    finally:
        process.kill_tree()
