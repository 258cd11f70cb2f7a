"""What a skill is worth: `effect.json` beside its note, written by `skills ablate --record`."""

from __future__ import annotations

from dataclasses import dataclass

from vibeserve.core.documents import read_document
from vibeserve.skills.loader import Skill

EFFECT_FILE = "effect.json"


@dataclass(frozen=True, kw_only=True)
class EffectRow:
    """One ablation of one skill: the playbook's certified headline with it over that without it."""

    target: str
    metric: str
    load: str
    level: str
    """of both runs: quick numbers say whether, not how much"""
    hardware: str
    with_ratio: float
    """against the baseline that both runs measured interleaved"""
    without_ratio: float
    against: str
    """that baseline"""
    effect: float
    """with over without, turned so that above 1 the skill helps"""
    ci_low: float
    ci_high: float


@dataclass(frozen=True, kw_only=True)
class EffectFile:
    """Document `effect.json`."""

    schema_version: int = 1
    rows: tuple[EffectRow, ...]


def read_effect(skill: Skill) -> tuple[EffectRow, ...]:
    """What was measured of a skill; nothing where no ablation was recorded."""
    path = skill.path / EFFECT_FILE
    return read_document(path, EffectFile).rows if path.is_file() else ()
