"""Skills: knowledge for any agent, and for some of them a component that plugs into the scaffold."""

from __future__ import annotations

from vibeserve.skills.assembler import Assembly, ComponentRecord, FileRecord, assemble
from vibeserve.skills.card import SEAMS, SPANS, Card, Conditions, Parameter
from vibeserve.skills.checking import LibraryCheck, SkillCheck, check_library
from vibeserve.skills.conditions import TargetFacts, applicable, target_facts
from vibeserve.skills.draft import write_draft
from vibeserve.skills.effects import EffectRow, read_effect
from vibeserve.skills.export import CLIENTS, Exported, export_skills
from vibeserve.skills.knowledge import Applies
from vibeserve.skills.library import gathered, library_digest, skill_problems, target_skills, without
from vibeserve.skills.loader import Scaffold, Skill, load_scaffold, load_skill, load_skills
from vibeserve.skills.resolve import declared_parameters, pinned_values, resolve
from vibeserve.skills.routing import Bottleneck, Routed, relieved, route, why_pruned
from vibeserve.skills.scaffolds import Composition, compose_scaffold, engine_problem, write_scaffold
from vibeserve.skills.suite import SUITE_FILE, SuiteResult, read_suite, run_suite

__all__ = [
    "CLIENTS",
    "SEAMS",
    "SPANS",
    "SUITE_FILE",
    "Applies",
    "Assembly",
    "Bottleneck",
    "Card",
    "ComponentRecord",
    "Composition",
    "Conditions",
    "EffectRow",
    "Exported",
    "FileRecord",
    "LibraryCheck",
    "Parameter",
    "Routed",
    "Scaffold",
    "Skill",
    "SkillCheck",
    "SuiteResult",
    "TargetFacts",
    "applicable",
    "assemble",
    "check_library",
    "compose_scaffold",
    "declared_parameters",
    "engine_problem",
    "export_skills",
    "gathered",
    "library_digest",
    "load_scaffold",
    "load_skill",
    "load_skills",
    "pinned_values",
    "read_effect",
    "read_suite",
    "relieved",
    "resolve",
    "route",
    "run_suite",
    "skill_problems",
    "target_facts",
    "target_skills",
    "why_pruned",
    "without",
    "write_draft",
    "write_scaffold",
]
