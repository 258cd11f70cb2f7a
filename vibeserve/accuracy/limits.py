"""From distances to refusals, alike for every modality: what is missing and what lies above a limit. Pure."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence

from vibeserve.contract import Limit, ReplyDistances, Statistic
from vibeserve.core.nouns import Refusal

GATE = "accuracy"
MAX_REASONS = 3
"""different reasons that a refusal lists"""


def missing_refusals(replies: Sequence[ReplyDistances]) -> Iterator[Refusal]:
    """Distances that should be there and are not: one refusal by name."""
    if not replies:
        yield _refusal("missing_scores", "no reply could be scored by the reference")
    reasons: dict[str, list[str]] = defaultdict(list)
    for reply in replies:
        for distance in reply.distances:
            if distance.missing:
                reasons[distance.name].append(distance.missing)
    for name, found in sorted(reasons.items()):
        listed = "; ".join(sorted(set(found))[:MAX_REASONS])
        yield _refusal(f"missing_{name}", f"{len(found)} of {len(replies)} replies have no {name}: {listed}")


def limit_refusals(
    replies: Sequence[ReplyDistances], *, limits: Sequence[Limit]
) -> tuple[list[Refusal], dict[str, float]]:
    """Refusals of every limit that is exceeded, or that there is no value for; and the figures, by `figure_name`.

    What `missing_refusals` says already is not said again.
    """
    refusals: list[Refusal] = []
    figures: dict[str, float] = {}
    said = {distance.name for reply in replies for distance in reply.distances if distance.missing}
    for limit in limits:
        value = figure(replies, limit=limit)
        if value is None:
            if replies and limit.distance not in said:
                text = f"no reply has a value of {limit.distance}, which is limited to {limit.bound:g}"
                refusals.append(_refusal(f"missing_{limit.distance}", text))
                said.add(limit.distance)
            continue
        figures[figure_name(limit)] = value
        if not value <= limit.bound:
            num_values = sum(len(reply.values(limit.distance)) for reply in replies)
            text = f"{figure_name(limit)} is {value:.4g}{_unit(replies, limit)}, at most {limit.bound:g} is allowed"
            reason_class = limit.reason_class or f"wrong_{limit.distance}"
            refusals.append(_refusal(reason_class, f"{text} ({num_values} values)"))
    return refusals, figures


def figure(replies: Sequence[ReplyDistances], *, limit: Limit) -> float | None:
    """The limited statistic over all values of the distance; None without any value. p99 is by nearest rank."""
    values = sorted(value for reply in replies for value in reply.values(limit.distance))
    if not values:
        return None
    if limit.statistic is Statistic.mean:
        return sum(values) / len(values)
    if limit.statistic is Statistic.p99:
        return values[math.ceil(0.99 * len(values)) - 1]
    if limit.statistic is Statistic.share_at_least:
        return sum(value >= limit.at for value in values) / len(values)
    return values[-1]


def figure_name(limit: Limit) -> str:
    """`cosine_max`, `margin_mean`, `error_share_at_least_0.5`."""
    threshold = f"_{limit.at:g}" if limit.statistic is Statistic.share_at_least else ""
    return f"{limit.distance}_{limit.statistic.value}{threshold}"


def _unit(replies: Sequence[ReplyDistances], limit: Limit) -> str:
    if limit.statistic is Statistic.share_at_least:
        return ""
    units = (each.unit for reply in replies for each in reply.distances if each.name == limit.distance and each.unit)
    unit = next(units, "")
    return f" {unit}" if unit else ""


def _refusal(reason_class: str, text: str) -> Refusal:
    return Refusal(gate=GATE, reason_class=reason_class, text=text)
