"""When an idea is one that was given up, and that saying what changed lets it pass."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from loop_fakes import LIMIT, Library
from test_planning_views import proposal

from vibeserve.core.nouns import Proposal
from vibeserve.errors import RefusedError
from vibeserve.planning import (
    Backlog,
    Change,
    Constraints,
    ItemState,
    keys_of,
    like_abandoned,
    likeness,
    refuse_unsuitable,
)
from vibeserve.skills import load_scaffold

FUSE = proposal(
    "Fuse the QKV projections",
    mechanism="concatenate the three weight matrices once and run a single matmul for queries, keys and values",
)
SAME_IDEA = proposal(
    "Fused QKV projection",
    mechanism="the three weight matrices are concatenated and a single matmul yields query, key and value",
)
OTHERS = (
    proposal("Fuse the gate and up projections", mechanism="one matmul for the two matrices of the MLP"),
    proposal("Paged KV cache", mechanism="blocks of 16 tokens are allocated on demand, so that more sequences fit"),
    proposal("Batch rows of several requests", mechanism="the scheduler plans one row for each running sequence"),
)


def given_up(*proposals: Proposal, keys: tuple[str, ...] = (), **changes: Any) -> Backlog:
    backlog = Backlog()
    for number, each in enumerate(proposals, start=1):
        change = Change(
            item=f"b{number}", state=ItemState.ABANDONED, title=each.title, mechanism=each.mechanism, why="not faster",
            who="framework", round=number, keys=keys, what_changed=each.what_changed,
        )  # fmt: skip
        backlog.take(replace(change, **changes))
    return backlog


def found(each: Proposal, backlog: Backlog, *, keys: tuple[str, ...] = ()) -> str:
    item = like_abandoned(each, keys=keys, backlog=backlog)
    return item.id if item is not None else ""


def test_other_words_for_the_same_idea_are_alike_and_other_ideas_are_not() -> None:
    assert likeness(FUSE, SAME_IDEA) == 1.0, "one title"
    by_mechanism = replace(SAME_IDEA, title="One QKV product")
    assert likeness(FUSE, by_mechanism) == 0.5, "a quarter of the title, three quarters of the mechanism"
    assert 0.6 < likeness(FUSE, replace(SAME_IDEA, title="Fuse QKV projections into one matmul")) < 1
    assert [round(likeness(FUSE, other), 2) for other in OTHERS] == [0.28, 0.0, 0.03]
    assert likeness(FUSE, replace(SAME_IDEA, title="FUSE THE QKV PROJECTIONS!", mechanism="quite another text")) == 1.0
    assert likeness(proposal(" ", mechanism=""), proposal("?", mechanism="")) == 0.0


def test_it_is_refused_until_it_says_what_changed() -> None:
    backlog = given_up(FUSE)
    assert found(SAME_IDEA, backlog) == "b1"
    assert found(replace(SAME_IDEA, what_changed="now"), backlog) == "b1", "one word says nothing"
    changed = replace(SAME_IDEA, what_changed="the weights are packed once at the start, not in every step")
    assert found(changed, backlog) == ""
    assert [found(other, backlog) for other in OTHERS] == ["", "", ""]


def test_what_changed_counts_once() -> None:
    second = replace(SAME_IDEA, what_changed="packed once at the start")
    backlog = given_up(FUSE, second)
    assert found(second, backlog) == "b2"
    assert found(replace(second, what_changed="Packed once, at the start."), backlog) == "b2"
    assert found(replace(second, what_changed="only for prompts above 512 tokens"), backlog) == ""


@pytest.mark.parametrize("state", [ItemState.OPEN, ItemState.PARKED, ItemState.DONE, ItemState.IN_PROGRESS])
def test_only_what_was_given_up_is_in_the_way(state: ItemState) -> None:
    assert found(SAME_IDEA, given_up(FUSE, state=state)) == ""


@pytest.fixture
def library(tmp_path: Path) -> Library:
    library = Library(tmp_path)
    library.add("base", seams=("linear",), parameters={"block": LIMIT})
    library.add("extra", seams=("attention",), extends=["base"])
    return library


def keys(library: Library, each: Proposal, *incumbent: str) -> tuple[str, ...]:
    return keys_of(
        each, incumbent=(incumbent, {}), scaffold=load_scaffold(library.scaffold), skills=library.skills
    )  # fmt: skip


def test_an_assembly_has_one_key_however_it_is_written(library: Library) -> None:
    whole = proposal(components=("base", "extra"), parameters={"block": 8, "max_num_seqs": 1})
    assert keys(library, whole) == keys(library, proposal(components=("extra",)))
    assert keys(library, whole) != keys(library, replace(whole, parameters={"block": 16}))
    assert keys(library, whole, "base", "extra") == (), "the incumbent itself"
    assert keys(library, proposal()) == (), "an idea in words"
    assert keys(library, proposal(components=("unknown",))) != ()


def test_a_tuning_round_is_given_up_where_all_of_its_settings_were(library: Library) -> None:
    tuned = proposal(components=("base",), parameters={"block": 4}, variants=({"block": 4}, {"block": 16}))
    four, sixteen = keys(library, tuned, "base")
    assert found(tuned, given_up(tuned, keys=(four, sixteen)), keys=(four, sixteen)) == "b1"
    assert found(tuned, given_up(tuned, keys=(four,)), keys=(four, sixteen)) == ""
    assert found(replace(tuned, variants=()), given_up(tuned, keys=(four, sixteen)), keys=(four,)) == "b1"
    other_words = replace(tuned, title="something else", mechanism="in other words")
    assert found(other_words, given_up(tuned, keys=(four, sixteen)), keys=(sixteen, four)) == "b1"


def test_a_setting_beside_it_makes_no_other_idea_of_code_that_was_given_up(library: Library) -> None:
    dodged = replace(SAME_IDEA, components=("base",), parameters={"block": 16})
    own = keys(library, dodged, "base")
    assert own and found(dodged, given_up(FUSE), keys=own) == "b1"
    assert found(replace(dodged, what_changed="the blocks are larger now"), given_up(FUSE), keys=own) == ""
    assert found(replace(dodged, card="base"), given_up(FUSE), keys=own) == "", "a card's own words are the card's"
    assert found(replace(OTHERS[1], parameters={"block": 16}), given_up(FUSE), keys=own) == ""


def refused(library: Library, each: Proposal, **state: Any) -> list[str]:
    values: dict[str, Any] = {"backlog": Backlog(), "constraints": Constraints(), "incumbent": (), "keys": ()}
    try:
        refuse_unsuitable(
            each, scaffold=load_scaffold(library.scaffold), skills=library.skills, **(values | state)
        )  # fmt: skip
    except RefusedError as error:
        return [reason.feedback for reason in error.reasons]  # type: ignore[attr-defined]
    return []


def test_the_refusals_are_typed(library: Library) -> None:
    assert refused(library, SAME_IDEA) == []
    assert refused(library, SAME_IDEA, backlog=given_up(FUSE)) == [
        "planning/already_abandoned: it is like b1 'Fuse the QKV projections', abandoned in round 1: not faster; "
        "name in `what_changed` what is different now, or propose something else"
    ]
    extra = proposal(components=("extra",), parameters={"block": 16})
    ruled = Constraints(banned=("base",), allowed={"block": (4, 8)})
    assert refused(library, extra, constraints=ruled) == [
        "planning/banned_component: component base is banned for this run",
        "planning/banned_value: parameter block may only be 4, 8 in this run, not 16",
    ]
    assert refused(library, extra, constraints=Constraints(banned=("base",)), incumbent=("base",)) == []
    assert refused(library, proposal(components=("extra",)), constraints=Constraints(allowed={"block": (4,)})) == [
        "planning/banned_value: parameter block may only be 4 in this run, not 8"
    ], "a default is a value, too"
