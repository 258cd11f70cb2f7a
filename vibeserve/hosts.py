"""Where servers are built, started and measured. One port, `Host`; one place so far, this machine."""

from __future__ import annotations

import socket
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from vibeserve import sandbox, spec
from vibeserve.errors import SpecError
from vibeserve.sandbox import Finished, Process, Wall

if TYPE_CHECKING:
    from vibeserve.hardware import HardwareFacts


class Host(Protocol):
    """A machine that builds, serves and is measured. Paths given to it are paths on it."""

    @property
    def kind(self) -> str:
        """Name in `host.kind`."""
        ...

    def probe(self) -> HardwareFacts:
        """What the machine is."""
        ...

    def resolve_tier(self, declared: spec.Tier, *, allow_none: bool) -> spec.Tier:
        """The wall it can build; InfraError when it cannot build what is declared."""
        ...

    def lease_port(self) -> int:
        """A TCP port that was free on its loopback a moment ago."""
        ...

    def spawn(self, argv: Sequence[str], *, wall: Wall, log: Path, record_dir: Path | None = None) -> Process:
        """Start a walled process tree, recorded in `record_dir` for `sweep_orphans`."""
        ...

    def run(self, argv: Sequence[str], *, wall: Wall, log: Path, timeout_s: float) -> Finished:
        """Run a bounded command behind a wall."""
        ...

    def join_argv(self, process: Process, argv: Sequence[str], *, cpus: Sequence[int] = ()) -> list[str]:
        """Command line that runs a child of ours in the network of `process`."""
        ...

    def sweep_orphans(self, run_dir: Path) -> int:
        """Kill what an earlier controller left of the trees recorded in `run_dir`; returns how many processes died."""
        ...


class LocalHost:
    """This machine."""

    kind = "local"

    def probe(self) -> HardwareFacts:
        from vibeserve import hardware

        return hardware.probe()

    def resolve_tier(self, declared: spec.Tier, *, allow_none: bool) -> spec.Tier:
        return sandbox.resolve_tier(declared, allow_none=allow_none)

    def lease_port(self) -> int:
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
            probe.bind(("127.0.0.1", 0))
            port: int = probe.getsockname()[1]
        return port

    def spawn(self, argv: Sequence[str], *, wall: Wall, log: Path, record_dir: Path | None = None) -> Process:
        return sandbox.spawn(argv, wall=wall, log=log, record_dir=record_dir)

    def run(self, argv: Sequence[str], *, wall: Wall, log: Path, timeout_s: float) -> Finished:
        return sandbox.run(argv, wall=wall, log=log, timeout_s=timeout_s)

    def join_argv(self, process: Process, argv: Sequence[str], *, cpus: Sequence[int] = ()) -> list[str]:
        return sandbox.join_argv(process, argv, cpus=cpus)

    def sweep_orphans(self, run_dir: Path) -> int:
        return sandbox.sweep_orphans(run_dir)


_HOSTS: dict[str, Callable[[], Host]] = {"local": LocalHost}


def get_host(declared: spec.Host) -> Host:
    """The host of that kind. Raises SpecError for a kind that does not exist."""
    if declared.kind not in _HOSTS:
        raise SpecError(
            f"host.kind: unknown host '{declared.kind}'", problems=[f"valid kinds: {', '.join(sorted(_HOSTS))}"]
        )
    return _HOSTS[declared.kind]()
