"""What a planner sees of a search: the whole history, or one branch's."""

from __future__ import annotations

from collections.abc import Sequence

from vibeserve.core.nouns import Outcome, Proposal, Round
from vibeserve.policies import SearchTree


def history_at(
    tree: SearchTree, records: Sequence[Round], *, parent: str, has_branches: bool
) -> tuple[list[Round], list[Proposal]]:
    """The records that count at `parent`, and what was proposed elsewhere and is not to be proposed again.

    At the incumbent of a policy without branches that is every record. On a branch it is what led to the checkpoint
    and what was tried upon it: a card that lost upon another one may win here. What the machine spoilt may come again.
    """
    numbers = {record.number for record in records}
    if has_branches or parent != tree.incumbent:
        numbers = set(tree.history(parent))
    own = [record for record in records if record.number in numbers]
    others = [each for each in records if each.number not in numbers and each.outcome is not Outcome.INFRA]
    return own, [proposal for record in others for proposal in offered(record)]


def offered(record: Round) -> list[Proposal]:
    """Every proposal of a round, those of refused attempts first."""
    earlier = [attempt.proposal for attempt in record.refused_attempts]
    return [*earlier, record.proposal] if record.proposal is not None else earlier
