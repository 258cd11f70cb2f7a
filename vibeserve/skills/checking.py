"""`skills check`: is every note whole, linked, fresh, executed, and led to by some target?"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from vibeserve.skills.apis import name_problems, named_in, version_problems
from vibeserve.skills.effects import EFFECT_FILE
from vibeserve.skills.loader import Skill, split_front_matter
from vibeserve.skills.snippets import FENCE, NOTES, Ran, body_of, find_snippets, note_files, run_snippet

SECTIONS = (
    "When it applies", "How it works", "Invariants", "Failure symptoms", "Test", "Measure", "Effect", "Platforms",
    "Versions", "Sources",
)  # fmt: skip
"""of a note with `applies.yaml`, whole lines `## NAME`"""
MIN_FAILURE_ROWS = 3
UNMEASURED = "effect not measured"
INDEX_METADATA = "reference-index"
"""`metadata.kind` of a note that lists what nothing here can execute: it has no sections and does not count"""
LINK = re.compile(r"\[[^\]\n]*\]\(([^)\s]+)\)")
URL = re.compile(r"https?://[^\s)>\]]+")


@dataclass(frozen=True, kw_only=True)
class SkillCheck:
    """What was found of one skill."""

    name: str
    is_routed: bool
    executed: str
    """snippet, compile, component, or empty: what of it is run where its tests run"""
    num_snippets: int = 0
    num_skipped: int = 0
    """snippets whose compiler is not installed here"""
    effect: str = ""
    """measured, in the note, not measured"""
    failures: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    """what keeps it from counting without being wrong"""

    @property
    def counts(self) -> bool:
        return self.is_routed and bool(self.executed) and not self.failures


@dataclass(frozen=True, kw_only=True)
class LibraryCheck:
    """Document of `skills check --json`. `count`: skills that are routed and executed, and have no failure."""

    schema_version: int = 1
    count: int
    failures: tuple[str, ...]
    skills: tuple[SkillCheck, ...]


def check_library(skills: Sequence[Skill], *, routed: frozenset[str], is_run: bool = True) -> LibraryCheck:
    """Check every note; `is_run` false leaves the snippets unrun, and then none counts as executed by them.

    `routed` are the names that the routing suite leads to (`suite.SuiteResult.routed`).
    """
    absent = _by_skill(skills, name_problems([named_in(skill) for skill in skills]))
    rows = tuple(_checked(skill, absent=absent[skill.name], routed=routed, is_run=is_run) for skill in skills)
    failures = tuple(text for row in rows for text in row.failures)
    return LibraryCheck(count=sum(row.counts for row in rows), failures=failures, skills=rows)


def _checked(skill: Skill, *, absent: Sequence[str], routed: frozenset[str], is_run: bool) -> SkillCheck:
    snippets, problems = find_snippets(skill)
    ran = [run_snippet(snippet) for snippet in snippets] if is_run else []
    failures = [
        *link_problems(skill), *section_problems(skill), *problems, *absent, *version_problems(skill),
        *(f"{each.snippet.place}: {each.text}" for each in ran if each.state == "failed"),
    ]  # fmt: skip
    skipped = [each for each in ran if each.state == "skipped"]
    notes = [f"{each.snippet.place}: {each.text}" for each in skipped]
    notes += [] if skill.applies is not None else ["no applies.yaml: it is routed by its description alone"]
    return SkillCheck(
        name=skill.name, is_routed=skill.name in routed, executed=_executed(skill, ran), num_snippets=len(snippets),
        num_skipped=len(skipped), effect=effect_of(skill), failures=tuple(failures), notes=tuple(notes),
    )  # fmt: skip


def _executed(skill: Skill, ran: Sequence[Ran]) -> str:
    passed = {each.snippet.verb for each in ran if each.state == "passed"}
    if skill.card is not None and any(target.startswith("tests/test_") for target in skill.card.files.values()):
        return "component"
    return "snippet" if "run" in passed else "compile" if passed else ""


def _by_skill(skills: Sequence[Skill], problems: Sequence[str]) -> dict[str, list[str]]:
    return {
        skill.name: [problem for problem in problems if problem.startswith(f"{skill.path}/")] for skill in skills
    }


def is_index(skill: Skill) -> bool:
    """It lists what cannot be executed here."""
    front, _ = split_front_matter((skill.path / NOTES).read_text(encoding="utf-8"))
    return bool((front.get("metadata") or {}).get("kind") == INDEX_METADATA)


def effect_of(skill: Skill) -> str:
    """How its effect is known: by an ablation, by figures in the note, or not at all."""
    if (skill.path / EFFECT_FILE).is_file():
        return "measured"
    text = _section(body_of(skill), "Effect")
    return "not measured" if UNMEASURED in text.lower() or not re.search(r"\d", text) else "in the note"


def link_problems(skill: Skill) -> Iterator[str]:
    """Relative links have to lead to a file of the skill."""
    for path in note_files(skill):
        text = FENCE.sub("", path.read_text(encoding="utf-8"))
        for target in LINK.findall(text):
            if URL.match(target) or target.startswith("#"):
                continue
            file = (path.parent / target.partition("#")[0]).resolve()
            if not file.is_relative_to(skill.path.resolve()):
                yield f"{path}: the link to {target} leaves the skill's folder"
            elif not file.exists():
                yield f"{path}: the link to {target} leads to no file"


def section_problems(skill: Skill) -> Iterator[str]:
    """What a note with `applies.yaml` lacks."""
    path, body = skill.path / NOTES, body_of(skill)
    if skill.applies is None:
        return
    if not URL.search(_section(body, "Sources") or body):
        yield f"{path}: Sources: names no address (https://...) of a paper, a document or an issue"
    if is_index(skill):
        return
    present = re.findall(r"^## (.+?)\s*$", body, re.MULTILINE)
    missing = [name for name in SECTIONS if name not in present]
    if missing:
        yield f"{path}: lacks the sections {', '.join(missing)}"
    rows = [line for line in _section(body, "Failure symptoms").splitlines() if line.startswith("|")]
    if "Failure symptoms" in present and len(rows) - 2 < MIN_FAILURE_ROWS:
        yield f"{path}: Failure symptoms: a table of at least {MIN_FAILURE_ROWS} rows, symptom and cause"
    effect = _section(body, "Effect")
    if "Effect" in present and UNMEASURED not in effect.lower() and not re.search(r"\d", effect):
        yield f"{path}: Effect: neither a figure nor the words '{UNMEASURED}'"


def _section(body: str, name: str) -> str:
    match = re.search(rf"^## {re.escape(name)}\s*$(.*?)(?=^## |\Z)", body, re.MULTILINE | re.DOTALL)
    return match[1] if match else ""
