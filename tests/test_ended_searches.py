"""A search that ends in the middle, by an interrupt or by a full disk, comes to the same end as one that does not."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from loop_fakes import WRONG_TOKENS
from steering_rig import Rig, cards, outcomes

from vibeserve.core.signals import finishing
from vibeserve.errors import StorageError


def numbers(rig: Rig) -> list[int]:
    return [event.data["record"]["number"] for event in rig.events() if event.kind == "round"]


def commits(rig: Rig) -> list[str]:
    records = [event.data["record"] for event in rig.events() if event.kind == "round"]
    return [record["candidate"]["commit"] for record in records]


def interrupt() -> None:
    os.kill(os.getpid(), signal.SIGINT)


@pytest.fixture
def whole(tmp_path: Path) -> Rig:
    """One that nothing ended."""
    rig = Rig(tmp_path / "whole")
    rig.start()
    return rig


@pytest.mark.parametrize("place", ["in r1a1", "in r2a1", "before r2"])
def test_an_interrupt_finishes_the_round_and_the_next_process_goes_on(tmp_path: Path, whole: Rig, place: str) -> None:
    rig = Rig(tmp_path / "ended")
    rig.when = {place: interrupt}
    last = int(place.rpartition("r")[2][0]) - (place.startswith("before"))
    with pytest.raises(KeyboardInterrupt), finishing():
        rig.start()
    assert numbers(rig) == list(range(last + 1)), "the round under way is finished and kept, no other is begun"
    search = rig.start()
    assert (outcomes(search), numbers(rig), commits(rig)) == (
        ["baseline", "accepted", "accepted", "accepted"], [0, 1, 2, 3], commits(whole),
    )  # fmt: skip


def test_an_interrupt_waits_for_the_last_attempt_of_a_round(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    rig.prepare = lambda team: team.judge.judged.update({"r01a1": (WRONG_TOKENS,)})
    rig.when = {"in r1a1": interrupt}
    with pytest.raises(KeyboardInterrupt), finishing():
        rig.start()
    (_, record) = [event.data["record"] for event in rig.events() if event.kind == "round"]
    assert (record["attempts"], record["outcome"]) == (2, "accepted")


def test_an_interrupt_ends_a_pause(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    rig.when = {"before r1": rig.asking("pause"), "asleep": interrupt}
    with pytest.raises(KeyboardInterrupt), finishing():
        rig.start()
    assert (rig.num_naps, numbers(rig)) == (1, [0])


def full_disk(where: Callable[[Any], Any]) -> Callable[[Any], None]:
    def prepare(team: Any) -> None:
        def fail(*_: Any, **__: Any) -> None:
            raise StorageError("git hash-object failed: No space left on device")

        holder, name = where(team)
        setattr(holder, name, fail)

    return prepare


def test_a_full_disk_is_no_outcome_of_a_round(tmp_path: Path, whole: Rig) -> None:
    """The smallest input that lost a round: git finds the disk full, and the round was spent as `infra`."""
    rig = Rig(tmp_path / "ended")
    rig.when = {"before r1": lambda: full_disk(lambda team: (team.store, "commit"))(rig.team)}
    with pytest.raises(StorageError, match="No space left on device"):
        rig.start()
    assert numbers(rig) == [0]
    search = rig.start()
    assert cards(search) == ["first", "second", "third"]
    assert commits(rig) == commits(whole)
