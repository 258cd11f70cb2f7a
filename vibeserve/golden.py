"""Certification's own traffic, as an artifact reveals it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from vibeserve.accuracy import Scores
from vibeserve.contract import ReplyDistances
from vibeserve.core.documents import finite_data, to_data
from vibeserve.core.manifest import Golden, GoldenReply
from vibeserve.results import WINNER
from vibeserve.roles.evaluator import Series


def golden_of(series: Mapping[str, Mapping[str, Sequence[Series]]], *, seeds: dict[str, int], scores: Scores) -> Golden:
    """The winner's timed replies with their distances from what is right; cut and failed ones are left out.

    `series`: load -> entrant -> a series per start.
    """
    scored = {reply.request_id: reply for reply in scores.replies}
    replies = tuple(
        GoldenReply(
            request_id=reply.request.request_id, load=load, request=finite_data(to_data(reply.request)),
            output=finite_data(to_data(reply.served)), distances=_distances(scored.get(reply.request.request_id)),
        )
        for load, entrants in series.items()
        for row in entrants[WINNER]
        for reply in row.replies
        if reply.error is None
    )  # fmt: skip
    return Golden(seeds=seeds, replies=replies)


def _distances(reply: ReplyDistances | None) -> dict[str, tuple[float, ...]]:
    """By name; several of one name are one after the other."""
    names = [distance.name for distance in reply.distances] if reply else []
    return {name: reply.values(name) for name in dict.fromkeys(names)} if reply else {}
