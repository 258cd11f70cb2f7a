"""The points of a grid: every admissible set of components at its default settings, and with one setting changed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations

from vibeserve.agents import Assembled
from vibeserve.core.documents import digest_of
from vibeserve.errors import SpecError
from vibeserve.skills import (
    Card,
    Scaffold,
    Skill,
    TargetFacts,
    applicable,
    declared_parameters,
    resolve,
)
from vibeserve.skills.resolve import parameter_values

KEY_CHARS = 16
Parameters = Mapping[str, float | int | str | bool]


@dataclass(frozen=True, kw_only=True)
class Setting:
    """What a search has to choose from on one target."""

    facts: TargetFacts
    scaffold: Scaffold
    skills: Sequence[Skill]
    keys: dict[str, str] = field(default_factory=dict, compare=False, repr=False)
    """cache of `key_of`"""

    @property
    def cards(self) -> list[Card]:
        """Those that apply, by name."""
        cards = [skill.card for skill in self.skills if skill.card is not None]
        return sorted((c for c in cards if applicable(c, facts=self.facts) is None), key=lambda card: card.name)

    def independent_pairs(self) -> list[tuple[str, str]]:
        """Cards that go together, neither of which brings the other along."""
        found = []
        for one, other in combinations([card.name for card in self.cards], 2):
            try:
                both = {skill.name for skill in resolve([one, other], self.skills)}
            except SpecError:
                continue
            alone = [{skill.name for skill in resolve([name], self.skills)} for name in (one, other)]
            if other not in alone[0] and one not in alone[1] and both == alone[0] | alone[1]:
                found.append((one, other))
        return found


def key_of(components: Sequence[str], parameters: Parameters, setting: Setting) -> str:
    """One name for one assembly, with what the components bring along and every default."""
    short = f"{sorted(components)}{sorted(parameters.items())}"
    if short not in setting.keys:
        chosen = resolve(components, setting.skills)
        values = parameter_values(declared_parameters(setting.scaffold, chosen), parameters)
        names = sorted(skill.name for skill in chosen)
        setting.keys[short] = digest_of({"components": names, "parameters": dict(values)})[:KEY_CHARS]
    return setting.keys[short]


def component_sets(setting: Setting) -> list[tuple[str, ...]]:
    """Every set of components that can be assembled here, closed under what they bring along; the seed's first."""
    names = [card.name for card in setting.cards]
    found: dict[tuple[str, ...], None] = {}
    for size in range(len(names) + 1):
        for chosen in combinations(names, size):
            try:
                closed = tuple(sorted(skill.name for skill in resolve(chosen, setting.skills)))
            except SpecError:
                continue
            if set(closed) <= set(names):
                found.setdefault(closed)
    return list(found)


def grid_points(setting: Setting) -> list[Assembled]:
    """Every set at its defaults, then with one parameter at each further value of its card's `tune`."""
    points = []
    for components in component_sets(setting):
        declared = declared_parameters(setting.scaffold, resolve(components, setting.skills))
        defaults = {name: parameter.default for name, parameter in declared.items()}
        points.append(Assembled(components=components, parameters=dict(defaults)))
        points += [
            Assembled(components=components, parameters={**defaults, name: value})
            for name, parameter in sorted(declared.items())
            for value in parameter.tune
            if value != parameter.default
        ]
    return points
