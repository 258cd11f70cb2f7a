"""How a host is reached: a local command that runs a shell command there, its pipes being ours."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Protocol

from vibeserve import spec

OPTIONS = (
    "BatchMode=yes", "ConnectTimeout=15", "ServerAliveInterval=5", "ServerAliveCountMax=3", "ForwardAgent=no",
    "ForwardX11=no", "ClearAllForwardings=yes", "ControlPath=none", "RequestTTY=no", "SendEnv=-*",
)  # fmt: skip
"""nobody is asked anything, a dead line is noticed in 15 s, and nothing of the controller's goes along: no agent with
keys, no environment"""
_ADDRESS = re.compile(r"(?P<name>[^:]+)(:(?P<port>\d+))?")


class Way(Protocol):
    """The way to one machine. Whoever holds it calls `release` in the end."""

    @property
    def where(self) -> str:
        """Name of the machine for messages."""
        ...

    @property
    def doctor(self) -> str:
        """Command that says what is missing there."""
        ...

    @property
    def idle_s(self) -> float:
        """Seconds without a server and a call after which what is held is given back; 0 = nothing is held."""
        ...

    @property
    def is_line_buffered(self) -> bool:
        """What is written there arrives here line by line."""
        ...

    @property
    def generation(self) -> int:
        """Changes where another machine may be behind the way than before."""
        ...

    def named(self, run: str) -> None:
        """The run that it is used for; what an earlier user of the same name left held is given back."""
        ...

    def argv(self, command: str) -> list[str]:
        """The local command. HostLostError (`connection`) where there is no way."""
        ...

    def release(self) -> None:
        """Give back what is held; the next `argv` gets it anew."""
        ...


@dataclass(frozen=True, kw_only=True)
class SshWay:
    """The system's ssh, with the user's own configuration and keys."""

    address: str
    config: str = ""
    doctor: str = "vibeserve doctor host=ssh host.address=..."
    idle_s: float = 0.0
    is_line_buffered: bool = False
    generation: int = 0

    @classmethod
    def of(cls, declared: spec.Host) -> SshWay:
        return cls(address=declared.address, config=declared.ssh_config)

    @property
    def where(self) -> str:
        return f"host {self.address}"

    def named(self, run: str) -> None:
        """Nothing is held there."""

    def argv(self, command: str) -> list[str]:
        found = _ADDRESS.fullmatch(self.address)
        name, port = (found["name"], found["port"]) if found else (self.address, None)
        options = [word for option in OPTIONS for word in ("-o", option)]
        config = ["-F", self.config] if self.config else []
        return ["ssh", *config, *options, *(["-p", port] if port else []), "--", name, command]

    def release(self) -> None:
        """Nothing is held there."""
