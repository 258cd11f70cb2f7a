"""What a run has spent: by agents and round from their journalled spends, on the device from its rounds."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from vibeserve.journal import Event
from vibeserve.status.rounds import RoundRow


@dataclass(frozen=True, kw_only=True)
class SpentBy:
    """Tokens and cost of one role in one round."""

    round: int
    role: str
    model: str
    num_requests: int
    tokens: int
    usd: float | None
    """None: the model has no price"""

    def line(self) -> str:
        cost = "no price" if self.usd is None else f"{self.usd:.4f} USD"
        asked = f"{self.num_requests} requests, {self.tokens} tokens, {cost}"
        return f"round {self.round} {self.role} ({self.model}): {asked}"


@dataclass(frozen=True, kw_only=True)
class SpentByRole:
    """What one role cost in all."""

    role: str
    models: str
    num_requests: int
    tokens: int
    usd: float | None
    """None: some of it has no price"""

    def line(self) -> str:
        cost = "some without a price" if self.usd is None else f"{self.usd:.4f} USD"
        return f"{self.role} ({self.models}): {self.num_requests} requests, {self.tokens} tokens, {cost}"


@dataclass(frozen=True, kw_only=True)
class SpentInAll:
    """Of the whole run so far."""

    tokens: int
    usd: float
    """of models with a price"""
    unpriced_tokens: int
    device_s: float
    """in which a contender served a timed load"""
    rounds_s: float
    """wall time of the finished rounds"""


def spent_rows(events: Sequence[Event]) -> tuple[SpentBy, ...]:
    """What agents spent, by round, role and model, in the order of the rounds. A call's key names its round."""
    groups: dict[tuple[int, str, str], list[Any]] = {}
    for data in readable_spends(events):
        named = re.match(r"[rp](\d+)", data["key"])
        key = (int(named[1]) if named else 0, data["role"], data["model"])
        groups.setdefault(key, []).append(data)
    return tuple(
        SpentBy(
            round=number, role=role, model=model, num_requests=len(rows), tokens=sum(_tokens(row) for row in rows),
            usd=None if any(row["usd"] is None for row in rows) else sum(row["usd"] for row in rows),
        )
        for (number, role, model), rows in sorted(groups.items())
    )  # fmt: skip


def spent_by_role(rows: Sequence[SpentBy]) -> tuple[SpentByRole, ...]:
    """Totals by role, the dearest in tokens first."""
    groups: dict[str, list[SpentBy]] = {}
    for each in rows:
        groups.setdefault(each.role, []).append(each)
    found = [
        SpentByRole(
            role=role, models=", ".join(dict.fromkeys(each.model for each in spent)),
            num_requests=sum(each.num_requests for each in spent), tokens=sum(each.tokens for each in spent),
            usd=None if any(each.usd is None for each in spent) else sum(each.usd or 0.0 for each in spent),
        )
        for role, spent in groups.items()
    ]  # fmt: skip
    return tuple(sorted(found, key=lambda each: (-each.tokens, each.role)))


def spent_in_all(events: Sequence[Event], rows: Sequence[RoundRow]) -> SpentInAll:
    """Sums over the journal."""
    spends = readable_spends(events)
    return SpentInAll(
        tokens=sum(_tokens(data) for data in spends), usd=sum(data["usd"] or 0.0 for data in spends),
        unpriced_tokens=sum(_tokens(data) for data in spends if data["usd"] is None),
        device_s=round(sum(row.device_s for row in rows), 3), rounds_s=round(sum(row.seconds for row in rows), 3),
    )  # fmt: skip


def readable_spends(events: Sequence[Event]) -> list[Mapping[str, Any]]:
    """Those that can be read."""
    return [event.data for event in events if event.kind == "spend" and _is_spend(event.data)]


def _is_spend(data: Any) -> bool:
    if not isinstance(data, Mapping) or not isinstance(data.get("usage"), Mapping):
        return False
    counts = [data["usage"].get(name) for name in ("input_tokens", "output_tokens")]
    is_priced = isinstance(data.get("usd"), int | float | None)
    return all(isinstance(data.get(name), str) for name in ("key", "role", "model")) and is_priced and all(
        isinstance(count, int) for count in counts
    )  # fmt: skip


def _tokens(data: Mapping[str, Any]) -> int:
    return int(data["usage"]["input_tokens"]) + int(data["usage"]["output_tokens"])
