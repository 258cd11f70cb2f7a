"""What an event of the run says of a round, beside its words."""

from __future__ import annotations

from typing import Any

from vibeserve.core.nouns import Proposal, Round


def proposal_facts(proposal: Proposal) -> dict[str, Any]:
    """Of the event that a round begins with."""
    return {"proposal": proposal.title, "forecast_ratio": proposal.forecast_ratio}


def round_facts(record: Round) -> dict[str, Any]:
    """Of the event that a round ends with."""
    headline = record.decision.headline if record.decision is not None else None
    measured = {} if headline is None else {
        "ratio": headline.ratio, "ci_low": headline.ci_low, "ci_high": headline.ci_high
    }  # fmt: skip
    about = {"outcome": record.outcome.value, "attempts": record.attempts, "seconds": round(record.seconds, 1)}
    return {**about, **measured}
