"""What a finished round makes of the idea that it tried."""

from __future__ import annotations

from vibeserve.core.nouns import Outcome, Refusal, Round
from vibeserve.planning.backlog import ItemState

UNSUITABLE = ("scan", "integrity", "audit", "assembly", "planning")
"""gates whose refusal says that the idea itself is no good: it cheats, or it cannot be put together. What any other
gate refuses (a crash, a build, wrong output) is a fault of the code, and the idea is still believable"""
UNSUITABLE_REVIEWS = ("cheating", "dishonest_claim", "unsafe")
REVIEW = "review"


def settled(record: Round) -> tuple[ItemState, str]:
    """The state that the round's item has now, and why.

    Accepted is done; refused by a gate in its last attempt is parked or, by `UNSUITABLE`, abandoned; measured and not
    better is abandoned, because its falsification came true; what the machine spoilt is open again. Where its changed
    code did not run, nothing was falsified: the idea is parked.
    """
    if record.outcome is Outcome.ACCEPTED:
        return ItemState.DONE, record.reason
    if record.outcome is Outcome.INFRA:
        return ItemState.OPEN, f"not tried: {record.reason}"
    refusals = record.verdict.refusals if record.verdict is not None else ()
    if record.is_refused:
        state = ItemState.ABANDONED if any(map(_is_unsuitable, refusals)) else ItemState.PARKED
        return state, record.reason
    if record.is_unactivated:
        return ItemState.PARKED, record.reason
    return ItemState.ABANDONED, f"measured: {record.reason}"


def _is_unsuitable(refusal: Refusal) -> bool:
    if refusal.gate == REVIEW:
        return refusal.reason_class in UNSUITABLE_REVIEWS
    return refusal.gate in UNSUITABLE
