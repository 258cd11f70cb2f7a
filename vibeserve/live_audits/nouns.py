"""What an audit found, and how it refuses."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from vibeserve.contract import Record
from vibeserve.core.manifest import AuditResult
from vibeserve.core.nouns import Refusal

GATE = "audit"
RESEED = 1_000_003
"""an audit may use a few seeds in a row"""


@dataclass(frozen=True, kw_only=True)
class Audited:
    """One audit of a running server. Neither a pass nor a refusal where `not_applicable` says why it cannot be held."""

    result: AuditResult
    refusals: tuple[Refusal, ...] = ()
    evidence: tuple[Record, ...] = ()
    """replies that the accuracy gate has to judge with the others"""
    not_applicable: str = ""

    @property
    def state(self) -> str:
        """`passed`, `refused` or `not run`."""
        return "not run" if self.not_applicable else "passed" if self.result.passed else "refused"


def audited(
    name: str, *, text: str, figures: Mapping[str, float], refused: Mapping[str, str], evidence: Sequence[Record] = ()
) -> Audited:
    """The audit `name` with its figures; `refused` maps reason classes to what was found, empty = passed."""
    refusals = tuple(Refusal(gate=GATE, reason_class=kind, text=found) for kind, found in refused.items())
    finite = {key: float(value) for key, value in figures.items() if math.isfinite(value)}
    told = "; ".join(refused.values()) or text
    result = AuditResult(name=name, passed=not refusals, figures=finite, text=told)
    return Audited(result=result, refusals=refusals, evidence=tuple(evidence))


def not_applicable(name: str, why: str) -> Audited:
    """The audit says nothing about this target: it is listed as not run."""
    return Audited(result=AuditResult(name=name, passed=False, text=why), not_applicable=why)


def confirmed(
    measure: Callable[[int, int], Audited], *, num_pairs: int, seed: int,
    is_timed: Callable[[Audited], bool] = lambda found: True,
) -> Audited:  # fmt: skip
    """What `measure(num_pairs, seed)` finds; a refusal is measured again, with twice the pairs and another seed, and
    only the second word counts. A cheat does not tire of cheating, a neighbour's burst is over by then.

    `is_timed` says whether a refusal hangs on time; one that does not stands as it is.
    """
    first = measure(num_pairs, seed)
    if not first.refusals or not is_timed(first):
        return first
    again = measure(2 * num_pairs, seed + RESEED)
    return replace(again, evidence=(*first.evidence, *again.evidence))
