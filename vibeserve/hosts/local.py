"""This machine."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from vibeserve import sandbox, spec
from vibeserve.sandbox import Finished, Process, Wall

if TYPE_CHECKING:
    from vibeserve.hardware import HardwareFacts


class LocalHost:
    """This machine."""

    kind = "local"

    def probe(self) -> HardwareFacts:
        from vibeserve import hardware

        return hardware.probe()

    def bandwidth_gb_s(self, cpus: Sequence[int]) -> float:
        from vibeserve import hardware

        return hardware.measure_bandwidth_gb_s(tuple(cpus))

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

    def close(self) -> None:
        """Nothing is held."""

    def sweep_orphans(self, run_dir: Path) -> int:
        return sandbox.sweep_orphans(run_dir)
