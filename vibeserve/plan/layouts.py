"""Which of the layouts that can be planned this version also runs: what is declared is served so, or refused."""

from __future__ import annotations

from collections.abc import Iterator

from vibeserve.skills import applicable, target_facts, target_skills
from vibeserve.skills.ranks import COMPONENT
from vibeserve.spec import OWN_SEEDS, Spec, Tier


def layout_obstacles(spec: Spec) -> Iterator[str]:
    """Why a run would not be spread as its resolved `parallelism` says; nothing where it would."""
    layout = spec.parallelism
    if layout.replicas > 1:
        yield (
            f"parallelism.replicas {layout.replicas}: no router shares requests out in this version; "
            "valid: 1 (hardware.count=1, or more tensor ranks)"
        )
    if layout.pipeline > 1:
        yield f"parallelism.pipeline {layout.pipeline}: no runtime of this version has stages; valid: 1"
    if layout.tensor <= 1:
        return
    if spec.seed.kind not in OWN_SEEDS:
        yield from _component_obstacles(spec)
    if spec.sandbox.tier in (Tier.B, Tier.C):
        yield (
            f"parallelism.tensor {layout.tensor}: ranks connect to each other on a loopback of their own, which is "
            f"there in sandbox tier A only, not in {spec.sandbox.tier.value}"
        )


def _component_obstacles(spec: Spec) -> Iterator[str]:
    """Round 0 is the scaffold with the component that spreads it."""
    card = next((skill.card for skill in target_skills(spec) if skill.name == COMPONENT), None)
    facts = target_facts(spec, cpu_flags=None)
    reason = "there is no such component" if card is None else applicable(card, facts=facts)
    if reason is not None:
        yield (
            f"parallelism.tensor {spec.parallelism.tensor}: component {COMPONENT} does not apply ({reason}); "
            f"valid: 1, or a seed of your own whose runtime has ranks (seed.kind {' or '.join(OWN_SEEDS)})"
        )
