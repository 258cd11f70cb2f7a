"""The machine-readable side of a note (`applies.yaml`): where it applies, in which words, and what it was checked with.

A component's card says where its code works; this says where the knowledge applies, which is often wider.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from vibeserve.skills.card import SPANS, Conditions, parse_conditions, string_list, unknown_keys

APPLIES_FILE = "applies.yaml"
MIN_SYMPTOMS = 3


@dataclass(frozen=True, kw_only=True)
class Applies:
    """Document `applies.yaml`."""

    schema_version: int = 1
    conditions: Conditions = field(default_factory=Conditions)
    """of the knowledge; no condition = every target"""
    relieves: tuple[str, ...] = ()
    """spans of a request's wall time that it is about"""
    symptoms: tuple[str, ...] = ()
    """what somebody sees who needs it, a phrase each: routing compares them with a bottleneck's description"""
    fallback: bool = False
    """shown among the first where no skill matches a description well: look again before choosing"""
    versions: Mapping[str, str] = field(default_factory=dict)
    """distribution -> version specifier that the note was checked with, such as `>=2.13,<3`"""
    uses: tuple[str, ...] = ()
    """dotted names of library functions and classes that the note relies on; each has to exist"""


def parse_applies(data: Any) -> tuple[Applies | None, list[str]]:
    """From parsed YAML, and all problems; None where there is any."""
    if not isinstance(data, dict):
        return None, ["must be a mapping"]
    problems = unknown_keys(data, Applies, "")
    problems += [f"{key}: is required" for key in ("schema_version", "symptoms") if key not in data]
    conditions, nested = parse_conditions(data.get("conditions", {}))
    problems += nested
    lists: dict[str, Any] = {key: string_list(data, key, problems) for key in ("relieves", "symptoms", "uses")}
    versions = data.get("versions", {})
    if not (isinstance(versions, dict) and all(isinstance(text, str) for pair in versions.items() for text in pair)):
        problems.append("versions: must map distributions to version specifiers")
        versions = {}
    if not isinstance(data.get("fallback", False), bool):
        problems.append("fallback: must be true or false")
    if data.get("schema_version", 1) != 1:
        problems.append(f"schema_version: {data['schema_version']!r} is unknown; valid: 1")
    problems += [
        f"relieves: '{span}' is not a span; valid: {', '.join(SPANS)}"
        for span in lists["relieves"]
        if span not in SPANS
    ]
    if len(lists["symptoms"]) < MIN_SYMPTOMS and "symptoms" in data:
        problems.append(f"symptoms: {len(lists['symptoms'])}; at least {MIN_SYMPTOMS}, each a phrase of its own")
    problems += [f"uses: '{name}' is no dotted name" for name in lists["uses"] if not _is_dotted(name)]
    problems += [f"versions: {problem}" for problem in _specifier_problems(versions)]
    if problems:
        return None, problems
    fallback = data.get("fallback", False)
    return Applies(conditions=conditions, versions=dict(versions), fallback=fallback, **lists), []


def _is_dotted(name: str) -> bool:
    parts = name.split(".")
    return len(parts) > 1 and all(part.isidentifier() for part in parts)


def _specifier_problems(versions: Mapping[str, str]) -> list[str]:
    from packaging.specifiers import InvalidSpecifier, SpecifierSet

    problems = []
    for name, text in versions.items():
        try:
            SpecifierSet(text)
        except InvalidSpecifier:
            problems.append(f"'{text}' of {name} is no version specifier, such as '>=2.13,<3'")
    return problems
