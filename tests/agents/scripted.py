"""A back end that answers from a list, for tests of what calls it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from vibeserve.agents.caller import AgentCaller
from vibeserve.agents.ledger import Cap, Ledger, Spend
from vibeserve.agents.prices import ModelPrice, PriceTable
from vibeserve.agents.requests import AgentRequest, AgentResult, AgentUsage, ExitFacts, Turn
from vibeserve.progress import QuietProgress
from vibeserve.spec import RoleAgent

Answer = str | Exception | ExitFacts | Callable[[AgentRequest], str]


def role_agent(role: str, **changes: Any) -> RoleAgent:
    values: dict[str, Any] = {
        "role": role, "backend": "scripted", "model": "m", "effort": "", "base_url": "", "api_key_env": "",
        "max_tokens": 0, "max_usd": 0.0, "timeout_s": 60.0, "max_turns": 8,
    }  # fmt: skip
    return RoleAgent(**(values | changes))


@dataclass
class Scripted:
    """Answers in order: a text, an ending without one, something to raise, or a function of the request."""

    answers: list[Answer]
    ledger: Ledger
    tokens: int = 100
    name: str = "scripted"
    resumes: bool = False
    requests: list[AgentRequest] = field(default_factory=list)

    def run(self, request: AgentRequest) -> AgentResult:
        self.requests.append(request)
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        self.ledger.add(
            role=request.role, key=request.key, backend=self.name, model="m", usage=AgentUsage(input_tokens=self.tokens)
        )
        if isinstance(answer, ExitFacts):
            return AgentResult(text="", exit=answer)
        text = answer if isinstance(answer, str) else answer(request)
        return AgentResult(text=text, exit=ExitFacts(reason="done"), transcript=(Turn(kind="message", text=text),))


@dataclass
class Desk:
    """A caller over a scripted back end, with a clock that `sleep` moves."""

    folder: Path
    answers: list[Answer]
    role: str = "judge"
    time_s: float = 1000.0
    cap: Cap = field(default_factory=Cap)
    slept: list[float] = field(default_factory=list)
    spends: list[Spend] = field(default_factory=list)

    def __post_init__(self) -> None:
        price = ModelPrice(input_usd_per_m=1.0, cached_input_usd_per_m=0.5, output_usd_per_m=2.0)
        self.ledger = Ledger(
            run_cap=self.cap, role_caps={}, prices=PriceTable(date="", models={"m": price}), record=self.spends.append
        )
        self.backend = Scripted(self.answers, self.ledger)
        self.caller = AgentCaller(
            agent=role_agent(self.role), backend=self.backend, ledger=self.ledger, folder=self.folder,
            progress=QuietProgress(), remaining_s=lambda: self.time_s, sleep=self.sleep,
        )  # fmt: skip

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.time_s -= seconds
