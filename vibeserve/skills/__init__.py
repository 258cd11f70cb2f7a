"""Skills: knowledge for any agent, and for some of them a component that plugs into the scaffold."""

from __future__ import annotations

from vibeserve.skills.assembler import Assembly, ComponentRecord, FileRecord, assemble
from vibeserve.skills.card import SEAMS, SPANS, Card, Conditions, Parameter
from vibeserve.skills.conditions import TargetFacts, applicable, target_facts
from vibeserve.skills.loader import Scaffold, Skill, load_scaffold, load_skill, load_skills
from vibeserve.skills.resolve import declared_parameters, pinned_values, resolve
from vibeserve.skills.scaffolds import Composition, compose_scaffold, engine_problem, write_scaffold

__all__ = [
    "SEAMS",
    "SPANS",
    "Assembly",
    "Card",
    "ComponentRecord",
    "Composition",
    "Conditions",
    "FileRecord",
    "Parameter",
    "Scaffold",
    "Skill",
    "TargetFacts",
    "applicable",
    "assemble",
    "compose_scaffold",
    "declared_parameters",
    "engine_problem",
    "load_scaffold",
    "load_skill",
    "load_skills",
    "pinned_values",
    "resolve",
    "target_facts",
    "write_scaffold",
]
