"""Proof that the check can refuse: the built-in faults of text, and one of this target's own as an example."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from vibeserve.contract import Context, Fault, References, Request
from vibeserve.modalities.text.faults import TextFaults


def one_token_late(references: References, request: Request, another: Request) -> Any:
    """The right tokens, each one place too far right: an off-by-one in a cache."""
    right = references.exact().run(request)
    ids = right["token_ids"]
    return {**right, "token_ids": [*ids[:1], *ids[:-1]]}


class Faults(TextFaults):
    """The built-in ones: another prompt's text, replaced and repeated tokens, invented log-probabilities, and bf16."""

    @property
    def FAULTS(self) -> Sequence[Fault]:
        return (*super().FAULTS, Fault(name="one_token_late", is_wrong=True, make=one_token_late))


def configure(context: Context) -> Faults:
    return Faults(context)
