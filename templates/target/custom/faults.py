"""Proof that the check can refuse: at least three answers that are wrong, and one that is right but rounded."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from vibeserve.contract import Fault, References, Request


def another_text(references: References, request: Request, another: Request) -> Any:
    """The answer to another request."""
    return references.exact().run(another)


def half_the_text(references: References, request: Request, another: Request) -> Any:
    """Only the first half of the text was read."""
    words = request.payload["input"].split()
    half = " ".join(words[: max(1, len(words) // 2)])
    return references.exact().run(replace(request, payload={"input": half}))


def backwards(references: References, request: Request, another: Request) -> Any:
    """The right numbers in the wrong order."""
    return list(reversed(references.exact().run(request)))


def rounded(references: References, request: Request, another: Request) -> Any:
    """Honest noise: the same function in bfloat16."""
    return references.rounded().run(request)


FAULTS = (
    Fault(name="another_text", is_wrong=True, make=another_text),
    Fault(name="half_the_text", is_wrong=True, make=half_the_text),
    Fault(name="backwards", is_wrong=True, make=backwards),
    Fault(name="bfloat16", is_wrong=False, make=rounded),
)
