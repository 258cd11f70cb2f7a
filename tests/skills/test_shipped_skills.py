"""The library that ships: whole, linked, fresh, run."""

from __future__ import annotations

import pytest

from vibeserve.cli.skill_checks import shipped_facts
from vibeserve.core.paths import data_dir
from vibeserve.skills import SUITE_FILE, Skill, check_library, load_skills, read_suite, run_suite
from vibeserve.skills.checking import is_index, link_problems, section_problems
from vibeserve.skills.snippets import find_snippets

SKILLS = load_skills(data_dir("skills"))
NOTED = [skill for skill in SKILLS if skill.applies is not None]
MIN_COUNT = 25


@pytest.mark.parametrize("skill", SKILLS, ids=lambda skill: skill.name)
def test_a_note_is_whole_and_its_links_lead_somewhere(skill: Skill) -> None:
    assert [*link_problems(skill), *section_problems(skill), *find_snippets(skill)[1]] == []


@pytest.mark.parametrize("skill", NOTED, ids=lambda skill: skill.name)
def test_a_note_has_something_that_runs(skill: Skill) -> None:
    has_tests = skill.card is not None and any(target.startswith("tests/") for target in skill.card.files.values())
    assert has_tests or find_snippets(skill)[0] or is_index(skill)


def test_no_description_is_too_long_for_an_index() -> None:
    assert [skill.name for skill in SKILLS if len(skill.description) > 300] == []


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_every_snippet_runs_and_every_name_exists() -> None:
    """What `vibeserve skills check` does: about 25 skills must be led to and run."""
    suite = run_suite(read_suite(data_dir("skills") / SUITE_FILE), targets=shipped_facts(), skills=SKILLS)
    found = check_library(SKILLS, routed=suite.routed)
    assert found.failures == ()
    assert found.count >= MIN_COUNT
    counted = {row.name for row in found.skills if row.counts}
    skipped = {row.name for row in found.skills if row.num_skipped}
    # no target that ships admits any precision in its headline, nor has several ranks on a CPU
    expected = {skill.name for skill in NOTED if not is_index(skill)} - {"int8-groupwise-linears", "tensor-parallel"}
    assert expected - skipped <= counted
