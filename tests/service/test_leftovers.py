"""What a server leaves behind or has beside what it was given, and that an honest one is clean."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from vibeserve.errors import ServerError
from vibeserve.sandbox import Resources
from vibeserve.sandbox.canary import FILE_NAME, VARIABLE, Canary
from vibeserve.sandbox.tree import marked
from vibeserve.spec import Tier

SERVE = "ThreadingHTTPServer((sys.argv[2], int(sys.argv[3])), Handler).serve_forever()"


def _stopped(server) -> list[str]:
    server.stop(drain_s=0)
    return [leftover.kind for leftover in server.leftovers]


def test_an_honest_server_is_clean(make_workspace, serve) -> None:
    server = serve(make_workspace())
    assert server.leftovers is None
    assert _stopped(server) == []
    assert not server.canary.folder.exists()


def test_a_listener_that_nobody_gave_it_is_seen(make_workspace, serve, server_source: str, tier: Tier) -> None:
    """A socket that listens without bind(2) gets a port from the kernel, which Landlock does not ask about."""
    listening = "import socket; other = socket.socket(); other.listen()\n" + SERVE
    server = serve(make_workspace(server=server_source.replace(SERVE, listening)))
    assert _stopped(server) == (["foreign_listener"] if tier is Tier.B else [])
    if tier is Tier.B:
        assert "of every address; valid: port" in server.leftovers[0].text


def test_a_server_on_every_address_is_seen(make_workspace, serve, server_source: str, tier: Tier) -> None:
    server = serve(make_workspace(server=server_source.replace("sys.argv[2], int", "'0.0.0.0', int")))
    assert _stopped(server) == (["foreign_listener"] if tier is Tier.B else [])


def test_opening_the_decoy_is_seen(make_workspace, serve, server_source: str) -> None:
    reading = f"print(len(open(os.environ['{VARIABLE}'] + '/{FILE_NAME}').read()), flush=True)\n" + SERVE
    server = serve(make_workspace(server=server_source.replace(SERVE, reading)))
    assert server.log_tail().splitlines()[0].isdigit()
    assert _stopped(server) == ["evaluator_read"]


def test_seeing_the_decoy_is_not_opening_it(make_workspace, serve, server_source: str) -> None:
    seeing = f"print(os.listdir(os.environ['{VARIABLE}']), os.stat(os.environ['{VARIABLE}']), flush=True)\n" + SERVE
    server = serve(make_workspace(server=server_source.replace(SERVE, seeing)))
    assert FILE_NAME in server.log_tail()
    assert _stopped(server) == []


def test_the_decoy_remembers_and_cannot_be_written(tmp_path: Path) -> None:
    canary = Canary()
    assert not canary.was_opened()
    (canary.folder / FILE_NAME).read_text()
    assert canary.was_opened()
    canary.remove()
    canary.remove()
    assert canary.was_opened()


def test_a_daemon_whose_holder_was_killed_is_found(make_workspace, serve, server_source: str) -> None:
    """Without a wall a server can end its own supervisor; what it left is known by its marks, killed and told of."""
    leaving = """
if os.fork() == 0:
    os.setsid()
    time.sleep(600)
if os.fork() == 0:
    while not os.path.exists(sys.argv[1] + "/go"):
        time.sleep(0.01)
    os.kill(int(open(sys.argv[1] + "/go").read()), signal.SIGKILL)
    os._exit(0)
"""
    server = serve(make_workspace(server=server_source.replace(SERVE, leaving + SERVE)), tier=Tier.C)
    given = Path(server.wall.read_only[1]).parent
    (given / "draft").write_text(str(server.process.pid))
    (given / "draft").rename(given / "go")
    assert server.process.wait(20) is not None
    assert "stray_process" in _stopped(server)
    assert marked(server.process.tree_id) == []


def test_shared_memory_that_stays_is_seen(make_workspace, serve, server_source: str) -> None:
    name = f"/dev/shm/vibeserve-left-{os.getpid()}"
    leaving = f"open('{name}', 'w').write('answers')\n" + SERVE
    server = serve(make_workspace(server=server_source.replace(SERVE, leaving)), tier=Tier.C)
    try:
        assert _stopped(server) == ["shared_memory"]
    finally:
        Path(name).unlink()


def test_shared_memory_of_a_living_process_is_its_own(make_workspace, serve) -> None:
    path = Path(f"/dev/shm/vibeserve-kept-{os.getpid()}")
    server = serve(make_workspace(), tier=Tier.C)
    with path.open("w"):
        try:
            assert _stopped(server) == []
        finally:
            path.unlink()


def test_a_server_that_takes_too_much_memory_is_typed(make_workspace, serve) -> None:
    hog = "blocks = [__import__('os').urandom(1) * (32 << 20) for _ in range(32)]; __import__('time').sleep(60)"
    with pytest.raises(ServerError, match="out_of_memory: status 137 before it was ready") as caught:
        serve(make_workspace(server=hog), resources=Resources(max_memory_gib=0.25))
    assert caught.value.outcome == "out_of_memory"


def test_a_failed_start_leaves_no_decoy(make_workspace, serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temporary"))
    with pytest.raises(ServerError):
        serve(make_workspace(server="import sys; sys.exit(1)"))
    assert list((tmp_path / "temporary").iterdir()) == []
