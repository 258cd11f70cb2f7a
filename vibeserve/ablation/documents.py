"""What an ablation leaves: `artifacts/ablation/<target>.json`."""

from __future__ import annotations

from dataclasses import dataclass

from vibeserve.skills.effects import EffectRow

PLAYBOOK = "playbook with components"
ARMS: dict[str, tuple[str, ...]] = {
    PLAYBOOK: (),
    "agent with components": (),
    "agent with notes only": ("skills.components=false",),
    "agent without skills": ("skills.components=false",),
}
"""arm -> its overrides; the last one excludes every skill besides"""


@dataclass(frozen=True, kw_only=True)
class ArmRow:
    """One of the four arms. `state`: measured, failed, or open where no agent was given."""

    name: str
    state: str
    why: str = ""
    artifact: str = ""
    components: tuple[str, ...] = ()
    """of its winner"""
    metric: str = ""
    against: str = ""
    ratio: float | None = None
    ci_low: float | None = None
    ci_high: float | None = None


@dataclass(frozen=True, kw_only=True)
class SkillRow:
    """One skill. `state`: measured, not used (the winner does without it anyway), or failed."""

    skill: str
    state: str
    why: str = ""
    without: tuple[str, ...] = ()
    """components of the winner that was found without it"""
    effect: EffectRow | None = None


@dataclass(frozen=True, kw_only=True)
class Ablation:
    """Document: every arm and every skill of one target."""

    schema_version: int = 1
    target: str
    overrides: tuple[str, ...]
    arms: tuple[ArmRow, ...]
    skills: tuple[SkillRow, ...]
