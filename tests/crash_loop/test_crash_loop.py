"""What the crash loop must notice: each loss, repetition and leftover, planted; and loops over scripted lives."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from vibeserve.crash_loop.command import document, main, text
from vibeserve.crash_loop.judging import lost_events, other_outcome, repeated_requests, repeated_work
from vibeserve.crash_loop.lives import Life, Project, State
from vibeserve.crash_loop.loop import Setting, kill_at_appends, kill_at_random
from vibeserve.errors import InfraError, SpecError
from vibeserve.journal import Event, Journal


def round_event(number: int, *, seq: int, commit: str = "c", outcome: str = "accepted") -> Event:
    record = {"number": number, "outcome": outcome, "attempts": 1, "candidate": {"commit": commit}, "seconds": 1.0}
    data = {"record": record, "checkpoint": {"candidate": {"commit": commit}}}
    return Event(seq=seq, time_s=1.0, kind="round", data=data)


OPENED = Event(seq=0, time_s=1.0, kind="opened", data={"bandwidth_gb_s": 1.0})
ONE = State(events=(OPENED, round_event(0, seq=1)))
LIFE = Life(code=-9, before=ONE, after=ONE, told=(), orphans=(), held=(), tail="", seconds=1.0)


def told(stage: str, words: str = "", **facts: Any) -> dict[str, Any]:
    return {"stage": stage, "text": words, **facts}


def test_an_event_that_is_gone_or_changed_is_lost() -> None:
    assert lost_events(ONE, ONE) == []
    assert lost_events(ONE, State(events=(OPENED,))) == ["event 1 (round) is gone"]
    assert lost_events(ONE, State(events=(OPENED, round_event(0, seq=1, commit="d")))) == ["event 1 (round) is gone"]


def test_what_was_finished_and_is_done_again_is_repeated() -> None:
    assert repeated_work(replace(LIFE, told=(told("round 1"), told("certify", "start 1 of 1"))), earlier=[]) == []
    assert repeated_work(replace(LIFE, told=(told("round 0"),)), earlier=[]) == ["round 0 is measured again"]
    kept = replace(ONE, is_certification_kept=True)
    again = replace(LIFE, before=kept, told=(told("certify", "start 1 of 1, load c4"),))
    assert repeated_work(again, earlier=[]) == ["the certification is measured again"]
    first = replace(LIFE, told=(told("weights", state="started"), told("weights", state="ran")))
    second = replace(LIFE, told=(told("weights", state="started"),))
    assert repeated_work(second, earlier=[first]) == ["step weights runs again"]
    assert repeated_work(replace(LIFE, told=(told("weights", state="up to date"),)), earlier=[first]) == []


def test_requests_beyond_those_of_the_reference_are_repeated_but_for_those_in_flight() -> None:
    assert repeated_requests(["a", "a", "b"], reference=["a", "a", "b"]) == []
    assert repeated_requests(["a", "a", "a"], reference=["a"]) == ["a: 2 requests more than without a kill"]
    assert repeated_requests(["a", "a", "a"], reference=["a"], num_in_flight=2) == []


def test_another_tree_another_idea_and_a_missing_round_are_another_outcome() -> None:
    idea = Event(seq=2, time_s=1.0, kind="backlog", data={"item": "b1", "state": "done", "title": "x"})
    whole = State(events=(*ONE.events, idea))
    later = State(events=tuple(replace(event, seq=event.seq + 5, time_s=9.0) for event in (*whole.events, idea)))
    assert other_outcome(whole, later) == [], "when it was, and how often it was said, is no difference"
    assert [line[:14] for line in other_outcome(whole, ONE)] == ["missing: backl"]
    other = State(events=(OPENED, round_event(0, seq=1, commit="d"), idea))
    assert [line.split(":")[0] for line in other_outcome(whole, other)] == ["missing", "not in the reference"]


ORPHANED = """
import json, os, subprocess, sys, time
from vibeserve.core.children import adopt_orphans
from vibeserve.crash_loop import lives
adopt_orphans()
lives.ORPHAN_GRACE_S = 0.5
stubborn = "trap '' TERM; sleep 600"
subprocess.run(["bash", "-c", f"(setsid bash -c \\"{stubborn}\\" &) ; sleep 0.2"], check=True)
print(json.dumps([lives.end_orphans(), lives.end_orphans()]))
"""


def test_what_a_killed_run_leaves_running_is_found_and_ended() -> None:
    done = subprocess.run([sys.executable, "-c", ORPHANED], capture_output=True, text=True, check=True, timeout=60)
    first, second = json.loads(done.stdout)
    assert any("sleep 600" in line for line in first) and second == []


@dataclass
class Scripted(Project):
    """Appends to a journal as a run would, and dies where it is told to."""

    num_rounds: int = 3
    breaks: dict[str, Any] = field(default_factory=dict)
    """crash point -> changes of that life"""
    codes: list[int] = field(default_factory=list)
    """of lives that fail, one after the other"""

    @property
    def run_folder(self) -> Path:
        return self.root

    def live(self, *, crash_at: str = "", kill_after_s: float = 0.0) -> Life:
        before, code, done = self.state(), 0, False
        side, _, number = crash_at.partition(":")
        with Journal.open(self.root / "journal.jsonl") as journal:
            for count, seq in enumerate(range(len(before.events), self.num_rounds), start=1):
                done = str(count) == number
                if not (done and side == "before"):
                    journal.append("round", round_event(seq, seq=seq).data, durable=False)
                if done:
                    code = -9
                    break
        code = self.codes.pop(0) if self.codes else code
        changes = self.breaks.get(f"{side} {len(before.events) + int(number or 0) - 1}", {}) if done else {}
        return replace(LIFE, **{"code": code, "before": before, "after": self.state(), **changes})


def setting_of(tmp_path: Path, **killed: Any) -> Setting:
    def make(name: str) -> Scripted:
        (tmp_path / name).mkdir()
        artifact = tmp_path / name / "artifact"
        artifact.mkdir()
        (artifact / "manifest.json").write_text('{"status": "certified"}')
        return Scripted(root=tmp_path / name, words=(), environment={}, **({} if name == "reference" else killed))

    return Setting(
        make_project=make, artifact=lambda project: project.root / "artifact", asked=list, say=lambda line: None
    )


def test_every_append_is_a_point_on_both_sides_and_each_is_resumed(tmp_path: Path) -> None:
    tally = kill_at_appends(setting_of(tmp_path), num_points=0, seed=1)
    assert (tally.points, tally.resumed, tally.problems, tally.is_clean) == (6, 6, [], True)
    assert tally.killed_at == [f"{side} append {seq}" for seq in range(3) for side in ("before", "after")]


def test_a_sample_is_so_many_points(tmp_path: Path) -> None:
    tally = kill_at_appends(setting_of(tmp_path), num_points=2, seed=1)
    assert (tally.points, tally.resumed, tally.is_clean) == (2, 2, True)


@pytest.mark.parametrize(
    ("killed", "counts", "words"),
    [
        ({"breaks": {"after 1": {"orphans": ("7 sleep",)}}}, {"orphans": 1}, "after append 1: left running: 7 sleep"),
        ({"breaks": {"before 0": {"held": ("held by r",)}}}, {"leases": 1}, "before append 0: lease held by r"),
        ({"breaks": {"after 2": {"told": (told("round 0"),)}}}, {"repeated": 1}, "round 0 is measured again"),
        ({"breaks": {"after 2": {"after": State()}}}, {"lost": 2}, "after append 2: event 0 (round) is gone"),
        ({"num_rounds": 4}, {"lost": 1}, "not in the reference: round"),
        ({"codes": [-9, 5]}, {"resumed": 0}, "after append 0: ended with 5"),
    ],
)  # fmt: skip
def test_what_goes_wrong_is_counted_told_and_no_success(
    tmp_path: Path, killed: dict[str, Any], counts: dict[str, int], words: str
) -> None:
    tally = kill_at_appends(setting_of(tmp_path, **killed), num_points=0, seed=1)
    found = document(tally)
    assert {name: found[name] for name in counts} == counts
    assert words in text(tally) and not tally.is_clean
    assert {"points", "resumed", "lost", "repeated", "orphans", "seconds"} <= set(found)


def test_random_kills_go_on_until_there_were_enough(tmp_path: Path) -> None:
    killed = setting_of(tmp_path, codes=[-9, -9, 0, -9, 0])
    tally = kill_at_random(killed, num_kills=3, within_s=5.0, seed=3)
    assert (tally.points, tally.resumed) == (3, 3)


def test_a_reference_that_fails_and_words_that_mean_nothing_are_refused(tmp_path: Path) -> None:
    failing = setting_of(tmp_path)
    with pytest.raises(InfraError, match="the run that nobody kills ends with 3"):
        kill_at_appends(
            replace(failing, make_project=lambda name: Scripted(root=tmp_path, words=(), environment={}, codes=[3])),
            num_points=0, seed=1,
        )  # fmt: skip
    for words in (["--points", "-1"], ["--real", "-1"], ["--within", "0"]):
        with pytest.raises(SpecError, match="crash-loop: --points and --real are numbers from 0 on"):
            main(words)
    with pytest.raises(SpecError, match="valid: scripted, playbook"):
        main(["--agents", "codex"])
