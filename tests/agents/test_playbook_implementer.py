"""The playbook's implementer, judge and evaluator."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from loop_fakes import LIMIT, WRONG_TOKENS, Library, tried

from vibeserve.agents import Explanation, Implementation, Review, Reviewed
from vibeserve.agents.playbook import PlaybookEvaluator, PlaybookImplementer, PlaybookJudge, PlaybookPlanner
from vibeserve.core.documents import digest_tree
from vibeserve.core.nouns import Proposal, Verdict
from vibeserve.errors import SpecError


@pytest.fixture
def library(tmp_path: Path) -> Library:
    library = Library(tmp_path)
    library.add("card", parameters={"block": LIMIT}, relieves=["prefill"], expected_factor=3.0)
    library.add("plain", seams=("attention",), relieves=["prefill"], expected_factor=1.5)
    return library


def given_in(workspace: Path) -> Implementation:
    return Implementation(workspace=workspace, number=1, attempt=1)


def implementer_of(library: Library) -> PlaybookImplementer:
    return PlaybookImplementer(library.scaffold, skills=library.skills)


def proposal_of(library: Library) -> Proposal:
    proposal = PlaybookPlanner().propose(library.state())
    assert proposal is not None
    return proposal


def test_a_proposal_is_assembled_and_the_same_one_gives_the_same_bytes(library: Library, tmp_path: Path) -> None:
    proposal = proposal_of(library)
    for name in ("one", "two"):
        implementer_of(library).implement(proposal, given_in(tmp_path / name))
    assert digest_tree(tmp_path / "one") == digest_tree(tmp_path / "two")
    assembly = json.loads((tmp_path / "one/runtime/assembly.json").read_text())
    assert [component["name"] for component in assembly["components"]] == ["card"]
    assert assembly["parameters"] == {"block": 8, "max_num_seqs": 1}
    assert assembly["seams"]["linear"] == "component:card"


def test_a_setting_out_of_range_is_an_invalid_proposal(library: Library, tmp_path: Path) -> None:
    proposal = replace(proposal_of(library), parameters={"block": 1000})
    with pytest.raises(SpecError, match="parameter 'block' must be from 1 to 64, got 1000"):
        implementer_of(library).implement(proposal, given_in(tmp_path / "one"))


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
    review = Review(
        workspace=tmp_path, proposal=proposal_of(library), number=1, attempt=1, patch="", verdict=Verdict(),
        decision=None,
    )  # fmt: skip
    assert PlaybookJudge().review(review) == Reviewed()
    record = tried(proposal_of(library))
    assert PlaybookEvaluator().explain(Explanation(record=record, workspace=tmp_path, patch="")) == ""
    assert implementer_of(library).origin == ""
