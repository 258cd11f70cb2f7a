"""Which audits are held on which servers, and whose failure is whose. Audits are scripted."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from loop_fakes import FakeServer

from vibeserve.errors import InfraError, ServerError
from vibeserve.live_audits import Audited, Auditor, auditor
from vibeserve.live_audits.nouns import audited, not_applicable
from vibeserve.progress import QuietProgress
from vibeserve.schedules import AuditScope
from vibeserve.spec import Load, Spec, Workload

WORKSPACE = Path("/workspace")


@dataclass
class FakeBench:
    plan: Any = field(default_factory=lambda: SimpleNamespace(spec=Spec()))
    servers: list[FakeServer] = field(default_factory=list)
    failure: Exception | None = None

    def serve(self, workspace: Path, *, name: str) -> FakeServer:
        if self.failure is not None:
            raise self.failure
        self.servers.append(FakeServer(name))
        return self.servers[-1]


@dataclass
class Rig:
    bench: Any = field(default_factory=FakeBench)
    progress: QuietProgress = field(default_factory=QuietProgress)
    held: list[tuple[str, int]] = field(default_factory=list)
    """audit, and the number of the server that it was held on"""
    soak_s: float = 0.0

    def passing(self, name: str) -> Callable[..., Audited]:
        def hold(bench: Any, server: Any, *_: Any, seed: int = 0, soak_s: float = 0.0) -> Audited:
            is_server = isinstance(server, FakeServer)
            self.held.append((name, [each is server for each in self.bench.servers].index(True) if is_server else -1))
            self.soak_s = soak_s
            return audited(name, text="steady", figures={}, refused={})

        return hold

    def run(self, scope: AuditScope) -> list[Audited]:
        return Auditor(self.bench, progress=self.progress).run(WORKSPACE, scope=scope, soak_s=600.0, name="winner")


@pytest.fixture
def rig(monkeypatch: pytest.MonkeyPatch) -> Rig:
    made = Rig()
    for group in ("CHEAP", "PREDICTED", "LONG"):
        scripted = tuple((name, made.passing(name)) for name, _ in getattr(auditor, group))
        monkeypatch.setattr(auditor, group, scripted)
    monkeypatch.setattr(auditor.restart, "audit_restart", made.passing("restarted"))
    monkeypatch.setattr(auditor.perturbed, "audit_weights", made.passing("damaged_weights"))
    monkeypatch.setattr(auditor.precision, "audit_precision", made.passing("weights_precision"))
    monkeypatch.setattr(auditor.soaking, "audit_soak", made.passing("soak"))
    return made


def test_a_scope_holds_its_audits_on_fresh_servers_and_stops_them(rig: Rig) -> None:
    assert rig.run(AuditScope.none) == [] and rig.bench.servers == []
    rig.run(AuditScope.cheap)
    assert rig.held == [
        ("shared_prefix", 0),
        ("repeated_prompt", 0),
        ("duplicates_in_flight", 0),
        ("weights_precision", -1),
    ]
    rig.held.clear()
    found = rig.run(AuditScope.full)
    assert rig.held == [
        ("shared_prefix", 1), ("repeated_prompt", 1), ("duplicates_in_flight", 1), ("weights_precision", -1),
        ("idle_after_replies", 2), ("off_distribution", 2), ("other_seeds", 2),
        ("restarted", -1), ("damaged_weights", -1), ("soak", 3),
    ]  # fmt: skip
    assert rig.soak_s == 600.0
    assert len(found) == 10 and all(audit.result.passed for audit in found)
    assert {server.name for server in rig.bench.servers} == {"winner"}
    assert all(server.num_stops == 1 for server in rig.bench.servers)


def test_predictions_are_audited_where_clients_send_some(rig: Rig) -> None:
    rig.bench.plan.spec.workload = Workload(kind="code_edit", loads={"c1": Load(), "edits": Load(prediction="edits")})
    rig.run(AuditScope.cheap)
    assert rig.held[-3:] == [("duplicates_in_flight", 0), ("predicted_outputs", 0), ("weights_precision", -1)]
    rig.bench.plan.spec.workload = Workload(kind="code_edit", loads={"c1": Load()})
    rig.run(AuditScope.cheap)
    assert rig.held[-2:] == [("duplicates_in_flight", 1), ("weights_precision", -1)]


def test_every_audit_of_the_full_scope_is_named_where_it_is_left_out(rig: Rig) -> None:
    names = {audit.result.name for audit in rig.run(AuditScope.full)}
    assert names == {*auditor.LEFT_OUT, *auditor.LEFT_OUT_OF_NONE}


def test_a_server_that_dies_in_an_audit_is_refused_and_the_next_one_gets_another(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    def die(bench: Any, server: FakeServer, seed: int) -> Audited:
        server.status = -9
        raise ServerError(server.name, outcome="died", detail="exit status -9 in an audit", log_tail="killed")

    (first, _), *rest = auditor.CHEAP
    monkeypatch.setattr(auditor, "CHEAP", ((first, die), *rest))
    found = rig.run(AuditScope.cheap)
    assert [(refusal.gate, refusal.reason_class) for refusal in found[0].refusals] == [("audit", "died")]
    assert [audit.state for audit in found] == ["refused", "passed", "passed", "passed"]
    assert [number for _, number in rig.held] == [1, 1, -1]
    assert all(server.num_stops >= 1 for server in rig.bench.servers)


def test_a_server_that_does_not_start_for_its_audits_is_refused_by_each(rig: Rig) -> None:
    rig.bench.failure = ServerError("winner", outcome="timed_out", detail="not ready", log_tail="")
    found = rig.run(AuditScope.cheap)
    assert [audit.refusals[0].reason_class for audit in found[:3]] == ["timed_out"] * 3


def test_a_machine_that_fails_is_no_result(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(bench: Any, server: FakeServer, seed: int) -> Audited:
        raise InfraError("load generator 'repeat_prompt' ended with 1")

    monkeypatch.setattr(auditor, "CHEAP", (("repeated_prompt", fail),))
    with pytest.raises(InfraError, match="load generator"):
        rig.run(AuditScope.cheap)
    assert [server.num_stops for server in rig.bench.servers] == [1]


def test_every_audit_is_told_in_a_line(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        auditor, "CHEAP", (("shared_prefix", lambda *_: not_applicable("shared_prefix", "no prompts")),)
    )
    rig.run(AuditScope.cheap)
    assert ("audit", "shared_prefix not run: no prompts") in rig.progress.events
