"""`invoke agents-loopback -- --faults`: everything that a model's API and an agent may do wrong, one call each, through
the caller that a run has. What came of it, what it cost, how long it took."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from vibeserve.agents.caller import AgentCaller
from vibeserve.agents.ledger import Cap, Ledger
from vibeserve.agents.prices import PriceTable, load_prices
from vibeserve.agents.requests import AgentBackend
from vibeserve.agents.sandboxed import ToolSandbox
from vibeserve.agents.schemas import SCHEMAS
from vibeserve.errors import AgentCapError, AgentInfraError, RefusedError
from vibeserve.hosts import LocalHost
from vibeserve.loopback.script import Command, Fault, Step, Submit
from vibeserve.loopback.server import ScriptedServer
from vibeserve.progress import QuietProgress
from vibeserve.sandbox import Resources
from vibeserve.spec import Agents, Price, RoleAgent, Tier, resolve_role

KEY = "r01a1-implementer"
PROMPT = f"vibeserve-call: {KEY}\n\nWrite hello.py, then answer with the JSON document that was asked for.\n"
DONE = Submit({"status": "done", "summary": "wrote hello.py", "activation_evidence": "", "risks": ""})
EDIT = Command("printf 'def hello():\\n    return 42\\n' > hello.py")
MAX_TURNS, SEARCH_S, CALL_S = 6, 60.0, 50.0
ONE_DOLLAR = Price(input_usd_per_m=1.0, cached_input_usd_per_m=0.1, output_usd_per_m=10.0)


@dataclass(frozen=True, kw_only=True)
class Case:
    """One thing that goes wrong."""

    name: str
    steps: Sequence[Step]
    cap: Cap = field(default_factory=Cap)
    is_reachable: bool = True


CASES = (
    Case(name="a correct edit", steps=(EDIT, DONE)),
    Case(name="malformed JSON, then mended", steps=(EDIT, Fault("malformed"), DONE)),
    Case(name="malformed JSON for ever", steps=(EDIT, Fault("malformed", times=0), DONE)),
    Case(name="empty answer for ever", steps=(EDIT, Fault("empty", times=0), DONE)),
    Case(name="refusal for ever", steps=(EDIT, Fault("refusal", times=0), DONE)),
    Case(name="endless tool loop", steps=(Fault("endless"),)),
    Case(name="huge output of a tool", steps=(Fault("huge"), EDIT, DONE)),
    Case(name="stream cut once", steps=(EDIT, Fault("cut"), DONE)),
    Case(name="stream cut for ever", steps=(EDIT, Fault("cut", times=0), DONE)),
    Case(name="429 twice", steps=(EDIT, Fault("429", times=2), DONE)),
    Case(name="429 for ever", steps=(EDIT, Fault("429", times=0), DONE)),
    Case(name="500 for ever", steps=(EDIT, Fault("500", times=0), DONE)),
    Case(name="error page with status 200", steps=(EDIT, Fault("garbled", times=0), DONE)),
    Case(name="wrong key", steps=(Fault("unauthorised", times=0), DONE)),
    Case(name="server not there", steps=(EDIT, DONE), is_reachable=False),
    Case(name="cap of one token", steps=(EDIT, EDIT, DONE), cap=Cap(tokens=1)),
    Case(name="an agent that forks a daemon", steps=(Command("setsid sleep 3600 & printf x > hello.py"), DONE)),
)


@dataclass(frozen=True, kw_only=True)
class FaultRow:
    client: str
    fault: str
    outcome: str
    """done, or the class and the reason of what was raised"""
    detail: str
    requests: int
    tokens: int
    usd: float
    seconds: float


def fault_rows(clients: Sequence[str], *, num_parallel: int = 1) -> Iterator[FaultRow]:
    """Every case with every client, in order; they must be installed. What goes wrong is waited out for the most part,
    so that several at once cost little, but the seconds are then not a case's own."""
    tried = [(client, case) for client in clients for case in CASES]
    if num_parallel == 1:
        yield from (_tried(client, case) for client, case in tried)
        return
    with ThreadPoolExecutor(max_workers=num_parallel) as pool:
        yield from pool.map(lambda pair: _tried(*pair), tried)


def _tried(client: str, case: Case) -> FaultRow:
    with TemporaryDirectory(prefix="vibeserve-fault-") as scratch, _served(case) as server:
        ledger = Ledger(run_cap=case.cap, role_caps={}, prices=_prices())
        started_s = time.monotonic()
        outcome, detail = _outcome(client, case, ledger=ledger, folder=Path(scratch), server=server)
        spent = ledger.usage()
        return FaultRow(
            client=client, fault=case.name, outcome=outcome, detail=detail, requests=spent.num_requests,
            tokens=spent.tokens, usd=round(ledger.usd() or 0.0, 6), seconds=round(time.monotonic() - started_s, 1),
        )  # fmt: skip


@contextmanager
def _served(case: Case) -> Iterator[ScriptedServer]:
    server = ScriptedServer(script=lambda key: case.steps)
    server.start()
    if not case.is_reachable:
        server.stop()
    try:
        yield server
    finally:
        server.stop()


def _outcome(client: str, case: Case, *, ledger: Ledger, folder: Path, server: ScriptedServer) -> tuple[str, str]:
    caller = _caller(client, ledger=ledger, folder=folder, server=server)
    workspace = folder / "workspace"
    workspace.mkdir()
    try:
        answer = caller.ask(
            key=KEY, prompt=PROMPT, workspace=workspace, is_writable=True, schema=SCHEMAS["implementer"]
        )
    except AgentCapError as error:
        return "cap", str(error).splitlines()[0]
    except AgentInfraError as error:
        return ("infra, lasting" if error.is_lasting else "infra"), str(error).splitlines()[0]
    except RefusedError as error:
        return _reason(error), str(error).splitlines()[0]
    edited = "edited" if (workspace / "hello.py").is_file() else "NOT EDITED"
    return "done", f"{edited}, {answer.num_tries} tries"


def _reason(error: RefusedError) -> str:
    reason: Any = error.reasons[0]
    return f"refused: {reason.reason_class}"


def _caller(client: str, *, ledger: Ledger, folder: Path, server: ScriptedServer) -> AgentCaller:
    address = server.root_url if client == "claude" else server.base_url
    declared = Agents(backend=client, model="scripted", base_url=address, max_turns=MAX_TURNS, timeout_s=CALL_S)
    agent = resolve_role(declared, "implementer")
    until_s = time.monotonic() + SEARCH_S
    return AgentCaller(
        agent=agent, backend=_backend(agent, declared, ledger=ledger), ledger=ledger, folder=folder / "agents",
        progress=QuietProgress(), remaining_s=lambda: until_s - time.monotonic(),
    )  # fmt: skip


def _backend(agent: RoleAgent, declared: Agents, *, ledger: Ledger) -> AgentBackend:
    host = LocalHost()
    sandbox = ToolSandbox(host=host, tier=host.resolve_tier(Tier.auto, allow_none=False), resources=Resources())
    if agent.backend == "openai":
        from vibeserve.agents.openai_loop import OpenAIBackend, SkillShelf

        return OpenAIBackend(agent, declared, ledger=ledger, sandbox=sandbox, skills=SkillShelf())
    from vibeserve.agents.clients import make_client_backend

    return make_client_backend(agent, declared, ledger=ledger, sandbox=sandbox, patience_s=2.0)


def _prices() -> PriceTable:
    return load_prices(ONE_DOLLAR)


def fault_lines(rows: Sequence[FaultRow]) -> Iterator[str]:
    """As a table."""
    yield f"{'client':8} {'what went wrong':30} {'outcome':26} {'req':>4} {'tokens':>7} {'USD':>9} {'s':>6}  detail"
    for row in rows:
        numbers = f"{row.requests:>4} {row.tokens:>7} {row.usd:>9.5f} {row.seconds:>6.1f}"
        yield f"{row.client:8} {row.fault:30} {row.outcome:26} {numbers}  {row.detail[:70]}"
