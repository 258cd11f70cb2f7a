"""The loops: a kill before and behind every append of a deterministic run, and kills of real runs at random times."""

from __future__ import annotations

import itertools
import random
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from vibeserve.crash_loop.judging import (
    lost_events,
    other_outcome,
    repeated_requests,
    repeated_work,
    status_of,
)
from vibeserve.crash_loop.lives import Life, Project
from vibeserve.errors import InfraError

SIDES = ("before", "after")
MIN_LIFE_S = 1.0
CERTIFIED = "certified"


@dataclass(kw_only=True)
class Tally:
    """What a loop found."""

    points: int = 0
    """kills"""
    resumed: int = 0
    """kills behind which the same command went on"""
    lost: int = 0
    """events that were acknowledged and are gone, and differences of the end from the reference"""
    repeated: int = 0
    """requests that were answered, measurements and steps that were finished, and were made again"""
    orphans: int = 0
    leases: int = 0
    seconds: float = 0.0
    problems: list[str] = field(default_factory=list)
    """what the numbers above count, in words"""
    killed_at: list[str] = field(default_factory=list)

    @property
    def is_clean(self) -> bool:
        return self.points == self.resumed and not self.problems

    def count(self, life: Life, *, earlier: Sequence[Life], where: str) -> None:
        """One more life: what it lost, did again and left behind."""
        lost = lost_events(life.before, life.after)
        repeated = repeated_work(life, earlier=earlier)
        self.lost += len(lost)
        self.repeated += len(repeated)
        self.orphans += len(life.orphans)
        self.leases += len(life.held)
        left = [f"left running: {line}" for line in life.orphans] + [f"lease {entry}" for entry in life.held]
        self.problems += [f"{where}: {text}" for text in (*lost, *repeated, *left)]


@dataclass(frozen=True, kw_only=True)
class Setting:
    """What both loops need."""

    make_project: Callable[[str], Project]
    artifact: Callable[[Project], Path]
    asked: Callable[[], list[str]]
    """keys of the requests that the model got since the last call; empty without a model"""
    say: Callable[[str], None]


def kill_at_appends(setting: Setting, *, num_points: int, seed: int) -> Tally:
    """One run without a kill, and one that is killed around its appends, one after the other: every life starts from
    what all the kills before it left. 0 points = all.

    InfraError where the reference itself fails.
    """
    started_s, tally = time.monotonic(), Tally()
    reference = setting.make_project("reference").live()
    if reference.code != 0:
        raise InfraError(f"the run that nobody kills ends with {reference.code}\n{reference.tail}")
    wanted = setting.asked()
    num_appends = len(reference.after.events)
    setting.say(f"reference: {num_appends} appends, {len(wanted)} requests of agents, {reference.seconds:.0f} s")
    tally.count(reference, earlier=[], where="reference")
    project, lives = setting.make_project("killed"), list[Life]()
    for seq, side in _points(num_appends, num_points=num_points, seed=seed):
        where = f"{side} append {seq}"
        life = project.live(crash_at=f"{side}:{seq - len(project.state().events) + 1}")
        _count_killed(tally, life, lives, where=where, say=setting.say)
        if not life.is_killed:
            break
    _finish(tally, project, lives, setting=setting)
    _compare(tally, reference, lives[-1], wanted=wanted, asked=setting.asked())
    tally.seconds = time.monotonic() - started_s
    return tally


def _points(num_appends: int, *, num_points: int, seed: int) -> Iterator[tuple[int, str]]:
    """(sequence number of an append, side). All of them go on for as long as a killed run still appends."""
    if not num_points:
        return ((seq, side) for seq in itertools.count() for side in SIDES)
    every = [(seq, side) for seq in range(num_appends) for side in SIDES]
    return iter(sorted(random.Random(seed).sample(every, min(num_points, len(every))), key=every.index))


def _count_killed(tally: Tally, life: Life, lives: list[Life], *, where: str, say: Callable[[str], None]) -> None:
    """A life that a kill was meant for. One that ended by itself went on from the kill before it, or failed."""
    if lives and lives[-1].is_killed:
        tally.resumed += life.is_killed or life.code == 0
    if life.is_killed:
        tally.points += 1
        tally.killed_at.append(where)
    elif life.code != 0:
        tally.problems.append(f"{where}: ended with {life.code}: {life.tail.strip()[-400:]}")
    tally.count(life, earlier=lives, where=where)
    lives.append(life)
    say(f"{where}: {'killed' if life.is_killed else f'ended with {life.code}'}, {life.seconds:.1f} s")


def _finish(tally: Tally, project: Project, lives: list[Life], *, setting: Setting) -> None:
    """The same command once more, to the end."""
    if lives and not lives[-1].is_killed:
        return
    _count_killed(tally, project.live(), lives, where="to the end", say=setting.say)
    status = status_of(setting.artifact(project))
    if lives[-1].code == 0 and status != CERTIFIED:
        tally.problems.append(f"the artifact is {status or 'not there'}")


def _compare(tally: Tally, reference: Life, last: Life, *, wanted: list[str], asked: list[str]) -> None:
    others = other_outcome(reference.after, last.after)
    again = repeated_requests(asked, reference=wanted)
    tally.lost += len(others)
    tally.repeated += len(again)
    tally.problems += [*others, *again]


def kill_at_random(setting: Setting, *, num_kills: int, within_s: float, seed: int) -> Tally:
    """Real runs, killed at random times until there were `num_kills`; each must end certified."""
    started_s, tally, draw = time.monotonic(), Tally(), random.Random(seed)
    number = 0
    while tally.points < num_kills:
        number += 1
        project, lives = setting.make_project(f"real-{number}"), list[Life]()
        while tally.points < num_kills:
            after_s = draw.uniform(MIN_LIFE_S, within_s)
            where = f"run {number}, {after_s:.1f} s"
            _count_killed(tally, project.live(kill_after_s=after_s), lives, where=where, say=setting.say)
            if not lives[-1].is_killed:
                break
        _finish(tally, project, lives, setting=setting)
        if lives[-1].code != 0:
            break
    again = repeated_requests(setting.asked(), reference=[], num_in_flight=tally.points)
    tally.repeated += len(again)
    tally.seconds = time.monotonic() - started_s
    return tally

