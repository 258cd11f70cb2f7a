"""The audits of a certification, by scope, each on a server that was started for them."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from vibeserve.errors import ServerError
from vibeserve.live_audits import (
    duplicates,
    idle,
    off_distribution,
    other_seeds,
    perturbed,
    precision,
    predictions,
    prefixes,
    repeats,
    restart,
)
from vibeserve.live_audits import soak as soaking
from vibeserve.live_audits.nouns import Audited, audited
from vibeserve.progress import Progress
from vibeserve.roles.workbench import Workbench
from vibeserve.schedules import AuditScope
from vibeserve.service import Server

OnServer = Callable[[Workbench, Server, int], Audited]

CHEAP: tuple[tuple[str, OnServer], ...] = (
    (prefixes.NAME, lambda bench, server, seed: prefixes.audit_shared_prefix(bench, server, seed=seed)),
    (repeats.NAME, lambda bench, server, seed: repeats.audit_repeats(bench, server, seed=seed)),
    (duplicates.NAME, lambda bench, server, seed: duplicates.audit_duplicates(bench, server, seed=seed)),
)
"""at every level, on one fresh server"""
PREDICTED: tuple[tuple[str, OnServer], ...] = (
    (predictions.NAME, lambda bench, server, seed: predictions.audit_predictions(bench, server, seed=seed)),
)
"""with them, where clients predict their answers"""
LONG: tuple[tuple[str, OnServer], ...] = (
    (idle.NAME, lambda bench, server, seed: idle.audit_idle(bench, server, seed=seed)),
    (
        off_distribution.NAME,
        lambda bench, server, seed: off_distribution.audit_off_distribution(bench, server, seed=seed),
    ),
    (other_seeds.NAME, lambda bench, server, seed: other_seeds.audit_seeds(bench, server, seed=seed)),
)
"""at level full, on another one; the first of them needs a server that has served nothing"""
LEFT_OUT = {
    off_distribution.NAME: "off-distribution audit",
    other_seeds.NAME: "other-seeds audit",
    idle.NAME: "idle-after-replies audit",
    restart.NAME: "restart audit",
    perturbed.NAME: "perturbed-weights audit",
    soaking.NAME: "soak with drift tests",
}
"""what a scope below full leaves out, as `not_run` has it"""
LEFT_OUT_OF_NONE = {
    prefixes.NAME: "shared-prefix audit",
    repeats.NAME: "repeated-prompt audit",
    duplicates.NAME: "duplicates-in-flight audit",
    precision.NAME: "weights-precision audit",
}


def left_out(scope: AuditScope, *, hardware_kind: str = "cpu") -> tuple[str, ...]:
    """Audits that the scope does not hold, and what those it holds cannot see of this hardware."""
    if scope is AuditScope.full:
        return () if hardware_kind == "cpu" else ("watch of the device after the last reply (CPU time was watched)",)
    longer = tuple(LEFT_OUT.values())
    return (*LEFT_OUT_OF_NONE.values(), *longer) if scope is AuditScope.none else longer


class Auditor:
    """Runs audits on the certified runtime. The caller holds the devices; no other server is up."""

    def __init__(self, bench: Workbench, *, progress: Progress) -> None:
        self._bench = bench
        self._progress = progress

    def run(self, workspace: Path, *, scope: AuditScope, soak_s: float, name: str) -> list[Audited]:
        """Every audit of `scope` on servers called `name`. What the runtime does wrong is in the result, its death
        included; InfraError is the machine's doing and no result."""
        found: list[Audited] = []
        for each in self._held(workspace, scope=scope, soak_s=soak_s, name=name):
            found.append(each)
            self._progress.event("audit", f"{each.result.name} {each.state}: {each.result.text}")
        return found

    def _held(self, workspace: Path, *, scope: AuditScope, soak_s: float, name: str) -> Iterator[Audited]:
        if scope is AuditScope.none:
            return
        predicted = PREDICTED if predictions.kinds_of(self._bench.plan.spec.workload) else ()
        yield from self._on_one_server(workspace, (*CHEAP, *predicted), name=name)
        yield self._guarded(precision.NAME, lambda: precision.audit_precision(self._bench, workspace, seed=_seed()))
        if scope is not AuditScope.full:
            return
        yield from self._on_one_server(workspace, LONG, name=name)
        yield self._guarded(restart.NAME, lambda: restart.audit_restart(self._bench, workspace, seed=_seed()))
        yield self._guarded(perturbed.NAME, lambda: perturbed.audit_weights(self._bench, workspace, seed=_seed()))
        yield from self._on_one_server(workspace, [(soaking.NAME, _soak(soak_s))], name=name)

    def _on_one_server(
        self, workspace: Path, audits: Sequence[tuple[str, OnServer]], *, name: str
    ) -> Iterator[Audited]:
        """One fresh server for all of them, and another where one of them ended it."""
        server: Server | None = None
        try:
            for audit, hold in audits:

                def held(audit: str = audit, hold: OnServer = hold) -> Audited:
                    nonlocal server
                    if server is not None and server.poll() is not None:
                        server.stop(drain_s=0)
                        server = None
                    if server is None:
                        server = self._bench.serve(workspace, name=name)
                    with self._progress.busy("audit", audit.replace("_", " ")):
                        return hold(self._bench, server, _seed())

                yield self._guarded(audit, held)
        finally:
            if server is not None:
                server.stop(drain_s=0)

    def _guarded(self, name: str, hold: Callable[[], Audited]) -> Audited:
        """All servers here are the candidate's: one that dies, or does not start, is refused for that."""
        try:
            return hold()
        except ServerError as error:
            return audited(name, text="", figures={}, refused={error.outcome: str(error).splitlines()[0]})


def _soak(soak_s: float) -> OnServer:
    return lambda bench, server, seed: soaking.audit_soak(bench, server, seed=seed, soak_s=soak_s)


def _seed() -> int:
    """Drawn when the audit begins: the runtime is frozen and its server up, or started for it."""
    return secrets.randbits(31)
