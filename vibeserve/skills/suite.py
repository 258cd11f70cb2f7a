"""The routing suite: for every target and every described bottleneck, the skills that must be among the first five.

`skills/routing.yaml` holds the descriptions, each with rules that are tried in order: the first whose `when` fits the
target says which skills are expected.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from vibeserve.errors import SpecError
from vibeserve.skills.card import SPANS
from vibeserve.skills.conditions import TargetFacts
from vibeserve.skills.loader import Skill, read_yaml
from vibeserve.skills.routing import NUM_FIRST, Bottleneck, Routed, route, why_pruned

SUITE_FILE = "routing.yaml"
KEYS = ("id", "text", "spans", "expect")
WHEN = tuple(each.name for each in fields(TargetFacts) if each.name != "cpu_flags")


@dataclass(frozen=True, kw_only=True)
class Rule:
    """Skills expected of targets that `when` fits."""

    when: Mapping[str, tuple[str, ...]]
    skills: tuple[str, ...]

    def fits(self, facts: TargetFacts) -> bool:
        return all(getattr(facts, key) in values for key, values in self.when.items())


@dataclass(frozen=True, kw_only=True)
class Query:
    id: str
    bottleneck: Bottleneck
    expect: tuple[Rule, ...]


@dataclass(frozen=True, kw_only=True)
class Answered:
    """One target and one bottleneck."""

    target: str
    query: str
    expected: tuple[str, ...]
    first: tuple[str, ...]
    """names of the first five"""
    foreign: tuple[str, ...] = ()
    """of those, any that does not apply to the target: always a failure"""

    @property
    def is_hit(self) -> bool:
        return set(self.expected) <= set(self.first) and not self.foreign


@dataclass(frozen=True, kw_only=True)
class SuiteResult:
    answers: tuple[Answered, ...]

    @property
    def misses(self) -> tuple[Answered, ...]:
        return tuple(answer for answer in self.answers if not answer.is_hit)

    @property
    def routed(self) -> frozenset[str]:
        """Skills that some target was expected to be led to, and was."""
        return frozenset(name for answer in self.answers for name in answer.expected if name in answer.first)


def read_suite(path: Path) -> tuple[Query, ...]:
    """The queries of `path`. SpecError lists everything that is wrong."""
    data = read_yaml(path)
    rows = data.get("bottlenecks") if isinstance(data, dict) else None
    if not isinstance(rows, list) or not rows:
        raise SpecError(f"{path}: must hold a list 'bottlenecks'")
    problems = [problem for number, row in enumerate(rows) for problem in _row_problems(row, number)]
    if problems:
        raise SpecError(f"{path} is not valid", problems=problems)
    return tuple(_query(row) for row in rows)


def run_suite(queries: Sequence[Query], *, targets: Mapping[str, TargetFacts], skills: Sequence[Skill]) -> SuiteResult:
    """Route every query for every target. SpecError for an expectation of no skill, or without a rule."""
    known = {skill.name for skill in skills}
    problems = [
        f"{query.id}: there is no skill '{name}'"
        for query in queries
        for name in sorted({name for rule in query.expect for name in rule.skills} - known)
    ]
    problems += [
        f"{query.id}: no rule fits target '{name}'"
        for query in queries
        for name, facts in targets.items()
        if not any(rule.fits(facts) for rule in query.expect)
    ]
    if problems:
        raise SpecError("the routing suite does not fit the skills", problems=problems)
    return SuiteResult(answers=tuple(_answers(queries, targets, skills)))


def _answers(
    queries: Sequence[Query], targets: Mapping[str, TargetFacts], skills: Sequence[Skill]
) -> Iterator[Answered]:
    for name, facts in targets.items():
        for query in queries:
            rule = next(rule for rule in query.expect if rule.fits(facts))
            first = [row.skill for row in _first(route(skills, facts=facts, bottleneck=query.bottleneck))]
            yield Answered(
                target=name, query=query.id, expected=rule.skills, first=tuple(skill.name for skill in first),
                foreign=tuple(skill.name for skill in first if why_pruned(skill, facts=facts) is not None),
            )  # fmt: skip


def _first(rows: Sequence[Routed]) -> list[Routed]:
    """What an agent is shown first: nothing that shares no word and no span with the bottleneck."""
    return [row for row in rows if row.score > 0][:NUM_FIRST]


def _query(row: Mapping[str, Any]) -> Query:
    rules = tuple(
        Rule(
            when={key: tuple(values) for key, values in rule.get("when", {}).items()}, skills=tuple(rule["skills"])
        )
        for rule in row["expect"]
    )
    return Query(id=row["id"], bottleneck=Bottleneck(text=row["text"], spans=row.get("spans", {})), expect=rules)


def _row_problems(row: Any, number: int) -> Iterator[str]:
    if not isinstance(row, dict) or not all(isinstance(row.get(key), str) and row[key] for key in ("id", "text")):
        yield f"bottlenecks.{number}: must have 'id' and 'text'"
        return
    name = row["id"]
    yield from (f"{name}: unknown key '{key}'; valid: {', '.join(KEYS)}" for key in row if key not in KEYS)
    spans, rules = row.get("spans", {}), row.get("expect")
    unknown = [span for span in spans if span not in SPANS]
    yield from (f"{name}: spans: '{span}' is not a span; valid: {', '.join(SPANS)}" for span in unknown)
    if not isinstance(rules, list) or not rules:
        yield f"{name}: expect: must be a list of rules"
        return
    for rule in rules:
        if not isinstance(rule, dict) or not isinstance(rule.get("skills"), list) or not rule["skills"]:
            yield f"{name}: expect: a rule names 'skills', and 'when' it holds"
            continue
        when = rule.get("when", {})
        if not isinstance(when, dict):
            yield f"{name}: expect: when: must map facts to lists of values"
            continue
        for key, values in when.items():
            if key not in WHEN or not isinstance(values, list):
                yield f"{name}: expect: when: '{key}' must be a list of values of one of {', '.join(WHEN)}"
