"""The port to machines."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from vibeserve import spec
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

    def bandwidth_gb_s(self, cpus: Sequence[int]) -> float:
        """Read bandwidth of these CPUs, measured now."""
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

    def close(self) -> None:
        """End what was started for this object alone, and give back what it holds of the machine."""
        ...

    def sweep_orphans(self, run_dir: Path) -> int:
        """Kill what an earlier controller left of the trees recorded in `run_dir`; returns how many processes died."""
        ...
