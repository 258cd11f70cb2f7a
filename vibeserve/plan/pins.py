"""Pinned parameters of a search, checked against what scaffold and components declare."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from vibeserve.config.words import suggest
from vibeserve.errors import SpecError
from vibeserve.hardware import HardwareFacts
from vibeserve.modalities import target_folders
from vibeserve.skills import Parameter, applicable, compose_scaffold, target_facts, target_skills
from vibeserve.skills.ranks import PARAMETER
from vibeserve.spec import Spec


@dataclass(frozen=True, kw_only=True)
class _Declaration:
    owner: str
    """scaffold, or a component's name"""
    parameter: Parameter
    why_not: str | None
    """why the component does not apply to the target"""


def refuse_wrong_pins(spec: Spec, *, facts: HardwareFacts) -> None:
    """SpecError for a pin that nothing which applies to the target declares, or to which no declaration gives leave."""
    if not spec.search.pins:
        return
    declared = _declarations(spec, facts=facts)
    problems = [
        f"search.pins.{name}: {problem}"
        for name, value in spec.search.pins.items()
        for problem in _problems(name, value, declared)
    ]
    if problems:
        raise SpecError(
            f"target '{spec.target.name}' pins parameters that cannot be pinned so", problems=problems,
            hint="skills/*/component.yaml and scaffold.yaml declare parameters and their ranges",
        )  # fmt: skip


def _declarations(spec: Spec, *, facts: HardwareFacts) -> dict[str, list[_Declaration]]:
    found: dict[str, list[_Declaration]] = {}
    for name, parameter in _scaffold_parameters(spec).items():
        found.setdefault(name, []).append(_Declaration(owner="scaffold", parameter=parameter, why_not=None))
    target = target_facts(spec, cpu_flags=facts.cpu_flags)
    for card in (skill.card for skill in target_skills(spec) if skill.card is not None):
        for name, parameter in card.parameters.items():
            why_not = applicable(card, facts=target)
            found.setdefault(name, []).append(_Declaration(owner=card.name, parameter=parameter, why_not=why_not))
    return found


def _scaffold_parameters(spec: Spec) -> dict[str, Parameter]:
    """Of the target's scaffold; one that is not there or not valid is an obstacle of the plan and declares nothing."""
    try:
        return compose_scaffold(spec.model, folders=target_folders(spec)).parameters
    except SpecError:
        return {}


def _problems(name: str, value: float | int | str | bool, declared: dict[str, list[_Declaration]]) -> Iterator[str]:
    usable = {each for each, rows in declared.items() if any(row.why_not is None for row in rows)}
    rows = declared.get(name, [])
    if name == PARAMETER:
        yield "is parallelism.tensor of the target; declare that"
    elif not rows:
        guess = suggest(name, usable)
        yield f"no scaffold and no component has this parameter{guess}{' ' if guess else '; '}{_valid(usable)}"
    elif name not in usable:
        why = "; ".join(f"{row.owner}: {row.why_not}" for row in rows)
        yield f"what declares it does not apply here ({why}); {_valid(usable)}"
    else:
        refused = {row.owner: row.parameter.problem(value) for row in rows if row.why_not is None}
        if all(refused.values()):
            yield "; ".join(f"{owner}: {problem}" for owner, problem in refused.items())


def _valid(names: set[str]) -> str:
    return f"valid: {', '.join(sorted(names))}"
