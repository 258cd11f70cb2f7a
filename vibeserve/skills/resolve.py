"""From component names to a consistent, ordered list: closure over `extends`, conflicts, seams, parameters."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from vibeserve.errors import SpecError
from vibeserve.skills.card import Card, Parameter, Value
from vibeserve.skills.loader import Scaffold, Skill


def card_of(skill: Skill) -> Card:
    """The card of a component. Raises SpecError for a skill that is knowledge only."""
    if skill.card is None:
        raise SpecError(f"skill '{skill.name}' has no component: it is knowledge only")
    return skill.card


def resolve(names: Iterable[str], skills: Sequence[Skill]) -> tuple[Skill, ...]:
    """Named components and all that they extend, each after what it extends, ties by name.

    Raises SpecError for unknown names, a cycle, and components that cannot be combined.
    """
    by_name = {skill.name: skill for skill in skills if skill.card is not None}
    wanted: dict[str, Skill] = {}
    pending = sorted(names)
    while pending:
        name = pending.pop()
        if name not in by_name:
            raise SpecError(f"there is no component '{name}'", problems=[f"valid: {', '.join(sorted(by_name))}"])
        if name not in wanted:
            wanted[name] = by_name[name]
            pending.extend(card_of(by_name[name]).extends)
    return ordered(list(wanted.values()))


def ordered(components: Sequence[Skill]) -> tuple[Skill, ...]:
    """The same components, each after what it extends, ties by name. Raises SpecError as `resolve`."""
    remaining = {skill.name: card_of(skill) for skill in components}
    by_name = {skill.name: skill for skill in components}
    absent = sorted({base for card in remaining.values() for base in card.extends if base not in remaining})
    if absent:
        raise SpecError(f"the components extend {', '.join(absent)}, which is not among them")
    result: list[Skill] = []
    while remaining:
        ready = sorted(name for name, card in remaining.items() if not any(base in remaining for base in card.extends))
        if not ready:
            raise SpecError(f"the components extend each other in a circle: {', '.join(sorted(remaining))}")
        result.append(by_name[ready[0]])
        del remaining[ready[0]]
    problems = [*_declared_conflicts(result), *_file_conflicts(result), *_parameter_conflicts(result)]
    if problems:
        raise SpecError("the components cannot be combined", problems=problems)
    return tuple(result)


def file_owners(components: Sequence[Skill]) -> dict[str, Skill]:
    """Path in the workspace -> the component whose file is taken; `components` as `ordered` returns them."""
    return {target: skill for skill in components for target in card_of(skill).files.values()}


def declared_parameters(scaffold: Scaffold, components: Sequence[Skill]) -> dict[str, Parameter]:
    """Parameters of an assembly. A component's declaration replaces the scaffold's and those of what it extends."""
    declared = dict(scaffold.parameters)
    for skill in components:
        declared.update(card_of(skill).parameters)
    return declared


def pinned_values(declared: Mapping[str, Parameter], pins: Mapping[str, Value]) -> dict[str, Value]:
    """The pins that hold in an assembly with these declarations. A scaffold may bound a parameter more narrowly than
    the component that replaces its module: its own bounds win until then."""
    return {name: value for name, value in pins.items() if name in declared and declared[name].problem(value) is None}


def parameter_values(declared: Mapping[str, Parameter], given: Mapping[str, Value]) -> dict[str, Value]:
    """Value of every declared parameter. Raises SpecError for unknown names and values that are not allowed."""
    problems = [
        f"unknown parameter '{name}'; valid: {', '.join(sorted(declared))}" for name in given if name not in declared
    ]
    for name, value in given.items():
        problem = declared[name].problem(value) if name in declared else None
        if problem is not None:
            problems.append(f"parameter '{name}' {problem}")
    if problems:
        raise SpecError("the parameters do not fit the components", problems=problems)
    return {name: given.get(name, parameter.default) for name, parameter in declared.items()}


def _ancestors(skill: Skill, by_name: Mapping[str, Skill]) -> set[str]:
    bases = set(card_of(skill).extends)
    return bases.union(*(_ancestors(by_name[base], by_name) for base in bases))


def _unrelated_pairs(components: Sequence[Skill]) -> list[tuple[Skill, Skill]]:
    """Pairs of components neither of which extends the other, directly or not."""
    by_name = {skill.name: skill for skill in components}
    ancestors = {skill.name: _ancestors(skill, by_name) for skill in components}
    return [
        (first, second)
        for index, first in enumerate(components)
        for second in components[index + 1 :]
        if first.name not in ancestors[second.name] and second.name not in ancestors[first.name]
    ]


def _declared_conflicts(components: Sequence[Skill]) -> list[str]:
    names = {skill.name for skill in components}
    return [
        f"'{skill.name}' conflicts with '{other}'"
        for skill in components
        for other in card_of(skill).conflicts
        if other in names
    ]


def _file_conflicts(components: Sequence[Skill]) -> list[str]:
    problems = []
    for first, second in _unrelated_pairs(components):
        shared = sorted(set(card_of(first).files.values()) & set(card_of(second).files.values()))
        for target in shared:
            seam = target.removeprefix("runtime/").removesuffix(".py")
            what = f"fill seam '{seam}'" if seam in card_of(first).seams else f"bring '{target}'"
            problems.append(f"'{first.name}' and '{second.name}' both {what} and neither extends the other")
    return problems


def _parameter_conflicts(components: Sequence[Skill]) -> list[str]:
    problems = []
    for first, second in _unrelated_pairs(components):
        one, other = card_of(first).parameters, card_of(second).parameters
        problems += [
            f"'{first.name}' and '{second.name}' declare parameter '{name}' differently"
            for name in sorted(set(one) & set(other))
            if one[name] != other[name]
        ]
    return problems
