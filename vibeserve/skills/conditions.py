"""Whether a component applies to a target."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from vibeserve.skills.card import Card, Conditions
from vibeserve.spec import Spec


@dataclass(frozen=True, kw_only=True)
class TargetFacts:
    """What a card's conditions are checked against."""

    architecture: str
    modality: str
    hardware: str
    """cpu, cuda, mps"""
    cpu_flags: frozenset[str] | None
    """None: not known, so no condition on them is held against a component"""
    precision: str
    """same_bytes or any: the table of the headline"""
    reuse: str
    """reuse that the workload declares: none or prefix"""
    prediction: str = "none"
    """what clients predict of their answers under the headline load"""
    workload: str = ""
    """kind of the workload; empty where it is not known"""
    ranks: str = "one"
    """one or several processes hold the model (`parallelism.tensor`)"""
    allow_unproven: bool = False
    """`search.allow_unproven`"""


def target_facts(spec: Spec, *, cpu_flags: Collection[str] | None) -> TargetFacts:
    """Facts of a composed spec on a machine with `cpu_flags`; None where the machine is not known."""
    headline = spec.workload.loads.get(spec.workload.headline_load)
    return TargetFacts(
        architecture=spec.model.architecture,
        modality=spec.model.modality.value,
        hardware=spec.hardware.kind,
        cpu_flags=None if cpu_flags is None else frozenset(cpu_flags),
        precision=spec.evaluation.precision.value,
        reuse=spec.workload.reuse,
        prediction=(headline.prediction if headline else "") or spec.workload.prediction,
        workload=spec.workload.kind,
        ranks="several" if spec.parallelism.tensor > 1 else "one",
        allow_unproven=spec.search.allow_unproven,
    )


def applicable(card: Card, *, facts: TargetFacts) -> str | None:
    """None where the component applies, else why it does not."""
    reason = unmet(card.conditions, facts=facts)
    if reason is not None:
        return reason
    if card.status == "unproven" and not facts.allow_unproven:
        return "it has not run on such hardware yet (status unproven); search.allow_unproven=true admits it"
    return None


def unmet(conditions: Conditions, *, facts: TargetFacts) -> str | None:
    """None where the conditions hold, else the first that does not."""
    for label, wanted, actual in (
        ("architecture", conditions.architectures, facts.architecture),
        ("modality", conditions.modalities, facts.modality),
        ("hardware", conditions.hardware, facts.hardware),
        ("precision", conditions.precision, facts.precision),
        ("declared reuse", conditions.reuse, facts.reuse),
        ("the clients' prediction", conditions.prediction, facts.prediction),
        ("workload", conditions.workloads, facts.workload),
        ("number of ranks", conditions.ranks, facts.ranks),
    ):
        if wanted and actual not in wanted:
            return f"{label} '{actual}' is not one of {', '.join(wanted)}"
    if facts.cpu_flags is None:
        return None
    missing = [flag for flag in conditions.cpu_flags_all if flag not in facts.cpu_flags]
    if missing:
        return f"the CPU lacks {', '.join(missing)}"
    if conditions.cpu_flags_any and facts.cpu_flags.isdisjoint(conditions.cpu_flags_any):
        return f"the CPU has none of {', '.join(conditions.cpu_flags_any)}"
    return None
