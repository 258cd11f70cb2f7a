"""How a load on a server is ended."""

from __future__ import annotations

from vibeserve.client import LoadSession
from vibeserve.contract import Record
from vibeserve.service import Server


def end_load(server: Server, session: LoadSession) -> list[Record]:
    """Stop a load whose server may be stopped, too: it has to see the disconnects. The server is left paused."""
    if not session.is_started:
        return []
    if server.poll() is None:
        server.resume()
    try:
        return session.stop()
    finally:
        if server.poll() is None:
            server.pause()
