"""Named destinations: what a walled process may connect to, and that nothing else opens with it."""

from __future__ import annotations

import os
import socket
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from vibeserve.errors import InfraError
from vibeserve.sandbox import Wall, run, spawn
from vibeserve.spec import Tier

ATTEMPT = """
import ctypes, json, os, signal, socket, threading
def attempt(action):
    try:
        value = action()
    except OSError as error:
        return type(error).__name__
    return "done" if value is None else value
def unix(path, kind=socket.SOCK_STREAM):
    made = socket.socket(socket.AF_UNIX, kind)
    made.connect(path)
    return made
"""
REFUSED = {"PermissionError", "ConnectionRefusedError", "FileNotFoundError", "OSError", "TimeoutError"}
"""by Landlock or the listener (B); by an empty network or a path that is not there (A)"""


@pytest.fixture
def short_folder() -> Iterator[Path]:
    """The name of a unix socket has 107 bytes at most."""
    with tempfile.TemporaryDirectory(prefix="vs-") as name:
        yield Path(name)


@pytest.fixture
def echo(short_folder: Path) -> Iterator[Path]:
    """A server of the controller's on a unix socket that sends back what it gets, in capitals."""
    path = short_folder / "echo.sock"
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))
        server.listen()

        def serve() -> None:
            while True:
                try:
                    peer, _ = server.accept()
                except OSError:
                    return
                with peer:
                    while data := peer.recv(1000):
                        peer.sendall(data.upper())

        threading.Thread(target=serve, daemon=True).start()
        yield path
        server.shutdown(socket.SHUT_RDWR)


def test_a_named_socket_is_reached_and_no_other_one(make_wall, answer, echo: Path, short_folder: Path) -> None:
    other = short_folder / "other.sock"
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(other))
        server.listen()
        script = f"""{ATTEMPT}
def talk():
    with unix({str(echo)!r}) as peer:
        peer.sendall(b"hello")
        return peer.recv(100).decode()
os.symlink({str(other)!r}, "link.sock")
print(json.dumps([attempt(talk), attempt(lambda: unix({str(other)!r}).close()),
                  attempt(lambda: unix("link.sock").close()), attempt(lambda: unix({str(echo)!r} + "x").close())]))"""
        named, *others = answer(script, wall=make_wall(sockets=(echo,)))
    assert named == "HELLO"
    assert set(others) <= REFUSED, others


def test_loopback_ports_are_bound_and_reached_and_nothing_else_is(make_wall, answer, free_port: int) -> None:
    with socket.create_server(("127.0.0.1", 0)) as ours:
        script = f"""{ATTEMPT}
def talk():
    with socket.create_server(("127.0.0.1", {free_port})) as server:
        with socket.create_connection(("127.0.0.1", {free_port}), 5) as client:
            peer, _ = server.accept()
            client.sendall(b"through")
            return peer.recv(100).decode()
to = lambda *address: socket.create_connection(address, 2).close()
first = attempt(talk)
# somebody listens there while the others are tried
with socket.create_server(("127.0.0.1", {free_port})) as server:
    print(json.dumps([first, attempt(lambda: to("127.0.0.1", {ours.getsockname()[1]})),
                      attempt(lambda: to("192.0.2.1", {free_port})), attempt(lambda: to("192.0.2.1", 80)),
                      attempt(lambda: to("::ffff:192.0.2.1", {free_port})),
                      attempt(lambda: to("127.0.0.2", {free_port}))]))"""
        reached, *others = answer(script, wall=make_wall(loopback_ports=(free_port,)))
    assert reached == "through"
    assert set(others) <= REFUSED, others


def test_other_ways_to_connect_stay_closed(make_wall, answer, free_port: int, echo: Path, tier: Tier) -> None:
    """Datagrams and raw sockets, connecting by sending, ports of other addresses, an abstract socket of the host."""
    if tier is not Tier.B:
        pytest.skip("tier A has a network of its own")
    name = f"\0vibeserve-connects-{os.getpid()}"
    with socket.create_server(("127.0.0.1", 0)) as ours, socket.socket(socket.AF_UNIX) as abstract:
        abstract.bind(name)
        abstract.listen()
        port = ours.getsockname()[1]
        script = f"""{ATTEMPT}
FAST = 0x20000000
print(json.dumps([
    attempt(lambda: unix({name!r}).close()),
    attempt(lambda: socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)),
    attempt(lambda: socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)),
    attempt(lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM)),
    attempt(lambda: socket.socket(socket.AF_NETLINK, socket.SOCK_RAW)),
    attempt(lambda: socket.socket().sendto(b"x", FAST, ("127.0.0.1", {port}))),
    attempt(lambda: socket.socket().bind(("127.0.0.1", {free_port} - 1))),
    attempt(lambda: socket.socket(socket.AF_INET, socket.SOCK_STREAM, 262).connect(("127.0.0.1", {port}))),
]))"""
        results = answer(script, wall=make_wall(loopback_ports=(free_port,), sockets=(echo,)))
    assert set(results) == {"PermissionError"}, results


def test_the_callers_socket_keeps_its_flags_and_its_errors(make_wall, answer, free_port: int, echo: Path) -> None:
    script = f"""{ATTEMPT}
def flags(blocking):
    with socket.socket(socket.AF_UNIX) as made:
        made.setblocking(blocking)
        made.connect({str(echo)!r})
        return [os.get_blocking(made.fileno()), os.get_inheritable(made.fileno())]
def wrong_descriptor():
    libc = ctypes.CDLL(None, use_errno=True)
    address = b"\\x02\\0" + ({free_port}).to_bytes(2, "big") + bytes([127, 0, 0, 1]) + bytes(8)
    return [libc.connect(999, address, 16), ctypes.get_errno(), libc.connect(0, None, 16) < 0]
print(json.dumps([flags(True), flags(False), attempt(lambda: socket.create_connection(("127.0.0.1", {free_port}), 5)),
                  wrong_descriptor()]))"""
    blocking, other, nobody, wrong = answer(script, wall=make_wall(sockets=(echo,), loopback_ports=(free_port,)))
    assert (blocking, other) == ([True, False], [False, False])
    assert nobody == "ConnectionRefusedError"
    assert wrong == [-1, 9, True]


def test_a_client_that_makes_itself_undumpable_connects_too(make_wall, answer, echo: Path, tier: Tier) -> None:
    """Tier B could not read its addresses any more, so the request succeeds without effect."""
    script = f"""{ATTEMPT}
PR_GET_DUMPABLE, PR_SET_DUMPABLE = 3, 4
result = ctypes.CDLL(None).prctl(PR_SET_DUMPABLE, 0, 0, 0, 0)
is_dumpable = ctypes.CDLL(None).prctl(PR_GET_DUMPABLE, 0, 0, 0, 0)
print(json.dumps([result, is_dumpable, attempt(lambda: unix({str(echo)!r}).close())]))"""
    assert answer(script, wall=make_wall(sockets=(echo,))) == [0, int(tier is Tier.B), "done"]


def test_threads_and_children_connect_at_the_same_time(make_wall, answer, echo: Path) -> None:
    script = f"""{ATTEMPT}
answers = []
def talk(number):
    with unix({str(echo)!r}) as peer:
        peer.sendall(b"x%d" % number)
        answers.append(peer.recv(100).decode())
for _ in range(2):
    child = os.fork()
    if child == 0:
        talk(99)
        os._exit(0 if answers == ["X99"] else 1)
    assert os.waitpid(child, 0)[1] == 0
# the server takes one peer at a time, so the others wait in its queue
threads = [threading.Thread(target=talk, args=(number,)) for number in range(8)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
print(json.dumps(sorted(answers)))"""
    assert answer(script, wall=make_wall(sockets=(echo,))) == [f"X{number}" for number in range(8)]


def test_an_address_that_changes_while_it_is_read_reaches_nothing_else(
    make_wall, answer, tier: Tier, echo: Path, short_folder: Path
) -> None:
    """Another thread rewrites the address all the time: whatever is connected is what was named."""
    if tier is not Tier.B:
        pytest.skip("tier A mounts the socket alone")
    other = short_folder / ("e" * (len(echo.name) - 5) + ".sock")
    reached: list[int] = []
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(other))
        server.listen()

        def count() -> None:
            while True:
                try:
                    server.accept()[0].close()
                except OSError:
                    return
                reached.append(1)

        threading.Thread(target=count, daemon=True).start()
        script = f"""{ATTEMPT}
good, bad = (os.fsencode(path) for path in ({str(echo)!r}, {str(other)!r}))
address = ctypes.create_string_buffer(b"\\x01\\0" + good)
libc, over = ctypes.CDLL(None), []
def rewrite():
    while not over:
        ctypes.memmove(ctypes.addressof(address) + 2, bad, len(bad))
        ctypes.memmove(ctypes.addressof(address) + 2, good, len(good))
thread = threading.Thread(target=rewrite)
thread.start()
results = []
for _ in range(300):
    with socket.socket(socket.AF_UNIX) as made:
        results.append(libc.connect(made.fileno(), address, len(address)))
over.append(1)
thread.join()
print(json.dumps(sorted(set(results))))"""
        results = answer(script, wall=make_wall(sockets=(echo,)))
        server.shutdown(socket.SHUT_RDWR)
    assert set(results) <= {-1, 0}
    assert reached == []


def test_no_datagram_leaves_by_a_pair(make_wall, answer, short_folder: Path, echo: Path) -> None:
    """A pair of datagram sockets is a way around every rule on socket(2) and connect(2)."""
    path = short_folder / "datagrams.sock"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as host:
        host.bind(str(path))
        host.setblocking(False)
        script = f"""{ATTEMPT}
pair = lambda kind: socket.socketpair(socket.AF_UNIX, kind)[0]
def send(kind):
    pair(kind).sendto(b"escaped", {str(path)!r})
def connect(kind):
    one = pair(kind)
    one.connect({str(path)!r})
    one.send(b"escaped")
kinds = (socket.SOCK_DGRAM, socket.SOCK_RAW, socket.SOCK_SEQPACKET, socket.SOCK_STREAM)
print(json.dumps([[attempt(lambda: send(kind)), attempt(lambda: connect(kind))] for kind in kinds]
                 + [attempt(lambda: pair(socket.SOCK_STREAM).close())]))"""
        for wall in (make_wall(), make_wall(sockets=(echo,))):
            *tries, stream = answer(script, wall=wall)
            assert stream == "done"
            with pytest.raises(BlockingIOError):
                host.recv(100)
            assert all(result not in ("done",) for pair in tries[:2] for result in pair), tries


def test_without_names_nothing_can_be_connected(make_wall, answer, echo: Path, free_port: int) -> None:
    script = f"""{ATTEMPT}
print(json.dumps([attempt(lambda: unix({str(echo)!r}).close()),
                  attempt(lambda: socket.create_connection(("127.0.0.1", {free_port}), 2).close())]))"""
    assert set(answer(script, wall=make_wall(bind_port=free_port))) <= REFUSED


def test_a_tree_with_connections_is_killed_whole(make_wall, start, until, echo: Path, tmp_path: Path) -> None:
    script = f"""{ATTEMPT}
peer = unix({str(echo)!r})
open("up", "w").close()
signal.pause()"""
    process = start(script, wall=make_wall(sockets=(echo,)))
    until(lambda: (tmp_path / "inside" / "up").exists())
    process.kill_tree()
    assert process.poll() is not None and process.descendants() == []


def test_a_missing_socket_and_a_contradiction_are_refused(make_wall, tmp_path: Path, echo: Path) -> None:
    with pytest.raises(InfraError, match=r"paths that do not exist: .*/gone.sock"):
        spawn(["/bin/true"], wall=make_wall(sockets=(tmp_path / "gone.sock",)), log=tmp_path / "log")
    with pytest.raises(AssertionError, match="name none"):
        Wall(tier=Tier.B, workdir=tmp_path, local_sockets=True, sockets=(echo,))


def test_the_status_of_the_command_is_still_its_own(make_wall, tmp_path: Path, echo: Path) -> None:
    argv = [sys.executable, "-c", "raise SystemExit(7)"]
    assert run(argv, wall=make_wall(sockets=(echo,)), log=tmp_path / "log", timeout_s=60).returncode == 7
