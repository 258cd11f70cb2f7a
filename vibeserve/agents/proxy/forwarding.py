"""How a walled client reaches the proxy."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from vibeserve.sandbox import Wall

FORWARD_SCRIPT = Path(__file__).resolve().with_name("forward.py")


def script_of(socket: Path) -> Path:
    """The copy of the script beside a proxy's socket: walls may hide the package that this one lies in."""
    return socket.with_name(FORWARD_SCRIPT.name)


def forwarded_argv(client_argv: Sequence[str], *, socket: Path, port: int, python: Path | None = None) -> list[str]:
    """One command that listens on 127.0.0.1:`port` inside the wall, forwards to the proxy's socket, and becomes the
    client: same process, folder, environment, signals and status.

    Exit 125: the port cannot be listened on; 126, 127: the client cannot be executed, is not there. `python`: the
    interpreter inside, as in `Wall.python`.
    """
    interpreter = str(python or sys.executable)
    return [interpreter, "-I", "-S", str(script_of(socket)), str(socket), str(port), "--", *client_argv]


def admitted(wall: Wall, *, socket: Path, port: int) -> Wall:
    """`wall` with what that command needs, in every tier: the script, the socket, the port on the loopback."""
    return replace(
        wall, read_only=(*wall.read_only, script_of(socket)), sockets=(*wall.sockets, socket),
        loopback_ports=(*wall.loopback_ports, port),
    )  # fmt: skip
