"""What agents have spent, and the caps on it.

A cap is looked at before a request is sent, so that it is exceeded by the request in flight at most.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from vibeserve.agents.prices import PriceTable
from vibeserve.agents.requests import AgentUsage
from vibeserve.errors import AgentCapError


@dataclass(frozen=True, kw_only=True)
class Spend:
    """Document: one answered request to a model, as the journal keeps it (event `spend`)."""

    role: str
    key: str
    """session key of the call"""
    backend: str
    model: str
    usage: AgentUsage
    usd: float | None
    """None: the model has no price"""
    is_estimate: bool = False
    """the answer told no usage; counted by its characters"""


@dataclass(frozen=True, kw_only=True)
class Cap:
    """0 = none."""

    tokens: int = 0
    usd: float = 0.0


@dataclass(kw_only=True)
class Ledger:
    """Every spend of a run, by role and key. Safe to use from several threads."""

    run_cap: Cap
    role_caps: Mapping[str, Cap]
    prices: PriceTable
    record: Callable[[Spend], None] = lambda spend: None
    """makes a spend durable before it counts"""
    _spends: list[Spend] = field(default_factory=list)
    _lock: threading.RLock = field(default_factory=threading.RLock)

    def restore(self, spends: Iterable[Spend]) -> None:
        """Take in what an earlier process of the same run spent."""
        with self._lock:
            self._spends = list(spends)

    def check(self, role: str) -> None:
        """AgentCapError where the run's cap or the role's is reached."""
        with self._lock:
            for scope, cap, spends in (
                ("run", self.run_cap, self._spends),
                (role, self.role_caps.get(role, Cap()), [each for each in self._spends if each.role == role]),
            ):
                _refuse_reached(scope, cap, spends)

    def add(
        self, *, role: str, key: str, backend: str, model: str, usage: AgentUsage, is_estimate: bool = False
    ) -> Spend:
        """Count one answered request; returns it with its cost."""
        price = self.prices.price_of(model)
        spend = Spend(
            role=role, key=key, backend=backend, model=model, usage=usage, is_estimate=is_estimate,
            usd=None if price is None else price.usd(usage),
        )  # fmt: skip
        with self._lock:
            self.record(spend)
            self._spends.append(spend)
        return spend

    def of(self, *, role: str = "", key: str = "") -> list[Spend]:
        """Spends so far, of one role or one call."""
        with self._lock:
            return [each for each in self._spends if role in ("", each.role) and key in ("", each.key)]

    def usage(self, *, role: str = "", key: str = "") -> AgentUsage:
        """Sum over `of`."""
        return sum((each.usage for each in self.of(role=role, key=key)), start=AgentUsage())

    def usd(self, *, role: str = "", key: str = "") -> float | None:
        """Cost over `of`; None where a part of it has no price."""
        return total_usd(self.of(role=role, key=key))


def total_usd(spends: Iterable[Spend]) -> float | None:
    """Sum of the costs; None where one of them is not known."""
    costs = [spend.usd for spend in spends]
    known = [cost for cost in costs if cost is not None]
    return sum(known) if len(known) == len(costs) else None


def _refuse_reached(scope: str, cap: Cap, spends: list[Spend]) -> None:
    tokens = sum(each.usage.tokens for each in spends)
    usd = sum(each.usd or 0.0 for each in spends)
    whose = "the run's" if scope == "run" else f"agents.{scope}'s"
    where = "budget" if scope == "run" else f"agents.{scope}"
    names = ("tokens", "usd") if scope == "run" else ("max_tokens", "max_usd")
    if cap.tokens and tokens >= cap.tokens:
        text = f"{whose} cap of {cap.tokens} tokens is reached ({tokens}); next: raise {where}.{names[0]}"
        raise AgentCapError(text, scope=scope)
    if cap.usd and usd >= cap.usd:
        text = f"{whose} cap of {cap.usd:g} USD is reached ({usd:.4f}); next: raise {where}.{names[1]}"
        raise AgentCapError(text, scope=scope)
