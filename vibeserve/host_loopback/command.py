"""`invoke hosts-loopback`: the same runtime on this machine and on every kind of host that can be had on it: behind a
real sshd of loopback, in an allocation of a real Slurm cluster of one node, in a container of a docker daemon."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

from vibeserve.arguments import VerbParser
from vibeserve.core.documents import to_data
from vibeserve.core.tables import aligned
from vibeserve.errors import VibeServeError
from vibeserve.host_loopback.container import running_container
from vibeserve.host_loopback.slurm import running_cluster
from vibeserve.host_loopback.sshd import running_sshd
from vibeserve.host_loopback.trial import Compared, left_after, local_trial, remote_trial
from vibeserve.hosts.connection import HostLostError
from vibeserve.hosts.container import DockerHost
from vibeserve.hosts.piped import PipedHost
from vibeserve.hosts.slurm import SlurmHost
from vibeserve.hosts.ssh import SshHost


@dataclass(frozen=True, kw_only=True)
class HostRow:
    """What one kind of host did."""

    kind: str
    available: bool
    why_not: str = ""
    verdict: str = ""
    """pass, or the first refusal"""
    ratio: float | None = None
    """of the candidate over the scaffold, output throughput"""
    ci_low: float | None = None
    ci_high: float | None = None
    infra_typed: bool | None = None
    """a connection that is cut in the middle of windows is an infrastructure error; None where there is none to cut"""
    orphans: int = 0
    """processes that were still there afterwards"""
    swept: int = 0
    """that the next connection of the same run had to kill"""


@dataclass(frozen=True, kw_only=True)
class HostsLoopback:
    """Document: every kind."""

    hosts: tuple[HostRow, ...]
    schema_version: int = 1


def main(argv: Sequence[str]) -> int:
    """Try them; exit 3 where one that is available is refused, or loses something."""
    parser = VerbParser("hosts-loopback", description="The same runtime on every kind of host that is available here.")
    parser.add_argument("--only", default="", help=f"kinds, of {','.join(TRIALS)}")
    arguments = parser.parse_args(list(argv))
    rows = [row_of(kind) for kind in TRIALS if not arguments.only or kind in arguments.only.split(",")]
    if arguments.is_json:
        sys.stdout.write(json.dumps(to_data(HostsLoopback(hosts=tuple(rows))), indent=2) + "\n")
    else:
        sys.stdout.write("".join(f"{line}\n" for line in aligned([_HEAD, *map(_cells, rows)])))
    return 0 if all(map(is_good, rows)) else 3


def row_of(kind: str) -> HostRow:
    """Both trials on one kind of host."""
    with TemporaryDirectory(prefix="vibeserve-hosts-") as folder:
        try:
            return TRIALS[kind](Path(folder))
        except VibeServeError as error:
            return HostRow(kind=kind, available=False, why_not=str(error).splitlines()[0])


def is_good(row: HostRow) -> bool:
    """Not available, or passed without a loss."""
    return not row.available or (row.verdict == "pass" and row.infra_typed is not False and row.orphans == 0)


def _local(folder: Path) -> HostRow:
    return _row("local", local_trial(folder).compare())


def _ssh(folder: Path) -> HostRow:
    with running_sshd(folder / "sshd") as sshd:
        return _piped(folder, SshHost(sshd.declared(folder / "host")), sever=sshd.kill, mend=sshd.start)


def _slurm(folder: Path) -> HostRow:
    with running_cluster(folder / "slurm") as cluster:
        return _piped(folder, SlurmHost(cluster.declared(folder / "host")), sever=cluster.cancel)


def _docker(folder: Path) -> HostRow:
    with running_container() as container:
        return _piped(folder, DockerHost(container.declared()), sever=container.kill)


def _piped(
    folder: Path, host: PipedHost, *, sever: Callable[[], None], mend: Callable[[], None] = lambda: None
) -> HostRow:
    """Both trials; then what is left of the second one, and what the next connection of its run finds."""
    try:
        trial = remote_trial(folder / "controller", host=host)
        row, root = _row(host.kind, trial.compare()), host.root
        error = trial.cut(sever)
        host.close()  # a connection that was made anew meanwhile is no orphan of the one that was cut
        orphans = len(left_after(root))
        mend()
        swept = host.sweep_orphans(folder / "controller" / "runs" / "cut")
    finally:
        host.close()
    return replace(row, infra_typed=isinstance(error, HostLostError), orphans=orphans, swept=swept)


def _row(kind: str, found: Compared) -> HostRow:
    refusals, headline = found.verdict.refusals, found.headline
    return HostRow(
        kind=kind, available=True, verdict=refusals[0].feedback if refusals else "pass", ratio=round(headline.ratio, 4),
        ci_low=round(headline.ci_low, 4), ci_high=round(headline.ci_high, 4),
    )  # fmt: skip


TRIALS: dict[str, Callable[[Path], HostRow]] = {"local": _local, "ssh": _ssh, "slurm": _slurm, "docker": _docker}
"""by kind of host"""
_HEAD = ("host", "verdict", "ratio", "lost connection", "orphans", "why not")


def _cells(row: HostRow) -> tuple[str, ...]:
    ratio = "" if row.ratio is None else f"{row.ratio:.3f} [{row.ci_low:.3f}, {row.ci_high:.3f}]"
    lost = {None: "", True: "infra", False: "not typed"}[row.infra_typed]
    return (row.kind, row.verdict, ratio, lost, str(row.orphans), row.why_not)
