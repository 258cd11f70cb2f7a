"""The control arm draws among everything that may be done, by its seed alone."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from loop_fakes import LIMIT, Library, facts, tried

from vibeserve.agents import TUNING_CARD, PlannerAgent
from vibeserve.agents.random_choice import RandomPlanner, list_choices
from vibeserve.agents.team import make_planner
from vibeserve.core.nouns import Outcome, Proposal
from vibeserve.errors import SpecError
from vibeserve.rounds import origin_of
from vibeserve.spec import Search


@pytest.fixture
def library(tmp_path: Path) -> Library:
    """Three cards, of which one does not apply; none of the others promises a gain worth a round."""
    library = Library(tmp_path)
    library.add("alpha", seams=("sampler",), relieves=["http"], expected_factor=1.001)
    library.add("beta", seams=("linear",), parameters={"block": LIMIT}, relieves=["http"], expected_factor=1.001)
    library.add("gamma", seams=("model",), conditions={"hardware": ["cuda"]}, relieves=["prefill"], expected_factor=9.0)
    return library


def propose(library: Library, *components: str, seed: int = 0, **changes: object) -> Proposal | None:
    return RandomPlanner(seed).propose(library.state(*components, **changes))  # type: ignore[arg-type]


def what(proposal: Proposal | None) -> str:
    assert proposal is not None
    return proposal.title


def test_every_applicable_choice_is_drawn_with_the_same_probability_whatever_it_promises(library: Library) -> None:
    state = library.state("beta", parameters={"block": 8})
    assert [what(choice) for choice in list_choices(state)] == ["adopt alpha", "set block=4", "set block=16"]
    drawn = Counter(what(RandomPlanner(seed).propose(state)) for seed in range(300))
    assert set(drawn) == {"adopt alpha", "set block=4", "set block=16"}
    # a third of 300 each; 60 is four standard deviations away. The seeds are fixed, so this cannot change by itself
    assert min(drawn.values()) > 60


def test_the_same_seed_and_history_draw_the_same(library: Library) -> None:
    first = [what(propose(library, seed=seed)) for seed in range(20)]
    assert first == [what(propose(library, seed=seed)) for seed in range(20)]
    assert len(set(first)) == 2


def test_another_round_is_another_draw(library: Library) -> None:
    infra = tried(propose(library), Outcome.INFRA)
    drawn = {what(propose(library, records=[infra] * number)) for number in range(12)}
    assert drawn == {"adopt alpha", "adopt beta"}


def test_what_was_tried_is_not_offered_again_and_in_the_end_nothing_is_left(library: Library) -> None:
    records = []
    while (proposal := propose(library, records=records)) is not None:
        records.append(tried(proposal))
    assert sorted(record.proposal.title for record in records if record.proposal) == ["adopt alpha", "adopt beta"]


def test_a_card_that_failed_twice_is_abandoned(library: Library) -> None:
    first = next(choice for choice in list_choices(library.state()) if choice.card == "beta")
    records = [tried(first), tried(replace(first, parameters={"block": 4}))]
    # beside another incumbent it would be an assembly that was not tried
    assert {choice.card for choice in list_choices(library.state("alpha", records=records))} == set()
    assert {choice.card for choice in list_choices(library.state("alpha", records=records[:1]))} == {"beta"}


def test_a_setting_is_offered_as_it_is_and_credited_to_tuning(library: Library) -> None:
    choice = next(c for c in list_choices(library.state("beta", parameters={"block": 8})) if c.card == TUNING_CARD)
    assert (choice.parameters, choice.variants, choice.components) == ({"block": 4}, (), ("beta",))
    assert choice.forecast_ratio == 1.0
    assert origin_of(choice) == "tuning"


def test_cards_that_do_not_apply_are_no_choice(library: Library) -> None:
    assert {choice.card for choice in list_choices(library.state())} == {"alpha", "beta"}
    assert {choice.card for choice in list_choices(library.state(facts=facts(hardware="cuda")))} == {
        "alpha", "beta", "gamma",
    }  # fmt: skip


def test_the_policy_chooses_the_planner(library: Library) -> None:
    def planner(search: Search) -> PlannerAgent:
        return make_planner(search)

    assert type(planner(Search())).__name__ == type(planner(Search(policy="beam"))).__name__ == "PlaybookPlanner"
    random = planner(Search(policy="random", seed=7))
    assert isinstance(random, RandomPlanner)
    assert random.propose(library.state()) == RandomPlanner(7).propose(library.state())
    with pytest.raises(SpecError, match=r"search\.policy: unknown policy 'beem'\n  valid: greedy, beam, random"):
        planner(Search(policy="beem"))
