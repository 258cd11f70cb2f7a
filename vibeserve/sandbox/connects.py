"""Tier B: the connections that a walled process may make, made for it.

Landlock knows ports and no addresses, and neither it nor seccomp can tell one unix socket from another. So the filter
hands every connect(2) of the inside to the supervisor, which reads the address, and where that is a named destination
makes the connection itself and puts it in the place of the caller's socket. The caller's memory is read once: what was
looked at is what is connected, whatever is written there meanwhile. Standard library only.
Sources: seccomp_unotify(2), linux/seccomp.h, unix(7), ip(7).
"""

from __future__ import annotations

import errno
import fcntl
import os
import re
import select
import socket
import struct
import sys
import threading
from dataclasses import dataclass

from vibeserve.sandbox import seccomp

_RECEIVE, _SEND, _IS_VALID, _ADD_DESCRIPTOR = 0xC0502100, 0xC0182101, 0x40082102, 0x40182103
_NOTICE = struct.Struct("=QIIiIQ6Q")  # id, pid, flags, number, architecture, instruction, arguments
_REPLY = struct.Struct("=QqiI")  # id, value, error, flags
_DESCRIPTOR = struct.Struct("=QIIII")  # id, flags, ours, theirs, flags of theirs
_SET_THEIRS = 1
_MAX_ADDRESS = 128
_CONNECT_TIMEOUT_S = 10.0
_CALLER_GONE = (errno.ENOENT, errno.EINTR)
LOOPBACK = "127.0.0.1"


@dataclass(frozen=True, kw_only=True)
class Destinations:
    """Where the inside may connect to."""

    ports: tuple[int, ...]
    """TCP on 127.0.0.1"""
    sockets: tuple[str, ...]
    """paths of unix stream sockets"""


class Broker:
    """Made before the fork; the child loads the filter, the supervisor answers its questions."""

    def __init__(self, destinations: Destinations) -> None:
        self._destinations = destinations
        self._ours, self._theirs = socket.socketpair()

    def load(self, filter_program: bytes) -> None:
        """In the confined child: install the filter and hand its listener over. Raises OSError."""
        listener = seccomp.load_with_listener(filter_program)
        rights = (socket.SOL_SOCKET, socket.SCM_RIGHTS, struct.pack("i", listener))
        self._theirs.sendmsg([b"0"], [rights])
        os.close(listener)

    def serve_in_thread(self) -> None:
        """In the supervisor: answer every connect(2) of the inside until nothing of it is left."""
        self._theirs.close()
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        _, descriptors, _, _ = socket.recv_fds(self._ours, 1, 1)
        self._ours.close()
        if not descriptors:  # the child ended before it was confined
            return
        (listener,) = descriptors
        try:
            _answer_all(listener, self._destinations)
        finally:
            # whoever would still ask is told that there is no such call, and does not wait
            os.close(listener)


def _answer_all(listener: int, destinations: Destinations) -> None:
    poll = select.poll()
    poll.register(listener, select.POLLIN)
    while poll.poll()[0][1] & select.POLLIN:
        notice = bytearray(_NOTICE.size)
        try:
            fcntl.ioctl(listener, _RECEIVE, notice)
        except OSError as error:
            if error.errno not in _CALLER_GONE:
                raise
            continue
        _answer(listener, _NOTICE.unpack(notice), destinations)


def _answer(listener: int, notice: tuple[int, ...], destinations: Destinations) -> None:
    number, pid, arguments = notice[0], notice[1], notice[6:]
    theirs = arguments[0] & 0xFFFFFFFF
    try:
        address = _read(pid, arguments[1], min(arguments[2] & 0xFFFFFFFF, _MAX_ADDRESS))
        # the pid is still the caller's: it was its memory that was read
        fcntl.ioctl(listener, _IS_VALID, struct.pack("=Q", number))
        flags = _flags(pid, theirs)
        with _connected(address, destinations) as made:
            made.setblocking(not flags & os.O_NONBLOCK)
            on_exec = flags & os.O_CLOEXEC
            put = _DESCRIPTOR.pack(number, _SET_THEIRS, made.fileno(), theirs, on_exec)
            fcntl.ioctl(listener, _ADD_DESCRIPTOR, put)
        reply = _REPLY.pack(number, 0, 0, 0)
    except OSError as error:
        reply = _REPLY.pack(number, 0, -(error.errno or errno.ETIMEDOUT), 0)
    try:
        fcntl.ioctl(listener, _SEND, reply)
    except OSError as error:
        if error.errno not in _CALLER_GONE:
            raise


def _read(pid: int, address: int, num_bytes: int) -> bytes:
    with open(f"/proc/{pid}/mem", "rb", buffering=0) as memory:  # noqa: PTH123
        return os.pread(memory.fileno(), num_bytes, address)


def _flags(pid: int, descriptor: int) -> int:
    """Status flags of the caller's descriptor, which its new socket takes over."""
    try:
        with open(f"/proc/{pid}/fdinfo/{descriptor}", encoding="ascii") as stream:  # noqa: PTH123
            found = re.search(r"^flags:\s*([0-7]+)", stream.read(), re.MULTILINE)
    except FileNotFoundError as error:
        raise OSError(errno.EBADF, "no such descriptor") from error
    return int(found[1], 8) if found else 0


def _connected(address: bytes, destinations: Destinations) -> socket.socket:
    """A connection to a named destination; EACCES for any other address, as Landlock would say."""
    family = int.from_bytes(address[:2], sys.byteorder)
    if family == socket.AF_INET and len(address) >= 8:
        port, host = int.from_bytes(address[2:4], "big"), socket.inet_ntoa(address[4:8])
        if host == LOOPBACK and port in destinations.ports:
            return _connect(socket.AF_INET, (LOOPBACK, port))
    if family == socket.AF_UNIX:
        path = os.fsdecode(address[2:].split(b"\0")[0])
        if path in destinations.sockets:
            return _connect(socket.AF_UNIX, path)
    raise OSError(errno.EACCES, "not a destination of this wall")


def _connect(family: int, address: tuple[str, int] | str) -> socket.socket:
    made = socket.socket(family, socket.SOCK_STREAM)
    try:
        made.settimeout(_CONNECT_TIMEOUT_S)
        made.connect(address)
        if family == socket.AF_INET:
            # options that the caller had set on its own socket are lost; this one every client sets
            made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    except OSError:
        made.close()
        raise
    return made
