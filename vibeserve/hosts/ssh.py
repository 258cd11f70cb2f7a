"""A machine behind the system's ssh."""

from __future__ import annotations

from vibeserve import spec
from vibeserve.hosts.piped import PipedHost
from vibeserve.hosts.ways import SshWay


class SshHost(PipedHost):
    """See `PipedHost`."""

    kind = "ssh"

    def __init__(self, declared: spec.Host) -> None:
        super().__init__(declared, way=SshWay.of(declared))
