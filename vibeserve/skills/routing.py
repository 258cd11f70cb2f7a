"""Which skills to open for a target and a bottleneck: foreign ones are pruned, the rest are ranked by words and spans.

The rank is a weighted overlap of terms (words and pairs of words, inverse document frequency, as in information
retrieval: Sparck Jones, 1972), plus the share of time in spans that a skill is about. It is deterministic and reads
nothing but front matter and cards.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

from vibeserve.skills.card import Conditions
from vibeserve.skills.conditions import TargetFacts, unmet
from vibeserve.skills.loader import Skill

NAME_WEIGHT, SYMPTOM_WEIGHT, DESCRIPTION_WEIGHT = 1.6, 1.3, 0.8
"""how much a term says by where it stands: a name is chosen, a description is prose"""
SPAN_WEIGHT = 0.35
FIT_WEIGHT = 0.04
"""for each condition that names this very target: of two that match alike the narrower one is meant"""
WEAK_MATCH = 0.25
"""share of the description's weight: below it the best match is a guess, and the fallback is shown, too"""
NUM_FIRST = 5
TINY_SCORE = 1e-6
"""above 0: shown"""
SUFFIXES = ("ings", "ing", "ed", "es", "s", "er", "ly")
MIN_STEM = 3
STOP_TEXT = """
a an and are as at be but by can do does each every few for from has have how if in into is it its least less like many
more most much no not of off on one only or other out over per same so some still such than that the their them then
there these they this to too two under up use very was we what when where which while who why will with without you your
"""
STOP_WORDS = frozenset(STOP_TEXT.split())


@dataclass(frozen=True, kw_only=True)
class Routed:
    """A skill that applies, and why it stands where it stands."""

    skill: Skill
    score: float
    matched: tuple[str, ...] = ()
    """stems of the words that it shares with the bottleneck, the rarest first"""
    spans: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Bottleneck:
    """What a skill is looked for against: words, and shares of a request's wall time by span."""

    text: str = ""
    spans: Mapping[str, float] = field(default_factory=dict)


def route(skills: Sequence[Skill], *, facts: TargetFacts | None, bottleneck: Bottleneck) -> list[Routed]:
    """Skills that apply to the target, the best match first, ties by name. `facts` None prunes nothing."""
    fitting = [skill for skill in skills if facts is None or why_pruned(skill, facts=facts) is None]
    known = {skill.name: _weights(skill) for skill in skills}
    counts = Counter(term for weights in known.values() for term in weights)
    asked = {term: math.log(1 + len(skills) / (1 + counts[term])) for term in _terms(bottleneck.text)}
    whole = sum(asked.values()) or 1.0
    rows: list[Routed] = []
    best = 0.0
    for skill in fitting:
        shared = {term: idf * known[skill.name][term] for term, idf in asked.items() if term in known[skill.name]}
        spans = tuple(span for span in relieved(skill) if bottleneck.spans.get(span, 0.0) > 0)
        words = sum(shared.values()) / whole
        best = max(best, words)
        score = words + SPAN_WEIGHT * sum(bottleneck.spans[span] for span in spans)
        score += FIT_WEIGHT * _num_named(conditions_of(skill), facts) if score > 0 else 0.0
        matched = tuple(sorted(shared, key=lambda term: (-shared[term], term)))
        rows.append(Routed(skill=skill, score=round(score, 6), matched=matched, spans=spans))
    ranked = sorted(rows, key=lambda row: (-row.score, row.skill.name))
    return _with_fallback(ranked) if best < WEAK_MATCH and bottleneck.text else ranked


def _with_fallback(ranked: Sequence[Routed]) -> list[Routed]:
    """Fallback skills at the end of the first few, if they do not stand there already."""
    first = ranked[:NUM_FIRST]
    late = [row for row in ranked[NUM_FIRST:] if row.skill.applies is not None and row.skill.applies.fallback]
    kept = list(first[: NUM_FIRST - len(late)])
    score = max(kept[-1].score if kept else 0.0, TINY_SCORE)
    moved = [replace(row, score=score) for row in late]
    return [*kept, *moved, *(row for row in ranked if row not in kept and row not in late)]


def why_pruned(skill: Skill, *, facts: TargetFacts) -> str | None:
    """Why a skill is foreign to the target; None where it applies."""
    return unmet(conditions_of(skill), facts=facts)


def conditions_of(skill: Skill) -> Conditions:
    """Those of the knowledge; of the component where a note does not say."""
    if skill.applies is not None:
        return skill.applies.conditions
    return skill.card.conditions if skill.card is not None else Conditions()


def relieved(skill: Skill) -> tuple[str, ...]:
    """Spans that note or component are about."""
    own = skill.applies.relieves if skill.applies is not None else ()
    return tuple(dict.fromkeys((*own, *(skill.card.relieves if skill.card is not None else ()))))


def _weights(skill: Skill) -> dict[str, float]:
    """Term -> weight of the best place where it stands."""
    symptoms = skill.applies.symptoms if skill.applies is not None else ()
    places = (
        (DESCRIPTION_WEIGHT, (skill.description,)), (SYMPTOM_WEIGHT, symptoms),
        (NAME_WEIGHT, (skill.name.replace("-", " "),)),
    )  # fmt: skip
    weights: dict[str, float] = {}
    for weight, texts in places:
        for text in texts:
            weights.update(dict.fromkeys(_terms(text), weight))
    return weights


def _terms(text: str) -> set[str]:
    """Stems of words, and of neighbouring pairs of them."""
    stems = [_stem(word) for word in re.findall(r"[a-z0-9]+", text.lower()) if word not in STOP_WORDS]
    return {*stems, *(f"{first} {second}" for first, second in pairwise(stems))}


def _stem(word: str) -> str:
    """Without a usual ending and a last `e`: cache, caches and caching are one word here."""
    for suffix in SUFFIXES:
        if word.endswith(suffix) and len(word) - len(suffix) >= MIN_STEM:
            word = word[: -len(suffix)]
            break
    if len(word) > MIN_STEM and word[-1] == word[-2] and word[-1] not in "sl":
        word = word[:-1]  # batching is of batch, chunked of chunk, running of run
    return word[:-1] if word.endswith("e") and len(word) > MIN_STEM else word


def _num_named(conditions: Conditions, facts: TargetFacts | None) -> int:
    """How many conditions name a value of this target."""
    if facts is None:
        return 0
    named = (
        facts.architecture in conditions.architectures, facts.modality in conditions.modalities,
        facts.hardware in conditions.hardware, facts.workload in conditions.workloads,
        facts.reuse in conditions.reuse, facts.prediction in conditions.prediction,
    )  # fmt: skip
    return sum(named)
