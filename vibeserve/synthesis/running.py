"""The outer loop: round 0, then moves of a policy until the goal, a plateau or the budget ends it. Resumes from the
journal."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace

from vibeserve.agents import PlannerAgent
from vibeserve.control import Phase, Steering
from vibeserve.errors import AgentCapError, AgentInfraError
from vibeserve.journal import Journal
from vibeserve.policies import BrokenInvariantError, Extension, Move, SearchPolicy, Stop, check_tree, make_policy
from vibeserve.policies.invariants import Held
from vibeserve.rounds import Team
from vibeserve.seeds import Seed
from vibeserve.skills import TargetFacts, applicable
from vibeserve.spec import SeedSearch
from vibeserve.steered import look
from vibeserve.synthesis.goals import why_goals_are_met
from vibeserve.synthesis.moves import Mover
from vibeserve.synthesis.round0 import SEEDED, first_that_passes
from vibeserve.synthesis.search import SEARCH_ENDED, Search, keep_round, restore

SEED_DISCOUNT = 0.8


def synthesize(
    team: Team, *, seed: Seed, planner: PlannerAgent, facts: TargetFacts, journal: Journal, deadline_s: float,
    monotonic: Callable[[], float] = time.monotonic, steering: Steering | None = None,
    fallbacks: Sequence[Seed] = (),
) -> Search:  # fmt: skip
    """Search until nothing promises a gain, patience or rounds are spent, or `deadline_s` (of `monotonic`) comes near.

    `steering` brings what people ask of the run; without one it comes from the folder beside the journal. Every
    finished round is in `journal`; started again, the search goes on after the last of them. A state that contradicts
    itself ends it, with `fault` and the best checkpoint that there is. A seed that does not pass the gates is replaced
    by the first of `fallbacks` that does. Raises RefusedError when none is left: then nothing can be compared.
    """
    search = restore(team, journal)
    if search.fault:
        team.progress.event("synthesize", search.fault.splitlines()[0])
        return search
    steering = steering or Steering(journal, spec=team.bench.plan.spec, progress=team.progress)
    if search.entries:
        team.progress.event("synthesize", f"resumed after round {search.entries[-1].record.number}")
        steering.book.settle(search.entries[-1].record)  # where it was killed between the two
    if search.incumbent is None:
        keep_round(team, search, journal, first_that_passes(team, (seed, *fallbacks), journal=journal))
    _leave_out_components(team, search)
    mover = Mover(team=team, search=search, journal=journal, planner=planner, facts=facts, steering=steering)
    loop = _Loop(mover, make_policy(team.bench.plan.spec.search), deadline_s=deadline_s, monotonic=monotonic)
    try:
        loop.check()
        steering.announce(mover.state_at_incumbent())
        loop.run()
    except BrokenInvariantError as error:
        _end_broken(mover, error)
    return search


class _Loop:
    def __init__(
        self, mover: Mover, policy: SearchPolicy, *, deadline_s: float, monotonic: Callable[[], float]
    ) -> None:
        self._mover = mover
        self._policy = policy
        self._deadline_s = deadline_s
        self._monotonic = monotonic
        mover.why_halted, mover.check = self._why_halted, self.check

    def run(self) -> None:
        search, steering, team = self._mover.search, self._mover.steering, self._mover.team
        while True:
            asked = len(steering.state.handled)
            look(
                team, steering, phase=Phase.PROPOSAL, number=len(search.entries) - 1,
                state=self._mover.state_at_incumbent(),
            )  # fmt: skip
            if len(steering.state.handled) > asked:
                search.tree.exhausted.clear()  # what was ruled out may be allowed now
            self.check()
            if len(search.entries) > steering.spec.budget.rounds:
                return
            stop = self._next()
            if stop and (steering.state.stopped or not steering.is_asked()):
                self._mover.journal.append(SEARCH_ENDED, {"why": stop}, durable=False)
                team.progress.event("synthesize", stop)
                return

    def check(self) -> None:
        """Raise BrokenInvariantError where the state contradicts itself."""
        search, team = self._mover.search, self._mover.team
        assert search.incumbent is not None
        check_tree(
            search.tree,
            Held(
                incumbent=search.incumbent.candidate.candidate_id, commit=search.incumbent.candidate.commit,
                records=[entry.record for entry in search.entries], stored=set(team.store.refs(team.run_id).values()),
                workspaces={name: checkpoint.workspace for name, checkpoint in search.checkpoints.items()},
            ),
        )  # fmt: skip

    def _next(self) -> str:
        """One more move; or why there is none."""
        mover = self._mover
        is_queued = mover.steering.next_proposal(mover.state_at_incumbent()) is not None
        stop = self._why_halted() or ("" if is_queued else self._why_content())
        if stop:
            return stop
        try:
            if mover.search.pending is not None:
                return mover.carry_out(mover.search.pending)
            return self._new_move(is_queued=is_queued)
        except (AgentCapError, AgentInfraError) as error:
            if isinstance(error, AgentInfraError) and error.is_lasting:
                raise
            mover.steering.book.release(number=len(mover.search.entries) - 1)
            return f"budget: {str(error).splitlines()[0]}"

    def _new_move(self, *, is_queued: bool) -> str:
        mover, tree = self._mover, self._mover.search.tree
        left = mover.steering.spec.budget.rounds - (len(mover.search.entries) - 1)
        while True:
            move: Move | Stop = Move(extensions=(Extension(parent=tree.incumbent),))
            if not is_queued:
                move = self._policy.next_move(tree, num_rounds_left=left)
            if isinstance(move, Stop):
                return move.why or mover.seated.why_stopped or _why_no_proposal(mover)
            planned = mover.planned(move, has_branches=self._policy.has_branches)
            if planned is not None:
                return mover.carry_out(planned)
            if mover.seated.why_stopped and not self._policy.has_branches:
                return mover.seated.why_stopped

    def _why_halted(self) -> str:
        """A person stops it, or time for a further round is over."""
        mover = self._mover
        remaining_s = self._deadline_s + mover.steering.wall_added_s - self._monotonic()
        return mover.steering.state.stopped or _why_stop(mover, remaining_s=remaining_s)

    def _why_content(self) -> str:
        """The seed is good as it is, or every goal is met, where that ends the search."""
        mover = self._mover
        if why := _why_reused(mover):
            return why
        if not mover.team.bench.plan.spec.search.stop_at_goal:
            return ""
        return why_goals_are_met(mover.team, mover.search)


def _why_reused(mover: Mover) -> str:
    """Why nothing is searched: the seed's own runtime passes, and that was all that was asked."""
    seeded = mover.journal.last(SEEDED)
    is_enough = mover.team.bench.plan.spec.seed.search is SeedSearch.if_refused
    if not is_enough or seeded is None or seeded.data["position"] > 0:
        return ""
    return f"reused: {seeded.data['origin']} passes every gate as it is, so nothing is searched"


def _leave_out_components(team: Team, search: Search) -> None:
    """What no scaffold was the base of cannot be put together from components: they would replace it."""
    first = search.entries[0].checkpoint
    if first is not None and first.assembled.is_edited and not first.assembled.components:
        team.skills = [replace(skill, card=None) for skill in team.skills]


def _end_broken(mover: Mover, error: BrokenInvariantError) -> None:
    """What can still be certified is named in the journal: the last accepted candidate whose commit is there."""
    search, team = mover.search, mover.team
    stored = set(team.store.refs(team.run_id).values())
    kept = [entry.checkpoint for entry in search.entries if entry.checkpoint is not None]
    whole = [checkpoint for checkpoint in kept if checkpoint.candidate.commit in stored]
    if not whole:
        raise error
    search.incumbent, search.fault = whole[-1], str(error)
    name = search.incumbent.candidate.candidate_id
    mover.journal.append(SEARCH_ENDED, {"why": search.fault, "incumbent": name})
    team.progress.event("synthesize", f"{search.fault.splitlines()[0]}; {name} is certified")


def _why_no_proposal(mover: Mover) -> str:
    cards = [skill.card for skill in mover.team.skills if skill.card is not None]
    if any(applicable(card, facts=mover.facts) is None for card in cards):
        return "no card that is left promises a gain"
    return "nothing applicable: no card fits this target; the seed goes on as it is"


def _why_stop(mover: Mover, *, remaining_s: float) -> str:
    """Empty, or why there is no time for a further round."""
    spec, search = mover.team.bench.plan.spec, mover.search
    device_s = sum(entry.spent.get("windows", 0.0) for entry in search.entries)
    if 0 < spec.budget.device_s <= device_s:
        return f"budget: {device_s:.0f} s of measuring, budget.device_s is {spec.budget.device_s:g}"
    needed_s = _round_estimate_s(search)
    if remaining_s < needed_s:
        left = f"{max(0.0, remaining_s):.0f} s are left before certification"
        return f"budget: {left} and a round takes about {needed_s:.0f} s"
    return ""


def _round_estimate_s(search: Search) -> float:
    """The longest round so far; round 0 alone is discounted, because it waits for the slow seed's replies."""
    later = [entry.record.seconds for entry in search.entries if entry.record.number > 0]
    return max(later) if later else SEED_DISCOUNT * sum(entry.record.seconds for entry in search.entries)
