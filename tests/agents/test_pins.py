"""A pinned parameter has its value in the seed and in every proposal, and nobody moves it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from loop_fakes import LIMIT, WRONG_TOKENS, Library, make_team, seed_checkpoint, small_spec

from vibeserve.agents.playbook import PlaybookImplementer, PlaybookPlanner
from vibeserve.agents.random_choice import list_choices
from vibeserve.core.nouns import Outcome, Proposal
from vibeserve.core.paths import data_dir
from vibeserve.rounds import Ground, run_round
from vibeserve.seeds import get_seed
from vibeserve.spec import Search, Seed

PLANNER = PlaybookPlanner()


@pytest.fixture
def library(tmp_path: Path) -> Library:
    library = Library(tmp_path)
    batching = {"max_num_seqs": LIMIT, "max_step": LIMIT}
    library.add("batching", seams=("scheduler",), parameters=batching, relieves=["prefill"], expected_factor=3.0)
    library.add("linears", parameters={"block": LIMIT}, relieves=["http"], expected_factor=2.0)
    return library


def next_of(library: Library, *components: str, **changes: Any) -> Proposal:
    proposal = PLANNER.propose(library.state(*components, **changes))
    assert proposal is not None
    return proposal


def test_a_component_comes_with_the_pinned_value_instead_of_its_default(library: Library) -> None:
    assert next_of(library, pins={"max_num_seqs": 32}).parameters == {"max_num_seqs": 32, "max_step": 8}


def test_a_pin_outside_the_scaffolds_bounds_waits_for_the_component_that_allows_it(library: Library) -> None:
    """The library's scaffold serves one sequence."""
    library.add("other", seams=("sampler",), relieves=["decode.linear", "prefill", "queue"], expected_factor=9.0)
    first = next_of(library, pins={"max_num_seqs": 32})
    assert (first.card, first.parameters) == ("other", {"max_num_seqs": 1})
    second = next_of(library, "other", parameters=first.parameters, pins={"max_num_seqs": 32})
    assert (second.card, second.parameters["max_num_seqs"]) == ("batching", 32)


def test_a_card_whose_bounds_leave_the_pin_out_is_no_choice(library: Library) -> None:
    assert next_of(library, pins={"max_num_seqs": 99}).card == "linears"
    assert {choice.card for choice in list_choices(library.state(pins={"max_num_seqs": 99}))} == {"linears"}


def test_tuning_leaves_pins_alone(library: Library) -> None:
    state = library.state(
        "batching", "linears", parameters={"max_num_seqs": 32, "max_step": 8, "block": 8}, pins={"max_num_seqs": 32}
    )
    proposal = PLANNER.propose(state)
    assert proposal is not None and proposal.card == "tuning"
    assert {variant["max_num_seqs"] for variant in proposal.variants} == {32}
    changed = [(variant["block"], variant["max_step"]) for variant in proposal.variants]
    assert changed == [(4, 8), (16, 8), (8, 4), (8, 16)]


def test_a_revision_leaves_pins_alone(library: Library) -> None:
    implementer = PlaybookImplementer(library.scaffold, skills=library.skills)
    state = library.state(pins={"max_num_seqs": 32})
    current = PLANNER.propose(state)
    assert current is not None
    revised = implementer.revise(current, refusals=[WRONG_TOKENS], state=state)
    assert revised is not None
    assert revised.parameters == {"max_num_seqs": 32, "max_step": 4}


def test_the_seed_has_what_the_scaffold_allows_of_the_pins(tmp_path: Path) -> None:
    pins = {"prefill_chunk_tokens": 64, "max_num_seqs": 16, "block": 3}
    scaffold = data_dir("templates") / "runtime/text"
    get_seed(Seed(), scaffold=scaffold, settings={}, pins=pins).materialise(tmp_path / "workspace")
    assembly = json.loads((tmp_path / "workspace/runtime/assembly.json").read_text())
    assert assembly["parameters"]["prefill_chunk_tokens"] == 64
    assert assembly["parameters"]["max_num_seqs"] == 1, "the scaffold serves one sequence, whatever is pinned"


def test_a_proposal_that_moves_a_pin_is_refused_whoever_makes_it(library: Library, tmp_path: Path) -> None:
    spec = small_spec(attempts=1)
    spec.search = Search(pins={"max_num_seqs": 32})
    team = make_team(library, tmp_path / "run", spec=spec)
    proposal = next_of(library, pins={"max_num_seqs": 32})
    state = library.state(pins={"max_num_seqs": 32})

    def outcome(parameters: dict[str, Any]) -> tuple[Outcome, str]:
        seed = seed_checkpoint(team, library)
        record = run_round(
            team, replace(proposal, parameters=parameters), number=1, state=state,
            ground=Ground(parent=seed, incumbent=seed, seed_floor=0.0),
        ).record  # fmt: skip
        return record.outcome, record.reason

    assert outcome({"max_num_seqs": 32, "max_step": 8})[0] is Outcome.ACCEPTED
    assert outcome({"max_num_seqs": 16, "max_step": 8}) == (Outcome.REJECTED, "the proposal moves a pinned parameter")
    assert outcome({"max_step": 8})[0] is Outcome.REJECTED, "left out it would be the card's default"
