"""One run's folder with scripted roles, for tests of planning state and steering: what people ask arrives as files."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from loop_fakes import LIMIT, Library, LibrarySeed, facts, make_team, small_spec

from vibeserve.agents import Agents, PlanningState
from vibeserve.agents.playbook import PlaybookPlanner
from vibeserve.control import CONTROL, Handled, Request, Steering, handled_of, submit
from vibeserve.core.nouns import Proposal
from vibeserve.journal import Event, Journal, read_events
from vibeserve.planning import Backlog, backlog_of
from vibeserve.spec import Spec
from vibeserve.synthesis import Search, synthesize

CARDS = {"first": "linear", "second": "attention", "third": "scheduler"}
FACTORS = {"first": 4.0, "second": 3.0, "third": 2.0}


DOCUMENT: dict[str, Any] = {
    "title": "adopt third at once", "hypothesis": "the scheduler waits for nothing",
    "mechanism": "rows of several requests share a step", "activation_evidence": "queue shrinks",
    "falsification": "the interval includes 1", "forecast_ratio": 1.5, "invariants": [], "skills": [],
    "components": ["third"], "parameters": [{"name": "third_block", "value": 16}], "what_changed": "",
}  # fmt: skip
"""a person's proposal"""


class Killed(BaseException):
    """Ends the process, as a signal would."""


@dataclass
class Scripted:
    """A planner that proposes from a list, then stops. What it was given is in `states`."""

    proposals: list[Proposal]
    why_stopped: str = "nothing is left on the list"
    states: list[PlanningState] = field(default_factory=list)

    def propose(self, state: PlanningState) -> Proposal | None:
        self.states.append(state)
        return self.proposals.pop(0) if self.proposals else None


@dataclass
class Rig:
    """A library of three cards, each with a parameter. `start` is what a command does: open the journal and search.

    `when` maps a place of the search to what happens there: `before r1`, `in r1a1` (while it is measured), `asleep` (in
    a pause). A place is used up.
    """

    root: Path
    spec: Spec = field(default_factory=lambda: small_spec(rounds=3, attempts=2))
    planner: Any = field(default_factory=PlaybookPlanner)
    when: dict[str, Callable[[], Any]] = field(default_factory=dict)
    prepare: Callable[[Any], None] = lambda team: None
    rebuild: Callable[[Spec], Agents] | None = None
    wall_s: float = 10.0
    num_naps: int = 0

    def __post_init__(self) -> None:
        self.library = Library(self.root / "library")
        for name, seam in CARDS.items():
            self.library.add(
                name, seams=(seam,), relieves=["prefill"], expected_factor=FACTORS[name],
                parameters={f"{name}_block": LIMIT},
            )  # fmt: skip
        self.team: Any = None
        self.steering: Any = None

    @property
    def journal(self) -> Path:
        return self.root / "journal.jsonl"

    def happen(self, place: str) -> None:
        happening = self.when.pop(place, None)
        if happening is not None:
            happening()

    def start(self) -> Search:
        self.team = make_team(self.library, self.root / "run", spec=self.spec)
        self.prepare(self.team)
        with Journal.open(self.journal) as journal:
            self.steering = Steering(
                journal, spec=self.spec, progress=self.team.progress, aside=self.team.bench.lease.aside,
                wall_spent_s=lambda: self.wall_s, sleep=self._sleep,
            )  # fmt: skip
            self.steering.rebuild = self.rebuild
            self._watch()
            return synthesize(
                self.team, seed=LibrarySeed(self.library), planner=self.planner, facts=facts(), journal=journal,
                deadline_s=1e6, monotonic=lambda: 0.0, steering=self.steering,
            )  # fmt: skip

    def _watch(self) -> None:
        compare, safe_point = self.team.evaluator.compare, self.steering.safe_point

        def comparing(entrants: Sequence[Any], **settings: Any) -> Any:
            number, _, attempt = entrants[0].name.removeprefix("r").partition("a")
            self.happen(f"in r{int(number)}a{attempt}")
            return compare(entrants, **settings)

        def looking(site: Any) -> None:
            if site.phase.value == "proposal":
                self.happen(f"before r{site.round + 1}")
            safe_point(site)

        self.team.evaluator.compare = comparing
        self.steering.safe_point = looking

    def _sleep(self, seconds: float) -> None:
        self.num_naps += 1
        assert self.num_naps < 50, "nobody ends the pause"
        self.happen("asleep")

    def ask(self, command: str, **arguments: Any) -> Request:
        """Somebody puts a request into the run's folder."""
        return submit(self.root / CONTROL, command=command, arguments=arguments, who="person ada")

    def asking(self, command: str, **arguments: Any) -> Callable[[], Request]:
        return lambda: self.ask(command, **arguments)

    def events(self) -> list[Event]:
        return read_events(self.journal)

    def handled(self) -> list[Handled]:
        return handled_of(self.events())

    def answers(self) -> list[tuple[str, str]]:
        """(command, `refused: why` or the effect) of every request, as journalled."""
        handled = self.handled()
        return [(done.command, f"refused: {done.refused}" if done.refused else done.effect) for done in handled]

    def backlog(self) -> Backlog:
        return backlog_of(self.events())

    def items(self) -> dict[str, str]:
        return {item.title: item.state.value for item in self.backlog().of()}

    def told(self, stage: str) -> list[str]:
        return [text for each, text in self.team.progress.events if each == stage]


def outcomes(search: Search) -> list[str]:
    return [entry.record.outcome.value for entry in search.entries]


def cards(search: Search) -> list[str]:
    return [entry.record.proposal.card for entry in search.entries if entry.record.proposal]
