"""What a run can be told about: the names that exist for it. Journalled when a search starts, so that a request is
refused, with what is valid, where it is made."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from vibeserve.config.words import suggest
from vibeserve.core.documents import from_data, to_data
from vibeserve.journal import Event, Journal
from vibeserve.planning.backlog import refuse_version
from vibeserve.skills import Parameter, Scaffold, Skill, TargetFacts, applicable
from vibeserve.skills.card import Value

OFFER = "steerable"
"""event of the journal: an `Offer`"""


@dataclass(frozen=True, kw_only=True)
class Offer:
    """Document: components and parameters of a run."""

    schema_version: int = 1
    components: dict[str, str] = field(default_factory=dict)
    """name -> why it does not apply to the target; empty where it does"""
    parameters: dict[str, tuple[Parameter, ...]] = field(default_factory=dict)
    """name -> every declaration that applies, the scaffold's first"""

    def value_problem(self, name: str, value: Value) -> str:
        """Why nothing gives leave to the value; empty where something does."""
        if name not in self.parameters:
            return f"nothing that applies here has a parameter '{name}'{_valid(name, self.parameters)}"
        problems = [parameter.problem(value) for parameter in self.parameters[name]]
        return "" if None in problems else f"parameter {name} {'; '.join(filter(None, dict.fromkeys(problems)))}"

    def component_problem(self, name: str) -> str:
        """Why there is no such component here."""
        if name not in self.components:
            usable = [each for each, why_not in self.components.items() if not why_not]
            return f"there is no component '{name}'{_valid(name, usable)}"
        why_not = self.components[name]
        return f"component {name} does not apply to this target: {why_not}" if why_not else ""

    def problems(self, command: str, arguments: Mapping[str, Any]) -> Iterator[str]:
        """Names and values of a request that mean nothing to this run."""
        if command == "constrain":
            yield from filter(None, map(self.component_problem, arguments.get("ban", ())))
            pairs = [(name, value) for name, values in arguments.get("only", {}).items() for value in values]
        elif command == "pin":
            pairs = list(arguments.get("values", {}).items())
        elif command == "propose":
            proposal = arguments["proposal"]
            yield from filter(None, map(self.component_problem, proposal["components"]))
            pairs = [(row["name"], row["value"]) for row in proposal["parameters"]]
        else:
            pairs = []
        yield from filter(None, (self.value_problem(name, value) for name, value in pairs))


def _valid(name: str, names: Iterable[str]) -> str:
    guess = suggest(name, set(names))
    return f"{guess}; valid: {', '.join(sorted(names)) or 'none'}"


def offer_of(*, skills: Sequence[Skill], scaffold: Scaffold, facts: TargetFacts) -> Offer:
    """The offer of a search."""
    cards = [skill.card for skill in skills if skill.card is not None]
    components = {card.name: applicable(card, facts=facts) or "" for card in cards}
    parameters: dict[str, list[Parameter]] = {name: [each] for name, each in scaffold.parameters.items()}
    for card in cards:
        for name, parameter in card.parameters.items():
            if not components[card.name] and parameter not in parameters.setdefault(name, []):
                parameters[name].append(parameter)
    return Offer(
        components=components, parameters={name: tuple(each) for name, each in sorted(parameters.items()) if each}
    )


def announce(journal: Journal, offer: Offer) -> None:
    """Journal the offer where it is another than the last one."""
    last = journal.last(OFFER)
    if last is None or last.data != to_data(offer):
        journal.append(OFFER, offer, durable=False)


def offer_in(events: Sequence[Event]) -> Offer | None:
    """The newest offer of a journal; None before the search began."""
    event = next((event for event in reversed(events) if event.kind == OFFER), None)
    if event is None:
        return None
    refuse_version(event.data, what="an offer")
    return from_data(Offer, event.data)
