"""The owner's side of steering: at a safe point every request that waits is carried out or refused, in the order of the
numbers, and journalled with its effect.

What holds is a fold over the journal. A kill after an event was appended loses nothing; one before it leaves the
request waiting, and an edit of the planning state that was journalled already is known by the request's number. So
nothing is carried out twice.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path

from vibeserve.agents import Agents, PlanningState
from vibeserve.agents.team import SPEND
from vibeserve.control.effects import Desk, Effect, RequestRefusedError, SpentSoFar, carry_out
from vibeserve.control.offer import announce, offer_in, offer_of
from vibeserve.control.proposals import persons_proposal
from vibeserve.control.requests import CONTROL, Request, waiting
from vibeserve.control.shapes import BEFORE_THE_SEARCH, shape_problem, told
from vibeserve.control.site import Phase, Site
from vibeserve.control.state import CONTROL_EVENT, Handled, SteeringState, steered_spec, steering_of
from vibeserve.core.nouns import Proposal
from vibeserve.core.signals import stop_if_asked
from vibeserve.journal import Journal
from vibeserve.planning import ItemState, PlanningBook
from vibeserve.progress import Progress, QuietProgress
from vibeserve.spec import Spec

POLL_S = 0.5
WAITING = (ItemState.OPEN, ItemState.IN_PROGRESS)


class Steering:
    """Requests of one run. `book` is its planning state."""

    def __init__(
        self, journal: Journal, *, spec: Spec, progress: Progress | None = None,
        aside: Callable[[], AbstractContextManager[None]] = contextlib.nullcontext,
        wall_spent_s: Callable[[], float] = lambda: 0.0, sleep: Callable[[float], None] = time.sleep,
    ) -> None:  # fmt: skip
        self.folder: Path = journal.path.parent / CONTROL
        self.book = PlanningBook(journal)
        self.state: SteeringState = steering_of(journal.events())
        self.agents: Agents | None = None
        """after a back end or a cap was changed in this process: those that hold now"""
        self.rebuild: Callable[[Spec], Agents] | None = None
        """makes the agents of a spec; None where there are none to make anew"""
        self.journal = journal
        self._declared = spec
        self._progress = progress or QuietProgress()
        self._aside = aside
        self._wall_spent_s = wall_spent_s
        self._sleep = sleep

    @property
    def spec(self) -> Spec:
        """As declared, with the budget and the back ends that hold now."""
        return steered_spec(self._declared, self.state)

    @property
    def wall_added_s(self) -> float:
        """Seconds by which the declared wall time was raised; below 0 where it was lowered."""
        return self.spec.budget.wall_s - self._declared.budget.wall_s

    def steered(self, state: PlanningState) -> PlanningState:
        """`state` with the pins and constraints that hold now, and the planning state as it is."""
        return replace(
            state, pins={**self._declared.search.pins, **self.state.pins}, constraints=self.state.constraints,
            backlog=self.book.backlog, memory=self.book.memory,
        )  # fmt: skip

    def announce(self, state: PlanningState) -> None:
        """Journal what requests may name, for those who make them."""
        announce(self.journal, offer_of(skills=state.skills, scaffold=state.scaffold, facts=state.facts))

    def is_asked(self) -> bool:
        """A request waits that nobody has looked at."""
        return bool(waiting(self.folder, handled=self.state.handled))

    def safe_point(self, site: Site) -> None:
        """Handle what waits, before the search only what does not speak of it; while the run is paused, wait for more.
        A pause holds no device and uses up no time.

        KeyboardInterrupt, where no attempt is under way, when a SIGINT asked for an end.
        """
        self._handle_waiting(site)
        if site.phase is not Phase.ATTEMPT:
            stop_if_asked()  # between two attempts the round is under way
        if not self.state.paused:
            return
        self._progress.event("control", f"paused by {self.state.paused}; `vibeserve steer resume` goes on")
        with self._aside():
            while self.state.paused:
                self._sleep(POLL_S)
                stop_if_asked()
                self._handle_waiting(site)
        self._progress.event("control", self.state.stopped or "goes on")

    def next_proposal(self, state: PlanningState) -> tuple[Proposal, str] | None:
        """The next proposal of a person that was not tried yet, with its item in the backlog."""
        for queued in self.state.queue:
            item = self.book.backlog.items.get(queued.item)
            if item is not None and item.state in WAITING:
                return persons_proposal(queued.document, number=queued.number, state=state), queued.item
        return None

    def veto_of(self, item: str) -> str:
        """Why an item that a round tries is to be dropped; empty = it is not."""
        found = self.book.backlog.items.get(item)
        if found is None or found.state is not ItemState.ABANDONED:
            return ""
        return f"vetoed by {found.last.who}" + (f": {found.last.why}" if found.last.why else "")

    def _handle_waiting(self, site: Site) -> None:
        for request, fault in waiting(self.folder, handled=self.state.handled):
            if fault or site.phase is not Phase.BUILD or request.command in BEFORE_THE_SEARCH:
                self.handle(request, site, fault=fault)

    def handle(self, request: Request, site: Site, *, fault: str = "") -> Handled:
        """Carry out one request, or refuse it, and journal which."""
        done = Handled(
            number=request.number, command=request.command, arguments=request.arguments, who=request.who,
            at_s=request.at_s, phase=site.phase.value, round=site.round,
        )  # fmt: skip
        try:
            effect = self._carry_out(request, site, fault=fault)
            done = replace(done, effect=effect.text, item=effect.item)
        except RequestRefusedError as error:
            done = replace(done, refused=str(error))
        self.journal.append(CONTROL_EVENT, done)
        self.state.take(done)
        outcome = f"refused: {done.refused}" if done.refused else done.effect
        self._progress.event(
            "control", f"{done.number}: {told(done.command, done.arguments)}: {outcome}", number=done.number,
            command=done.command, is_refused=bool(done.refused),
        )  # fmt: skip
        return done

    def _carry_out(self, request: Request, site: Site, *, fault: str) -> Effect:
        problem = fault or shape_problem(request.command, request.arguments) or self._foreign(request)
        if problem:
            raise RequestRefusedError(problem)
        desk = Desk(
            book=self.book, steering=self.state, declared=self._declared, spent=self._spent(site),
            try_agents=self._try_agents,
        )  # fmt: skip
        # what an earlier request of the same safe point changed holds for this one
        state = None if site.state is None else self.steered(site.state)
        return carry_out(request, replace(site, state=state), desk)

    def _foreign(self, request: Request) -> str:
        offer = offer_in(self.journal.events())
        return "" if offer is None else "; ".join(offer.problems(request.command, request.arguments))

    def _try_agents(self, spec: Spec) -> None:
        """Make the agents of `spec`; what they raise says why they cannot be had."""
        if self.rebuild is not None:
            self.agents = self.rebuild(spec)

    def _spent(self, site: Site) -> SpentSoFar:
        spends = [event.data for event in self.journal.events(SPEND)]
        return SpentSoFar(
            rounds=site.round, wall_s=self._wall_spent_s(), usd=sum(row["usd"] or 0.0 for row in spends),
            tokens=sum(row["usage"]["input_tokens"] + row["usage"]["output_tokens"] for row in spends),
        )  # fmt: skip
