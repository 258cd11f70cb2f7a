"""`python -I -S forward.py SOCKET PORT -- ARGV...`: run ARGV, and forward what comes to 127.0.0.1:PORT to SOCKET.

A child program inside a wall: standard library only, run by path, replaced by ARGV. What forwards is a process beside
ARGV and none of its children; it knows nothing of what passes, and ends with ARGV.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import sys

_CANNOT_LISTEN, _CANNOT_EXECUTE, _NOT_FOUND = 125, 126, 127
_PIECE_BYTES = 1 << 16
_BACKLOG = 128


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Until the end of one direction; the other one may go on."""
    while piece := await reader.read(_PIECE_BYTES):
        writer.write(piece)
        await writer.drain()
    if writer.can_write_eof():
        writer.write_eof()


async def _forward(path: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        inner_reader, inner_writer = await asyncio.open_unix_connection(path)
        there = asyncio.ensure_future(_pump(reader, inner_writer))
        back = asyncio.ensure_future(_pump(inner_reader, writer))
        # the proxy's end is the end: a broken answer must reach the client as one
        await asyncio.wait([back])
        there.cancel()
        await asyncio.gather(there, back, return_exceptions=True)
        inner_writer.close()
    writer.close()


async def _serve(listener: socket.socket, path: str, client: int) -> None:
    """Until the process `client` ends, which a pidfd tells by becoming readable (pidfd_open(2))."""
    over = asyncio.Event()
    descriptor = os.pidfd_open(client)
    asyncio.get_running_loop().add_reader(descriptor, over.set)
    await asyncio.start_server(lambda reader, writer: _forward(path, reader, writer), sock=listener)
    await over.wait()


def _become_forwarder(listener: socket.socket, path: str, client: int) -> None:
    """In the grandchild: never returns."""
    os.setsid()
    # what asks the client to end may reach this process as well, and the client may still have something to say
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    null = os.open(os.devnull, os.O_RDWR)
    for descriptor in range(3):
        os.dup2(null, descriptor)
    asyncio.run(_serve(listener, path, client))
    os._exit(0)


def main(arguments: list[str]) -> int:
    """See the head of this file. Returns only where the client cannot be started."""
    separator = arguments.index("--")
    path, port = arguments[:separator]
    argv = arguments[separator + 1 :]
    try:
        listener = socket.create_server(("127.0.0.1", int(port)), backlog=_BACKLOG)
    except OSError as error:
        reason = os.strerror(error.errno or 0)
        sys.stderr.write(f"forward: cannot listen on 127.0.0.1:{port}: {reason}\n")
        return _CANNOT_LISTEN
    client = os.getpid()
    between = os.fork()
    if between == 0:
        if os.fork() == 0:
            _become_forwarder(listener, path, client)
        os._exit(0)
    os.waitpid(between, 0)
    listener.close()
    try:
        os.execvp(argv[0], argv)
    except OSError as error:
        sys.stderr.write(f"forward: cannot start {argv[0]}: {error.strerror}\n")
        return _NOT_FOUND if isinstance(error, FileNotFoundError) else _CANNOT_EXECUTE


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
