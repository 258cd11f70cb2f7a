"""The playbook's implementer and judge, and the choice of back ends."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from loop_fakes import LIMIT, WRONG_TOKENS, Library, tried

from vibeserve.agents import get_agents
from vibeserve.agents.playbook import PlaybookImplementer, PlaybookJudge, PlaybookPlanner
from vibeserve.core.documents import digest_tree
from vibeserve.core.nouns import Proposal
from vibeserve.errors import SpecError
from vibeserve.spec import Agent, Agents, Search


@pytest.fixture
def library(tmp_path: Path) -> Library:
    library = Library(tmp_path)
    library.add("card", parameters={"block": LIMIT}, relieves=["prefill"], expected_factor=3.0)
    library.add("plain", seams=("attention",), relieves=["prefill"], expected_factor=1.5)
    return library


def implementer_of(library: Library) -> PlaybookImplementer:
    return PlaybookImplementer(library.scaffold, skills=library.skills)


def proposal_of(library: Library) -> Proposal:
    proposal = PlaybookPlanner().propose(library.state())
    assert proposal is not None
    return proposal


def test_a_proposal_is_assembled_and_the_same_one_gives_the_same_bytes(library: Library, tmp_path: Path) -> None:
    proposal = proposal_of(library)
    for name in ("one", "two"):
        implementer_of(library).implement(proposal, workspace=tmp_path / name)
    assert digest_tree(tmp_path / "one") == digest_tree(tmp_path / "two")
    assembly = json.loads((tmp_path / "one/runtime/assembly.json").read_text())
    assert [component["name"] for component in assembly["components"]] == ["card"]
    assert assembly["parameters"] == {"block": 8, "max_num_seqs": 1}
    assert assembly["seams"]["linear"] == "component:card"


def test_a_setting_out_of_range_is_an_invalid_proposal(library: Library, tmp_path: Path) -> None:
    proposal = replace(proposal_of(library), parameters={"block": 1000})
    with pytest.raises(SpecError, match="parameter 'block' must be from 1 to 64, got 1000"):
        implementer_of(library).implement(proposal, workspace=tmp_path / "one")


def test_a_refused_proposal_is_revised_to_the_next_untried_value(library: Library) -> None:
    implementer, first, records = implementer_of(library), proposal_of(library), []
    assert first.parameters["block"] == 8
    current, values = first, []
    while (
        revised := implementer.revise(current, refusals=[WRONG_TOKENS], state=library.state(records=records))
    ) is not None:
        records.append(tried(current))
        values.append(revised.parameters["block"])
        assert revised.proposal_id.startswith(first.proposal_id)
        assert revised.proposal_id != current.proposal_id
        assert f"block={values[-1]}" in revised.title
        current = revised
    assert values == [4, 16]
    assert current.components == first.components


def test_a_card_without_another_value_is_given_up(library: Library) -> None:
    plain = replace(proposal_of(library), card="plain", components=("plain",), parameters={})
    assert implementer_of(library).revise(plain, refusals=[WRONG_TOKENS], state=library.state()) is None


def test_a_refused_tuning_is_given_up(library: Library) -> None:
    tuning = replace(proposal_of(library), card="tuning")
    assert implementer_of(library).revise(tuning, refusals=[WRONG_TOKENS], state=library.state()) is None


def test_the_judge_adds_nothing(library: Library, tmp_path: Path) -> None:
    assert PlaybookJudge().review(tmp_path, proposal=proposal_of(library)) == []
    assert implementer_of(library).origin == ""


def test_the_declared_back_ends_are_built_and_unknown_ones_refused(library: Library) -> None:
    planner, implementer, judge = get_agents(
        Agents(), search=Search(), scaffold=library.scaffold, skills=library.skills
    )
    assert isinstance(planner, PlaybookPlanner)
    assert isinstance(implementer, PlaybookImplementer)
    assert isinstance(judge, PlaybookJudge)
    wrong = Agents(judge=Agent(backend="oracle"))
    with pytest.raises(SpecError, match=r"agents\.judge\.backend: unknown back end 'oracle'\n  valid: playbook"):
        get_agents(wrong, search=Search(), scaffold=library.scaffold, skills=library.skills)
