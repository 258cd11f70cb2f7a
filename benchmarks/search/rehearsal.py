"""One simulated search: the product's policy, planner and decision; true ratios from a landscape, noise from A/A runs.

What is not simulated: gates (every candidate passes), guards, time, crashes. The budget is in comparisons: one is a
candidate beside one checkpoint, at the level's number of pairs. A challenge of the incumbent is another one, and
successive halving over settings costs the share of one that its windows take.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from benchmarks.search.grid import Setting
from benchmarks.search.landscapes import Surface
from vibeserve.agents import Assembled, PlannerAgent, PlanningState
from vibeserve.benchmark import decide, noise_floor
from vibeserve.core.nouns import METRICS, Candidate, Decision, Outcome, Proposal, Round, Verdict
from vibeserve.planning import FRAMEWORK, Backlog
from vibeserve.planning.backlog import Change
from vibeserve.planning.likeness import keys_of
from vibeserve.planning.settling import settled
from vibeserve.policies import Extension, Move, SearchPolicy, SearchTree, Step, Stop
from vibeserve.rounds.measuring import is_challenger
from vibeserve.synthesis.views import history_at

if TYPE_CHECKING:
    import numpy as np

METRIC = METRICS["output_throughput"]
NUM_RESAMPLES = 200
"""of each bootstrap in the simulation; the product's own number takes ten times longer"""
PASSED = Verdict(checks=("simulated",))
SEED_ID = "r00a1"
_SEED_RANGE = 2**31


@dataclass(frozen=True, kw_only=True)
class Rules:
    """What every search of a study shares."""

    setting: Setting
    noise: Sequence[Sequence[float]]
    """A/A log-ratios: a row for each pair of fresh starts"""
    num_pairs: int
    min_effect: float
    budget: int
    """comparisons after round 0"""


@dataclass(kw_only=True)
class Rehearsal:
    rules: Rules
    surface: Surface
    policy: SearchPolicy
    planner: PlannerAgent
    draw: np.random.Generator
    tree: SearchTree = field(default_factory=SearchTree)
    records: list[Round] = field(default_factory=list)
    assembled: dict[str, Assembled] = field(default_factory=lambda: {SEED_ID: Assembled()})
    backlog: Backlog = field(default_factory=Backlog)
    spent: float = 0.0
    curve: list[tuple[float, float]] = field(default_factory=list)
    """(comparisons, true ratio of the incumbent) after every round"""

    def run(self) -> float:
        """True ratio of what the search ends with, over the seed."""
        decision = Decision(accepted=True, reason="round 0", headline=None, noise_floor=self._floor())
        seed = Candidate(candidate_id=SEED_ID, commit=SEED_ID, workspace="", origin="scaffold")
        self._count(_record(0, None, seed, outcome=Outcome.BASELINE, decision=decision), None)
        while self.rules.budget - self.spent >= 1:
            move = self.policy.next_move(self.tree, num_rounds_left=int(self.rules.budget - self.spent))
            if isinstance(move, Stop):
                break
            self._carry_out(move)
        return math.exp(self.surface.log_ratio(self._incumbent))

    @property
    def _incumbent(self) -> Assembled:
        return self.assembled[self.tree.incumbent]

    def _carry_out(self, move: Move) -> None:
        planned: list[tuple[Extension, Proposal]] = []
        for extension in move.extensions:
            num_before = len(planned)
            for _ in range(extension.num_proposals):
                proposal = self.planner.propose(self._state(extension, beside=[each for _, each in planned]))
                if proposal is None:
                    break
                planned.append((extension, proposal))
            if len(planned) == num_before:
                self.tree.exhausted.add((extension.parent, extension.avoided))
        if move.why and planned:
            self.tree.pivots.append(move.why)
        number, incumbent = self.tree.num_moves + 1, self.tree.incumbent
        for extension, proposal in planned:
            # a new incumbent ends the move, as in the product
            if self.rules.budget - self.spent >= 1 and self.tree.incumbent == incumbent:
                self._round(proposal, parent=extension.parent, move=number if move.why else 0)

    def _state(self, extension: Extension, *, beside: Sequence[Proposal]) -> PlanningState:
        parent, setting = extension.parent, self.rules.setting
        own, elsewhere = history_at(self.tree, self.records, parent=parent, has_branches=self.policy.has_branches)
        assembled = self.assembled[parent]
        return PlanningState(
            facts=setting.facts, scaffold=setting.scaffold, skills=setting.skills, incumbent=assembled,
            spans=self.surface.spans(assembled), records=own, min_effect=self.rules.min_effect, backlog=self.backlog,
            number=len(self.records) + len(beside), elsewhere=(*elsewhere, *beside), avoided=extension.avoided,
        )  # fmt: skip

    def _round(self, proposal: Proposal, *, parent: str, move: int) -> None:
        number = len(self.records)
        if proposal.variants:
            proposal = self._halved(proposal)
        name = f"r{number:02d}a1"
        offered = Assembled(components=proposal.components, parameters=dict(proposal.parameters))
        self.assembled[name] = offered
        candidate = Candidate(candidate_id=name, commit=name, workspace="", origin="simulated")
        decision = self._compared(offered, self.assembled[parent])
        against = decision.headline
        if parent != self.tree.incumbent:
            lead = self.tree.best_gain - self.tree.nodes[parent].log_gain
            if is_challenger(decision, lead=lead):
                decision = self._compared(offered, self._incumbent)
            else:
                decision = replace(decision, accepted=False, reason=f"branch: {decision.reason}", headline=None)
        outcome = Outcome.ACCEPTED if decision.accepted else Outcome.REJECTED
        record = _record(number, proposal, candidate, outcome=outcome, decision=decision)
        self._settle(record, at=self.assembled[parent])
        self._count(record, Step(move=move, parent=parent, against_parent=against) if move else None)

    def _count(self, record: Round, step: Step | None) -> None:
        self.records.append(record)
        self.tree.add(record, step)
        self.curve.append((self.spent, math.exp(self.surface.log_ratio(self._incumbent))))

    def _settle(self, record: Round, *, at: Assembled) -> None:
        """As the product's planning book would."""
        assert record.proposal is not None
        state, why = settled(record)
        keys = keys_of(
            record.proposal, incumbent=(at.components, at.parameters), scaffold=self.rules.setting.scaffold,
            skills=self.rules.setting.skills,
        )  # fmt: skip
        self.backlog.take(
            Change(
                item=self.backlog.next_id(), state=state, title=record.proposal.title,
                mechanism=record.proposal.mechanism, why=why, who=FRAMEWORK, round=record.number, keys=keys,
            )
        )  # fmt: skip

    def _compared(self, ours: Assembled, theirs: Assembled) -> Decision:
        self.spent += 1
        gain = self.surface.log_ratio(ours) - self.surface.log_ratio(theirs)
        logs = self._noise(self.rules.num_pairs) + gain
        return decide(
            [{METRIC.name: math.exp(float(value))} for value in logs], [{METRIC.name: 1.0} for _ in logs],
            metric=METRIC, noise_floor=self._floor(), min_effect=self.rules.min_effect,
            seed=int(self.draw.integers(_SEED_RANGE)), complexity=(1, 0), num_resamples=NUM_RESAMPLES,
        )  # fmt: skip

    def _halved(self, proposal: Proposal) -> Proposal:
        """Successive halving as the evaluator does it: two windows each, the better half goes on with longer ones."""
        left, share = [dict(variant) for variant in proposal.variants], 0.5
        while len(left) > 1:
            self.spent += len(left) * share * 2 / (2 * self.rules.num_pairs)
            speed = [
                (self.surface.log_ratio(Assembled(components=proposal.components, parameters=each)))
                + float(self._noise(2).mean())
                for each in left
            ]
            order = sorted(range(len(left)), key=lambda position: -speed[position])
            left, share = [left[position] for position in order[: (len(left) + 1) // 2]], share * 2
        return replace(proposal, parameters=left[0])

    def _floor(self) -> float:
        return noise_floor(
            [float(value) for value in self._noise(self.rules.num_pairs)],
            seed=int(self.draw.integers(_SEED_RANGE)), num_resamples=NUM_RESAMPLES,
        )  # fmt: skip

    def _noise(self, num: int) -> np.ndarray:
        """[num] log-ratios of a runtime beside itself; all of one pair of starts, whose sign says nothing."""
        import numpy as np

        row = np.asarray(self.rules.noise[int(self.draw.integers(len(self.rules.noise)))], dtype=np.float64)
        sign = 1.0 if self.draw.integers(2) else -1.0
        drawn: np.ndarray = sign * self.draw.choice(row, size=num)
        return drawn


def _record(
    number: int, proposal: Proposal | None, candidate: Candidate, *, outcome: Outcome, decision: Decision
) -> Round:
    return Round(
        number=number, proposal=proposal, candidate=candidate, outcome=outcome, reason=decision.reason, verdict=PASSED,
        decision=decision,
    )  # fmt: skip


Make = Callable[[int], tuple[SearchPolicy, PlannerAgent]]
"""seed -> one arm of the study"""
