"""What the policies choose, as pure functions of a tree."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest

from vibeserve.core.documents import to_data
from vibeserve.core.nouns import Candidate, Decision, Outcome, Proposal, RatioInterval, Refusal, Round, Verdict
from vibeserve.errors import SpecError
from vibeserve.policies import (
    BrokenInvariantError,
    Extension,
    Move,
    SearchTree,
    Step,
    Stop,
    check_tree,
    make_policy,
    search_graph,
)
from vibeserve.policies.invariants import Held
from vibeserve.spec import Search


def interval(ratio: float) -> RatioInterval:
    return RatioInterval(ratio=ratio, ci_low=ratio * 0.99, ci_high=ratio * 1.01, num_pairs=5)


def proposal(card: str) -> Proposal:
    return Proposal(
        proposal_id="p", title=card, hypothesis="", mechanism="", activation_evidence="", falsification="",
        forecast_ratio=1.1, components=(card,), parameters={}, card=card,
    )  # fmt: skip


def record(number: int, ratio: float | None = None, *, outcome: Outcome = Outcome.REJECTED, card: str = "") -> Round:
    """A round that passed the gates and has `ratio` over the incumbent."""
    decision = Decision(
        accepted=outcome in (Outcome.ACCEPTED, Outcome.BASELINE), reason="scripted", noise_floor=0.01,
        headline=interval(ratio) if ratio is not None else None,
    )  # fmt: skip
    return Round(
        number=number, proposal=proposal(card or f"card{number}") if number else None, outcome=outcome, reason="",
        candidate=Candidate(candidate_id=f"r{number}", commit=f"c{number}", workspace="", origin=""),
        verdict=Verdict(checks=("scan",)), decision=decision,
    )  # fmt: skip


def refused(number: int) -> Round:
    verdict = Verdict(refusals=(Refusal(gate="accuracy", reason_class="wrong", text=""),), checks=("accuracy",))
    return replace(record(number, 3.0), verdict=verdict)


SEED = record(0, outcome=Outcome.BASELINE)


def tree_of(*rounds: Round | tuple[Round, Step]) -> SearchTree:
    tree = SearchTree()
    for each in (SEED, *rounds):
        tree.add(*each) if isinstance(each, tuple) else tree.add(each)
    return tree


def step(parent: str, ratio: float | None = None, *, move: int = 1) -> Step:
    return Step(move=move, parent=parent, against_parent=interval(ratio) if ratio is not None else None)


def parents(move: Move | Stop) -> list[tuple[str, int]]:
    assert isinstance(move, Move), move
    return [(each.parent, each.num_proposals) for each in move.extensions]


def test_the_tree_ranks_what_was_measured_and_nothing_that_was_refused() -> None:
    tree = tree_of(record(1, 0.9), refused(2), record(3, 2.0, outcome=Outcome.ACCEPTED), record(4, 0.95))
    assert [node.id for node in tree.ranked()] == ["r3", "r4", "r0", "r1"]
    assert tree.nodes["r4"].log_gain == pytest.approx(math.log(2.0 * 0.95))
    assert tree.nodes["r4"].parent == "r3" and tree.nodes["r1"].parent == "r0"
    assert [node.id for node in tree.within_reach()] == ["r3", "r4"], "half as fast as the incumbent is out of reach"


def test_a_branch_counts_from_its_parent_until_it_met_the_incumbent() -> None:
    tree = tree_of(record(1, 0.9), (replace(record(2), decision=record(2).decision), step("r1", 1.2)))
    assert tree.nodes["r2"].log_gain == pytest.approx(math.log(0.9 * 1.2))
    assert tree.history("r1") == [0, 1, 2] and tree.history("r0") == [0, 1]
    assert [node.id for node in tree.path("r2")] == ["r0", "r1", "r2"]


def test_greedy_goes_straight_on_from_the_incumbent() -> None:
    policy = make_policy(Search(patience=2))
    for tree in (tree_of(), tree_of(record(1, 0.9)), tree_of(record(1, 1.5, outcome=Outcome.ACCEPTED))):
        move = policy.next_move(tree, num_rounds_left=4)
        assert parents(move) == [(tree.incumbent, 1)] and isinstance(move, Move) and move.why == ""


def test_at_a_plateau_greedy_tries_another_family_then_another_checkpoint_then_stops() -> None:
    policy, tree = make_policy(Search(patience=2)), tree_of(record(1, 0.9), record(2, 0.95))
    seen = []
    for number in range(3, 9):
        move = policy.next_move(tree, num_rounds_left=9)
        if isinstance(move, Stop):
            break
        (extension,) = move.extensions
        seen.append((extension.parent, extension.avoided))
        tree.pivots.append(move.why)
        tree.add(refused(number), step(extension.parent, move=number))
    assert seen == [("r0", ("card1", "card2"))] * 2 + [("r2", ())] * 2
    assert move == Stop(why="plateau: 2 rounds in a row without a gain, 2 pivots included")


def test_a_planner_without_cards_pivots_away_from_the_titles_that_lost() -> None:
    lost = [replace(record(number, 0.9), proposal=replace(proposal("fuse"), card="", title=f"fuse {number}"))
            for number in (1, 2)]  # fmt: skip
    move = make_policy(Search(patience=2)).next_move(tree_of(*lost), num_rounds_left=9)
    assert isinstance(move, Move) and move.why == "another family of ideas: r0"
    assert move.extensions[0].avoided == ("fuse 1", "fuse 2")


def test_a_pivot_upon_which_nothing_is_left_gives_way_to_the_next() -> None:
    policy, tree = make_policy(Search(patience=2)), tree_of(record(1, 0.9), record(2, 0.95))
    tree.exhausted.add(("r0", ("card1", "card2")))
    assert parents(policy.next_move(tree, num_rounds_left=9)) == [("r2", 1)]
    tree.exhausted.add(("r2", ()))
    assert policy.next_move(tree, num_rounds_left=9) == Stop(why="plateau: 2 rounds in a row without a gain")


def test_without_pivots_a_plateau_is_the_end_and_a_gain_starts_anew() -> None:
    policy = make_policy(Search(patience=2, pivots=0))
    assert isinstance(policy.next_move(tree_of(record(1, 0.9), record(2, 0.9)), num_rounds_left=9), Stop)
    tree = tree_of(record(1, 0.9), record(2, 1.5, outcome=Outcome.ACCEPTED), record(3, 0.9))
    assert parents(policy.next_move(tree, num_rounds_left=9)) == [("r2", 1)]


def test_nothing_left_upon_the_incumbent_and_nothing_lost_ends_it_without_words_of_its_own() -> None:
    tree = tree_of(record(1, 1.5, outcome=Outcome.ACCEPTED))
    tree.exhausted.add(("r1", ()))
    for policy in ("greedy", "beam", "random"):
        tree.exhausted.add(("r0", ()))
        assert make_policy(Search(policy=policy)).next_move(tree, num_rounds_left=9) == Stop(why="")


def test_beam_extends_the_incumbent_and_the_best_beside_it_within_the_rounds_that_are_left() -> None:
    policy = make_policy(Search(policy="beam", width=2, branching=2, patience=3))
    assert parents(policy.next_move(tree_of(), num_rounds_left=9)) == [("r0", 2)]
    tree = tree_of(record(1, 0.9), record(2, 0.95))
    assert parents(policy.next_move(tree, num_rounds_left=9)) == [("r0", 2), ("r2", 2)]
    assert parents(policy.next_move(tree, num_rounds_left=3)) == [("r0", 2), ("r2", 1)]
    assert parents(policy.next_move(tree, num_rounds_left=1)) == [("r0", 1)]


def test_beam_leaves_a_branch_whose_extensions_lost_and_one_that_is_out_of_reach() -> None:
    policy = make_policy(Search(policy="beam", width=2, branching=1, patience=9))
    tree = tree_of(record(1, 0.4), record(2, 0.9), record(3, 0.8))
    assert parents(policy.next_move(tree, num_rounds_left=9)) == [("r0", 1), ("r2", 1)]
    for number in (4, 5):
        tree.add(record(number), step("r2", 0.7, move=number))
    assert parents(policy.next_move(tree, num_rounds_left=9)) == [("r0", 1), ("r3", 1)]
    tree.exhausted.add(("r3", ()))
    assert "r1" not in dict(parents(policy.next_move(tree, num_rounds_left=9)))


def test_beam_counts_patience_in_moves() -> None:
    policy = make_policy(Search(policy="beam", patience=2))
    both = [(record(1, 0.9), step("r0", 0.9)), (record(2, 0.9), step("r0", 0.9))]
    assert isinstance(policy.next_move(tree_of(*both), num_rounds_left=9), Move)
    tree = tree_of(*both, (record(3, 0.9), step("r0", 0.9, move=2)))
    assert policy.next_move(tree, num_rounds_left=9) == Stop(why="plateau: 2 moves in a row without a gain")


def test_a_pareto_checkpoint_is_faster_than_the_incumbent_and_may_be_extended() -> None:
    tree = tree_of(record(1, 1.3))  # it broke a guard, so it was not accepted
    assert tree.nodes["r1"].is_pareto and tree.incumbent == "r0"
    policy = make_policy(Search(policy="beam", width=2, branching=1))
    assert parents(policy.next_move(tree, num_rounds_left=9)) == [("r0", 1), ("r1", 1)]


def test_the_control_arm_stays_at_the_incumbent_until_patience_ends() -> None:
    policy = make_policy(Search(policy="random", patience=1))
    assert policy.next_move(tree_of(), num_rounds_left=9) == Move(extensions=(Extension(parent="r0"),))
    assert policy.next_move(tree_of(record(1, 0.9)), num_rounds_left=9) == Stop(
        why="plateau: 1 rounds in a row without a gain"
    )


def test_an_unknown_policy_names_the_valid_ones() -> None:
    with pytest.raises(SpecError, match=r"search\.policy: unknown policy 'beem'\n  valid: greedy, beam, random"):
        make_policy(Search(policy="beem"))


# -- invariants

ROUNDS = (SEED, record(1, 2.0, outcome=Outcome.ACCEPTED), record(2, 0.9))


def held(**changes: object) -> Held:
    values: dict[str, object] = {
        "incumbent": "r1", "commit": "c1", "records": ROUNDS, "stored": {"c0", "c1", "c2"},
        "workspaces": {"r0": Path("w0"), "r1": Path("w1"), "r2": Path("w2")},
    }  # fmt: skip
    return Held(**{**values, **changes})  # type: ignore[arg-type]


def test_a_search_that_went_as_it_should_breaks_no_invariant() -> None:
    check_tree(tree_of(*ROUNDS[1:]), held())


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"incumbent": "r0", "commit": "c0"}, "the incumbent is r0, by the journal it is r1"),
        ({"stored": {"c0"}}, "the incumbent's commit c1 is not in the store"),
        ({"records": ROUNDS[:1]}, "no accepted round offered the incumbent r1"),
        ({"records": (SEED, replace(refused(1), outcome=Outcome.ACCEPTED, decision=ROUNDS[1].decision))},
         "the gates did not pass the incumbent r1"),
        ({"records": (SEED, replace(ROUNDS[1], decision=replace(ROUNDS[1].decision, headline=None)))},
         "r1 was accepted without a measurement beside the incumbent"),
        ({"records": (SEED, record(1, 3.0, outcome=Outcome.ACCEPTED))},
         "the gain of r1, 0.6931, is not the sum of the ratios, 1.0986"),
        ({"records": (*ROUNDS[:2], refused(2))}, "r2 was refused, and is ranked"),
        ({"workspaces": {"r1": Path("w1"), "r2": Path("w1")}}, "r1 and r2 share the workspace w1"),
    ],
)  # fmt: skip
def test_every_invariant_can_be_broken(changes: dict[str, object], text: str) -> None:
    with pytest.raises(BrokenInvariantError, match="the search's state contradicts itself") as caught:
        check_tree(tree_of(*ROUNDS[1:]), held(**changes))
    assert text in str(caught.value)
    assert str(caught.value).endswith("next: keep the run's folder and report it; the best checkpoint is certified")


def test_a_parent_that_comes_later_is_no_parent() -> None:
    tree = tree_of(*ROUNDS[1:])
    tree.nodes["r2"] = replace(tree.nodes["r2"], parent="r9")
    with pytest.raises(BrokenInvariantError, match="r2 started from r9, which is no checkpoint before it"):
        check_tree(tree, held())


# -- the graph


def test_the_graph_has_a_node_for_every_checkpoint_and_an_edge_to_its_parent() -> None:
    rounds = [
        {"record": to_data(SEED)}, {"record": to_data(record(1, 0.9))}, {"record": to_data(refused(2))},
        {"record": to_data(record(3, 1.5, outcome=Outcome.ACCEPTED)), "step": to_data(step("r1", 1.7))},
    ]  # fmt: skip
    graph = search_graph(rounds)
    assert [node.id for node in graph.nodes] == ["r0", "r1", "r3"]
    assert [(edge.parent, edge.child, edge.ratio) for edge in graph.edges] == [("r0", "r1", 0.9), ("r1", "r3", 1.7)]
    assert graph.edges[1].ci_low == pytest.approx(1.7 * 0.99)
    assert (graph.incumbent, graph.winning) == ("r3", ("r0", "r1", "r3"))
    assert search_graph([]).nodes == ()
