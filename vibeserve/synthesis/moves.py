"""One move of a search: proposals for its branches, made ready at once, carried out one after the other."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from vibeserve.agents import PlannerAgent, PlanningState
from vibeserve.control import Phase, Steering
from vibeserve.core.documents import to_data
from vibeserve.core.nouns import Outcome, Proposal, Refusal, Round, Verdict
from vibeserve.errors import RefusedError
from vibeserve.journal import Journal
from vibeserve.policies import Extension, Move, Step
from vibeserve.rounds import (
    Ground,
    Prepared,
    RoundResult,
    Team,
    fresh_workspace,
    given_for,
    keep_patch,
    prepare,
    run_round,
    tried_folder,
)
from vibeserve.rounds.telling import proposal_facts
from vibeserve.skills import TargetFacts
from vibeserve.steered import choose, keys_of_round, look, why_round_ends
from vibeserve.synthesis.search import MOVE, PlannedMove, PlannedRound, Search, at_hand, keep_round
from vibeserve.synthesis.views import history_at


@dataclass(kw_only=True)
class Mover:
    """Plans and carries out the moves of one search."""

    team: Team
    search: Search
    journal: Journal
    planner: PlannerAgent
    facts: TargetFacts
    steering: Steering
    why_halted: Callable[[], str] = lambda: ""
    """asked before every further round of a move"""
    check: Callable[[], None] = lambda: None
    """raises, before every further round of a move, where the state contradicts itself"""

    @property
    def seated(self) -> PlannerAgent:
        """The planner that holds now."""
        return self.steering.agents.planner if self.steering.agents else self.planner

    def state_at_incumbent(self) -> PlanningState:
        """All that a planner may know, with what people have said."""
        return self.state(self.search.tree.incumbent, number=len(self.search.entries))

    def state(
        self, parent: str, *, number: int, avoided: tuple[str, ...] = (), has_branches: bool = False,
        beside: Sequence[Proposal] = (),
    ) -> PlanningState:  # fmt: skip
        """The same at any checkpoint. On a branch the records are the branch's own, and what was tried elsewhere, or
        is about to be (`beside`), is not to be proposed again."""
        team, records = self.team, [entry.record for entry in self.search.entries]
        checkpoint = at_hand(team, self.search, parent)
        own, elsewhere = history_at(self.search.tree, records, parent=parent, has_branches=has_branches)
        state = PlanningState(
            facts=self.facts, scaffold=team.scaffold, skills=team.skills, incumbent=checkpoint.assembled,
            spans=checkpoint.spans, profile=checkpoint.profile, workspace=checkpoint.workspace,
            tried=tried_folder(team), records=own, min_effect=team.bench.plan.spec.evaluation.min_effect,
            number=number, avoided=avoided, elsewhere=(*elsewhere, *beside),
        )  # fmt: skip
        return self.steering.steered(state)

    def planned(self, move: Move, *, has_branches: bool) -> PlannedMove | None:
        """Proposals for every extension; None where there is none. What was chosen is in progress from here on."""
        rounds: list[PlannedRound] = []
        for extension in move.extensions:
            num_before = len(rounds)
            for _ in range(extension.num_proposals):
                one = self._planned_round(extension, beside=rounds, has_branches=has_branches)
                if one is None:
                    break
                rounds.append(one)
            if len(rounds) == num_before:
                self.search.tree.exhausted.add((extension.parent, extension.avoided))
        number = self.search.tree.num_moves + 1
        return PlannedMove(number=number, why=move.why, rounds=tuple(rounds)) if rounds else None

    def _planned_round(
        self, extension: Extension, *, beside: Sequence[PlannedRound], has_branches: bool
    ) -> PlannedRound | None:
        first, parent = len(self.search.entries), extension.parent
        number = first + len(beside)
        state = self.state(
            parent, number=number, avoided=extension.avoided, has_branches=has_branches,
            beside=[each.proposal for each in beside if each.proposal is not None],
        )  # fmt: skip
        # a person's proposal is for the incumbent, one a move
        takes_queued = parent == self.search.tree.incumbent and all(each.parent != parent for each in beside)
        queued = self.steering.next_proposal(state) if takes_queued else None
        try:
            choice = choose(
                self.seated, state, self.steering, number=number, queued=queued, beside=range(first, number)
            )
        except RefusedError as error:
            return PlannedRound(number=number, parent=parent, refused=without_candidate(error, number=number))
        if choice is None:
            return None
        refused = choice.refused
        record = without_candidate(refused, number=number, proposal=choice.proposal) if refused is not None else None
        return PlannedRound(number=number, parent=parent, item=choice.item, proposal=choice.proposal, refused=record)

    def carry_out(self, move: PlannedMove) -> str:
        """The rounds of a move that are not there yet, in order; why it ended before its last one.

        A new incumbent ends the move: what was made ready beside it and not measured yet would be measured against a
        checkpoint that is outdated, so it is planned anew. Its patch is kept for agents to build upon.
        """
        if move.is_journalled and self.search.pending is not move:
            self.journal.append(MOVE, to_data(move))
            self.search.plan(move)
        if move.why:
            self.team.progress.event("synthesize", f"move {move.number}: {move.why}")
        waiting = [each for each in move.rounds if each.number >= len(self.search.entries)]
        if self._is_overtaken(move):
            waiting = []  # killed between the round that was accepted and the next plan
        prepared = self._prepared(waiting) if len(waiting) > 1 else {}
        for position, each in enumerate(waiting):
            if self._is_overtaken(move):
                self._set_aside(waiting[position:], prepared)
                break
            if position:
                self.check()
                look(
                    self.team, self.steering, phase=Phase.PROPOSAL, number=each.number - 1,
                    state=self.state_at_incumbent(),
                )  # fmt: skip
                stop = self.why_halted()
                if stop:
                    self.steering.book.release(number=each.number - 1)
                    return stop
            self._carry_out_round(each, move, prepared=prepared.get(each.number))
        self.search.pending = None
        return ""

    def _is_overtaken(self, move: PlannedMove) -> bool:
        """One of its rounds was accepted."""
        first = move.rounds[0].number
        return any(entry.checkpoint is not None for entry in self.search.entries if entry.record.number >= first)

    def _set_aside(self, rounds: Sequence[PlannedRound], prepared: dict[int, Prepared]) -> None:
        last = self.search.entries[-1].record.number
        self.team.progress.event("synthesize", f"round {last} is the new incumbent; {len(rounds)} rounds planned anew")
        self.steering.book.release(number=last)
        if not self.team.implementer.origin:
            return  # it is assembled again for nothing
        for each in rounds:
            ready = prepared.get(each.number)
            if ready is not None and ready.offered is not None:
                parent = self.search.checkpoints[each.parent]
                keep_patch(self.team, ready.offered.candidate, parent=parent, name=f"unmeasured-{each.number}-{last}")

    def _prepared(self, rounds: Sequence[PlannedRound]) -> dict[int, Prepared]:
        """First attempts by round, made ready at once. What tunes needs the device, and waits for its turn."""
        able = [each for each in rounds if each.refused is None and each.proposal and not each.proposal.variants]
        if not able:
            return {}
        self.team.pins = dict(self.state_at_incumbent().pins)
        records = [entry.record for entry in self.search.entries]
        with ThreadPoolExecutor(max(1, min(len(able), len(self.team.bench.plan.engine_cpus)))) as pool:
            futures = {}
            for each in able:
                assert each.proposal is not None
                parent = at_hand(self.team, self.search, each.parent)
                given = given_for(self.team, number=each.number, parent=parent, records=records)
                fresh_workspace(self.team, given.workspace.name)
                futures[each.number] = pool.submit(prepare, self.team, each.proposal, given=given)
        return {number: future.result() for number, future in futures.items()}

    def _carry_out_round(self, planned: PlannedRound, move: PlannedMove, *, prepared: Prepared | None) -> None:
        number, proposal = planned.number, planned.proposal
        vetoed = self.steering.veto_of(planned.item)
        if planned.refused is not None or vetoed:
            record = planned.refused or _vetoed(planned, vetoed)
            self._keep(RoundResult(record=record), planned, move)
            return
        assert proposal is not None
        text = f"{proposal.title}: {proposal.hypothesis}; forecast x{proposal.forecast_ratio:g}"
        self.team.progress.event(f"round {number}", text, **proposal_facts(proposal))
        is_branch = move.is_journalled
        state = self.state(planned.parent, number=number, has_branches=is_branch)
        self.team.pins = dict(state.pins)
        result = run_round(
            self.team, proposal, number=number, ground=self._ground(planned.parent), state=state, prepared=prepared,
            why_ends=lambda record: why_round_ends(self.team, self.steering, record, item=planned.item, state=state),
        )  # fmt: skip
        try:
            self._keep(result, planned, move)
        finally:
            if len(self.search.entries) > number:
                self.steering.book.settle(result.record, keys=keys_of_round(result.record, state))

    def _ground(self, parent: str) -> Ground:
        search, tree = self.search, self.search.tree
        return Ground(
            parent=at_hand(self.team, search, parent), incumbent=at_hand(self.team, search, tree.incumbent),
            seed_floor=search.noise_floor, lead=tree.best_gain - tree.nodes[parent].log_gain,
        )  # fmt: skip

    def _keep(self, result: RoundResult, planned: PlannedRound, move: PlannedMove) -> None:
        step = None
        if move.is_journalled:
            against = result.against_parent
            decision = result.record.decision
            if against is None and decision is not None and planned.parent == self.search.tree.incumbent:
                against = decision.headline
            step = Step(move=move.number, parent=planned.parent, against_parent=against)
        keep_round(self.team, self.search, self.journal, result, step=step)


def without_candidate(error: RefusedError, *, number: int, proposal: Proposal | None = None) -> Round:
    """A planner's answer that could not be used, or may not be tried: a round of its own, so that patience ends it."""
    refusals = tuple(reason for reason in error.reasons if isinstance(reason, Refusal))
    checks = tuple(sorted({refusal.gate for refusal in refusals})) or ("agent",)
    return Round(
        number=number, proposal=proposal, candidate=None, outcome=Outcome.REJECTED, reason=str(error).splitlines()[0],
        verdict=Verdict(refusals=refusals, checks=checks), attempts=0,
    )  # fmt: skip


def _vetoed(planned: PlannedRound, why: str) -> Round:
    refusal = Refusal(gate="planning", reason_class="vetoed", text=why)
    error = RefusedError(f"{planned.proposal.title if planned.proposal else 'nothing'}: {why}", reasons=[refusal])
    return without_candidate(error, number=planned.number, proposal=planned.proposal)
