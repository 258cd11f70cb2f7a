"""What the playbook proposes next: by gain, by name, by what was tried, and what it takes along."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from loop_fakes import LIMIT, Library, facts, tried

from vibeserve.agents import TUNING_CARD
from vibeserve.agents.playbook import MAX_VARIANTS, PlaybookPlanner
from vibeserve.core.nouns import Outcome, Proposal, RefusedAttempt
from vibeserve.core.paths import data_dir
from vibeserve.skills import load_scaffold, load_skills, resolve

PLANNER = PlaybookPlanner()


@pytest.fixture
def library(tmp_path: Path) -> Library:
    return Library(tmp_path)


def next_of(library: Library, *components: str, **changes: object) -> Proposal:
    proposal = PLANNER.propose(library.state(*components, **changes))  # type: ignore[arg-type]
    assert proposal is not None
    return proposal


def test_the_largest_amdahl_gain_comes_first(library: Library) -> None:
    library.add("fast-but-rare", seams=("sampler",), relieves=["http"], expected_factor=50.0)
    library.add("slow-but-common", seams=("linear",), relieves=["decode.linear", "prefill"], expected_factor=2.0)
    proposal = next_of(library)
    assert proposal.card == "slow-but-common"
    # shares 0.4 + 0.2 halved: 1 / (1 - 0.6 + 0.3)
    assert proposal.forecast_ratio == pytest.approx(1 / 0.7, abs=1e-3)
    assert "decode.linear, prefill" in proposal.hypothesis
    assert "60%" in proposal.hypothesis


def test_ties_go_by_name(library: Library) -> None:
    for name, seam in (("beta", "linear"), ("alpha", "attention"), ("gamma", "scheduler")):
        library.add(name, seams=(seam,), relieves=["queue"], expected_factor=4.0)
    assert next_of(library).card == "alpha"


def test_a_gain_below_the_smallest_accepted_effect_is_not_worth_a_round(library: Library) -> None:
    library.add("tiny", relieves=["http"], expected_factor=1.1)
    assert PLANNER.propose(library.state()) is None
    assert next_of(library, min_effect=0.001).card == "tiny"


def test_knowledge_without_a_component_is_never_proposed(library: Library) -> None:
    (library.skills_root / "lore").mkdir()
    (library.skills_root / "lore/SKILL.md").write_text("---\nname: lore\ndescription: Only words.\n---\nBody.\n")
    assert PLANNER.propose(library.state()) is None


def test_a_card_that_does_not_apply_is_skipped(library: Library) -> None:
    library.add("for-amx", relieves=["prefill"], expected_factor=9.0, conditions={"cpu_flags_all": ["amx_tile"]})
    library.add("plain", seams=("attention",), relieves=["prefill"], expected_factor=2.0)
    assert next_of(library).card == "plain"
    assert next_of(library, facts=facts(cpu_flags=frozenset({"amx_tile"}))).card == "for-amx"


def test_a_card_whose_base_does_not_apply_is_skipped(library: Library) -> None:
    library.add("base", relieves=["http"], expected_factor=1.0, conditions={"hardware": ["cuda"]})
    library.add("top", seams=("model",), extends=["base"], relieves=["prefill"], expected_factor=9.0)
    assert PLANNER.propose(library.state()) is None


def test_an_adopted_card_is_not_proposed_again(library: Library) -> None:
    library.add("only", relieves=["prefill"], expected_factor=9.0)
    assert PLANNER.propose(library.state("only")) is None


def test_what_a_card_extends_comes_along(library: Library) -> None:
    library.add("base", seams=("scheduler",), relieves=["http"], expected_factor=1.0)
    library.add("top", seams=("scheduler",), extends=["base"], relieves=["queue"], expected_factor=5.0)
    proposal = next_of(library)
    assert (proposal.card, proposal.components, proposal.skills) == ("top", ("base", "top"), ("top",))


def test_a_rival_for_the_same_seam_is_replaced_and_named(library: Library) -> None:
    library.add("old", relieves=["http"], expected_factor=1.0)
    library.add("other", seams=("sampler",), relieves=["http"], expected_factor=1.0)
    library.add("new", relieves=["prefill", "decode.linear"], expected_factor=3.0)
    proposal = next_of(library, "old", "other")
    assert proposal.components == ("new", "other")
    assert proposal.title == "adopt new instead of old"


def test_what_extends_a_replaced_component_goes_with_it(library: Library) -> None:
    library.add("old", relieves=["http"], expected_factor=1.0)
    library.add("on-old", seams=("attention",), extends=["old"], relieves=["http"], expected_factor=1.0)
    library.add("new", relieves=["prefill"], expected_factor=3.0)
    proposal = next_of(library, "old", "on-old")
    assert proposal.components == ("new",)
    assert proposal.title == "adopt new instead of old, on-old"


def test_a_declared_conflict_replaces_in_both_directions(library: Library) -> None:
    library.add("old", seams=("sampler",), conflicts=["new"], relieves=["http"], expected_factor=1.0)
    library.add("older", seams=("model",), relieves=["http"], expected_factor=1.0)
    library.add("new", conflicts=["older"], relieves=["prefill"], expected_factor=3.0)
    assert next_of(library, "old", "older").components == ("new",)


def test_the_rival_of_what_a_card_extends_is_replaced_too(library: Library) -> None:
    library.add("packed", relieves=["http"], expected_factor=1.0)
    library.add("widened", relieves=["http"], expected_factor=1.0)
    library.add("on-widened", seams=("attention",), extends=["widened"], relieves=["prefill"], expected_factor=3.0)
    proposal = next_of(library, "packed")
    assert proposal.components == ("on-widened", "widened")
    assert proposal.title == "adopt on-widened instead of packed"


def test_extending_an_adopted_component_keeps_it(library: Library) -> None:
    library.add("base", seams=("scheduler",), relieves=["http"], expected_factor=1.0)
    library.add("top", seams=("scheduler",), extends=["base"], relieves=["queue"], expected_factor=5.0)
    assert next_of(library, "base").components == ("base", "top")


def test_tuned_parameters_are_retained_and_new_ones_start_at_their_default(library: Library) -> None:
    library.add("batching", seams=("scheduler",), parameters={"max_num_seqs": LIMIT}, relieves=["http"])
    block = {"type": "int", "default": 32, "tune": [32, 64]}
    library.add("linears", parameters={"block": block}, relieves=["prefill"], expected_factor=3.0)
    proposal = next_of(library, "batching", parameters={"max_num_seqs": 16})
    assert proposal.parameters == {"max_num_seqs": 16, "block": 32}


def test_a_scaffold_default_does_not_pin_the_parameter_of_a_component_that_comes_along(library: Library) -> None:
    """A scaffold serves one sequence; a scheduler that is added later brings its own default."""
    library.add("linears", relieves=["http"])
    library.add("batching", seams=("scheduler",), parameters={"max_num_seqs": LIMIT}, relieves=["http"])
    library.add("chunked", seams=("scheduler",), extends=["batching"], relieves=["prefill"], expected_factor=3.0)
    proposal = next_of(library, "linears", parameters={"max_num_seqs": 1})
    assert proposal.card == "chunked"
    assert proposal.parameters == {"max_num_seqs": 8}


def test_a_value_that_the_new_assembly_does_not_allow_falls_back_to_its_default(library: Library) -> None:
    library.add("batching", seams=("scheduler",), parameters={"max_num_seqs": LIMIT}, relieves=["http"])
    library.add("serial", seams=("scheduler",), relieves=["prefill"], expected_factor=3.0)
    proposal = next_of(library, "batching", parameters={"max_num_seqs": 16})
    assert (proposal.components, proposal.parameters) == (("serial",), {"max_num_seqs": 1})


def test_a_tried_pair_is_never_offered_again(library: Library) -> None:
    library.add("best", relieves=["prefill", "decode.linear"], expected_factor=3.0)
    library.add("second", seams=("attention",), relieves=["prefill"], expected_factor=3.0)
    first = next_of(library)
    assert first.card == "best"
    for outcome in (Outcome.REJECTED, Outcome.CRASHED, Outcome.TIMED_OUT):
        assert next_of(library, records=[tried(first, outcome)]).card == "second"


def test_a_refused_attempt_counts_as_tried_though_another_followed(library: Library) -> None:
    library.add("card", parameters={"block": LIMIT}, relieves=["prefill"], expected_factor=3.0)
    first = next_of(library)
    second = replace(first, parameters={**first.parameters, "block": 4})
    earlier = RefusedAttempt(proposal=first, candidate=None, outcome=Outcome.REJECTED, reason="scripted")
    record = tried(second, Outcome.INFRA, refused_attempts=(earlier,))
    assert PLANNER.propose(library.state(records=[record])) is None


def test_one_failure_leaves_the_card_another_pair_two_abandon_it(library: Library) -> None:
    library.add("other", seams=("sampler",), relieves=["http"])
    library.add("card", relieves=["prefill"], expected_factor=3.0)
    once = [tried(next_of(library))]
    # beside another incumbent it is another pair
    again = next_of(library, "other", records=once)
    assert again.components == ("card", "other")
    assert PLANNER.propose(library.state("other", records=[*once, tried(again)])) is None
    third = PLANNER.propose(library.state(records=[*once, tried(again)]))
    assert third is None


def test_both_attempts_of_a_round_count_as_failures(library: Library) -> None:
    library.add("other", seams=("sampler",), relieves=["http"])
    library.add("card", parameters={"block": LIMIT}, relieves=["prefill"], expected_factor=3.0)
    first = next_of(library)
    earlier = RefusedAttempt(proposal=first, candidate=None, outcome=Outcome.REJECTED, reason="scripted")
    record = tried(replace(first, parameters={"block": 4}), refused_attempts=(earlier,))
    assert PLANNER.propose(library.state("other", records=[record])) is None


def test_a_card_that_failed_once_waits_for_the_untried_ones(library: Library) -> None:
    library.add("other", seams=("sampler",), relieves=["http"])
    library.add("big", relieves=["prefill", "decode.linear"], expected_factor=3.0)
    library.add("small", seams=("attention",), relieves=["prefill"], expected_factor=2.0)
    once = [tried(next_of(library))]
    assert next_of(library, "other", records=once).card == "small"


def test_an_infrastructure_failure_says_nothing_about_a_card(library: Library) -> None:
    library.add("card", relieves=["prefill"], expected_factor=3.0)
    first = next_of(library)
    records = [tried(first, Outcome.INFRA)] * 3
    assert next_of(library, records=records).components == first.components


def test_after_the_last_card_the_incumbent_is_tuned_one_value_at_a_time(library: Library) -> None:
    library.add("batching", seams=("scheduler",), parameters={"max_num_seqs": LIMIT}, relieves=["http"])
    packing = {"type": "str", "default": "f32", "choices": ["f32", "bf16"], "tune": ["f32", "bf16"]}
    library.add("linears", parameters={"packing": packing}, relieves=["http"])
    current = {"max_num_seqs": 8, "packing": "f32"}
    proposal = next_of(library, "batching", "linears", parameters=current)
    assert proposal.card == TUNING_CARD
    assert proposal.components == ("batching", "linears")
    assert proposal.variants == (
        {"max_num_seqs": 4, "packing": "f32"}, {"max_num_seqs": 16, "packing": "f32"},
        {"max_num_seqs": 8, "packing": "bf16"},
    )  # fmt: skip
    assert proposal.parameters == proposal.variants[0]


def test_tuning_offers_no_setting_twice_and_ends(library: Library) -> None:
    many = {"type": "int", "default": 0, "tune": list(range(1, MAX_VARIANTS + 3))}
    library.add("card", parameters={"knob": many}, relieves=["http"])
    first = next_of(library, "card", parameters={"knob": 0})
    assert [variant["knob"] for variant in first.variants] == list(range(1, MAX_VARIANTS + 1))
    second = next_of(library, "card", parameters={"knob": 0}, records=[tried(first)])
    assert [variant["knob"] for variant in second.variants] == [MAX_VARIANTS + 1, MAX_VARIANTS + 2]
    assert PLANNER.propose(library.state("card", parameters={"knob": 0}, records=[tried(first), tried(second)])) is None


def test_tuning_follows_the_declaration_that_holds(library: Library) -> None:
    """What an extension declares anew replaces the base's values: others would not assemble."""
    library.add("base", seams=("scheduler",), parameters={"max_num_seqs": LIMIT}, relieves=["http"])
    narrow = {"type": "int", "default": 2, "range": [1, 3], "tune": [2, 3]}
    library.add("top", seams=("scheduler",), extends=["base"], parameters={"max_num_seqs": narrow}, relieves=["http"])
    proposal = next_of(library, "base", "top", parameters={"max_num_seqs": 2})
    assert proposal.variants == ({"max_num_seqs": 3},)


def test_an_empty_profile_promises_nothing(library: Library) -> None:
    library.add("card", relieves=["prefill"], expected_factor=3.0)
    assert PLANNER.propose(library.state(spans={})) is None


def test_the_shipped_skills_lead_from_every_incumbent_to_a_valid_proposal(tmp_path: Path) -> None:
    """Whatever was accepted before, what is proposed next goes together and its parameters are declared."""
    skills = load_skills(data_dir("skills"))
    scaffold = load_scaffold(data_dir("templates") / "runtime" / "text")
    library = Library(tmp_path)
    base = library.state(skills=skills, scaffold=scaffold)
    for first in (skill.name for skill in skills if skill.card is not None):
        incumbent = tuple(component.name for component in resolve([first], skills))
        state = replace(base, incumbent=replace(base.incumbent, components=incumbent))
        for _ in range(len(skills)):
            proposal = PLANNER.propose(state)
            if proposal is None or proposal.card == TUNING_CARD:
                break
            components = resolve(proposal.components, skills)
            assert {component.name for component in components} == set(proposal.components)
            adopted = replace(state.incumbent, components=proposal.components, parameters=proposal.parameters)
            state = replace(state, incumbent=adopted, records=[*state.records, tried(proposal, Outcome.ACCEPTED)])
        else:
            pytest.fail(f"from {first} the planner adopts cards in a circle")
