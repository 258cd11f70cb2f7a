"""What one call has asked for and spent, and why its next request is refused."""

from __future__ import annotations

from dataclasses import dataclass, field

from vibeserve.agents.ledger import Ledger, Spend, total_usd
from vibeserve.agents.proxy.metering import Metered
from vibeserve.agents.requests import AgentUsage
from vibeserve.errors import AgentCapError, AgentInfraError, VibeServeError

CAP, MAX_TURNS = "cap", "max_turns"


@dataclass(kw_only=True)
class Books:
    """Of one call. Written in the proxy's thread, read in any."""

    role: str
    key: str
    backend: str
    max_turns: int
    ledger: Ledger = field(repr=False)
    num_in_flight: int = 0
    spends: list[Spend] = field(default_factory=list)
    stop_reason: str = ""
    cap_error: AgentCapError | None = None
    last_failure: AgentInfraError | None = None
    last_refusal: str = ""
    broken: Exception | None = None
    """a spend or a record that could not be written: nothing more is let through"""

    def admit(self) -> str:
        """Let one metered request pass, or say why not. Requests in flight count as turns and not as spend: a cap is
        exceeded by those at most."""
        if self.broken is not None:
            return f"what this call spends cannot be recorded: {self.broken}"
        if len(self.spends) + self.num_in_flight >= self.max_turns:
            self.stop_reason = self.stop_reason or MAX_TURNS
            return f"the {self.max_turns} requests of this call are used up (agents.max_turns)"
        try:
            self.ledger.check(self.role)
        except AgentCapError as error:
            self.stop_reason, self.cap_error = CAP, error
            return str(error)
        self.num_in_flight += 1
        return ""

    def count(self, metered: Metered, *, model: str) -> Spend | None:
        """An admitted request was answered. None where the spend could not be recorded (`broken`)."""
        try:
            spend = self.ledger.add(
                role=self.role, key=self.key, backend=self.backend, model=model, usage=metered.usage,
                is_estimate=metered.is_estimate,
            )  # fmt: skip
        except (OSError, VibeServeError) as error:
            self.broken = error
            return None
        self.spends.append(spend)
        return spend

    @property
    def usage(self) -> AgentUsage:
        return sum((spend.usage for spend in self.spends), start=AgentUsage())

    @property
    def usd(self) -> float | None:
        return total_usd(self.spends)
