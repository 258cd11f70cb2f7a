"""What a server left behind, or had beside what it was given: looked for around its whole life.

The wall makes most of it impossible. This is the check that it did, and the only one where the wall is thin (tier B
shares the host's network) or not there (tier C).
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from vibeserve.sandbox import tree
from vibeserve.sandbox.process import Process
from vibeserve.sandbox.wall import Wall
from vibeserve.spec import Tier

SHARED_MEMORY = Path("/dev/shm")
_ENDING_S = 0.2
"""in which a process that ends has ended: its threads are told at once"""
_LISTEN = "0A"  # state of a line in /proc/net/tcp
_LOOPBACKS = ("0100007F", "00000000000000000000000001000000", "0000000000000000FFFF00000100007F")
"""127.0.0.1, ::1, ::ffff:127.0.0.1 as /proc/net/tcp and tcp6 write them on a little-endian machine"""


@dataclass(frozen=True, kw_only=True)
class Leftover:
    """One thing that should not be there. `kind` is the reason class of a refusal by the gate `cleanliness`."""

    kind: str
    """foreign_listener leaderless_process runs_when_stopped stray_process open_port shared_memory evaluator_read"""
    text: str


@dataclass(frozen=True, kw_only=True)
class Surroundings:
    """What was there before a server was started."""

    shared_memory: frozenset[str]


def look_around(wall: Wall) -> Surroundings:
    """Call it before the server is started."""
    return Surroundings(shared_memory=_shared_memory() if _reaches_shared_memory(wall) else frozenset())


def foreign_listeners(process: Process, wall: Wall) -> list[Leftover]:
    """Call it while the server still runs: TCP sockets that listen on the host beside the one that it was given.

    Landlock restricts bind(2), and a socket that listens without one gets a port from the kernel. Servers with a
    network of their own, and stock engines that talk to their own processes, are not asked.
    """
    if process.network_pid is not None or wall.local_sockets or wall.bind_port == 0:
        return []
    is_loopback_only = wall.isolate_network
    found = []
    for address, port in sorted(_listening(process.descendants())):
        if port != wall.bind_port or (is_loopback_only and address not in _LOOPBACKS):
            where = "every address" if set(address) <= {"0"} else "the loopback" if address in _LOOPBACKS else address
            text = f"it listens on port {port} of {where}; valid: port {wall.bind_port} of the loopback"
            found.append(Leftover(kind="foreign_listener", text=text))
    return found


def leaderless(process: Process) -> list[Leftover]:
    """Call it while the server still runs: processes whose first thread has ended while others go on.

    /proc shows such a process as dead and empty, whoever looks; no server has a use for that. One that is just ending
    looks the same for a moment.
    """
    seen = _leaderless(process)
    if seen:
        time.sleep(_ENDING_S)
        seen &= _leaderless(process)
    if not seen:
        return []
    text = f"the first thread of {len(seen)} of its processes has ended while others go on: /proc shows them as dead"
    return [Leftover(kind="leaderless_process", text=text)]


def _leaderless(process: Process) -> set[int]:
    stats = map(tree.read_stat, process.descendants())
    return {stat.pid for stat in stats if stat is not None and stat.is_leaderless}


def leftovers(process: Process, wall: Wall, *, before: Surroundings) -> list[Leftover]:
    """Call it after `kill_tree`: processes that had escaped, a port that still answers, shared memory that stayed."""
    found = []
    if process.strays:
        text = f"{process.strays} of its processes had left its tree and were found by their marks"
        found.append(Leftover(kind="stray_process", text=text))
    if process.network_pid is None and wall.bind_port and wall.bind_port in {port for _, port in _host_listeners()}:
        text = f"port {wall.bind_port} still listens after the whole tree was killed"
        found.append(Leftover(kind="open_port", text=text))
    if _reaches_shared_memory(wall):
        new = sorted(name for name in _shared_memory() - before.shared_memory if not _is_held(SHARED_MEMORY / name))
        found += [Leftover(kind="shared_memory", text=f"it left {SHARED_MEMORY / name}") for name in new]
    return found


def _reaches_shared_memory(wall: Wall) -> bool:
    """Tier A has a /dev/shm of its own, tier B none, unless the wall names it."""
    named = any(SHARED_MEMORY.is_relative_to(path) or path.is_relative_to(SHARED_MEMORY) for path in wall.writable)
    return wall.tier is Tier.C or (wall.tier is Tier.B and named)


def _shared_memory() -> frozenset[str]:
    """Names of this user's entries."""
    found = set()
    for entry in os.scandir(SHARED_MEMORY) if SHARED_MEMORY.is_dir() else ():
        try:
            if entry.stat(follow_symlinks=False).st_uid == os.getuid():
                found.add(entry.name)
        except FileNotFoundError:
            continue
    return frozenset(found)


def _is_held(path: Path) -> bool:
    """Whether a live process has the file open or mapped: then it is that one's, not what a dead server left."""
    for stat in tree.all_stats():
        with contextlib.suppress(OSError):
            if str(path) in Path(f"/proc/{stat.pid}/maps").read_text(encoding="utf-8", errors="replace"):
                return True
        if str(path) in _opened(stat.pid):
            return True
    return False


def _listening(pids: list[int]) -> set[tuple[str, int]]:
    """(address in hexadecimal, port) of the listening sockets that these processes hold."""
    inodes = {inode for pid in pids for inode in _socket_inodes(pid)}
    return {(address, port) for address, port, inode in _listeners() if inode in inodes}


def _host_listeners() -> set[tuple[str, int]]:
    return {(address, port) for address, port, _ in _listeners()}


def _listeners() -> Iterator[tuple[str, int, str]]:
    """(address, port, inode) of every listening socket on the host's network (proc(5), /proc/net/tcp)."""
    for name in ("tcp", "tcp6"):
        table = Path("/proc/net") / name
        lines = table.read_text(encoding="ascii").splitlines()[1:] if table.is_file() else []
        for fields in map(str.split, lines):
            if fields[3] == _LISTEN:
                address, port = fields[1].split(":")
                yield address, int(port, 16), fields[9]


def _socket_inodes(pid: int) -> list[str]:
    return [target[8:-1] for target in _opened(pid) if target.startswith("socket:[")]


def _opened(pid: int) -> list[str]:
    """What the descriptors of a process lead to."""
    found = []
    for link in tree.descriptors(pid):
        with contextlib.suppress(OSError):
            found.append(str(link.readlink()))
    return found
