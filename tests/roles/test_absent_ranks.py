"""A server has as many ranks as its target declares, or is refused."""

from __future__ import annotations

from typing import Any

import pytest

from vibeserve.roles.ranks import absent_ranks


class Tree:
    """CPU seconds by process."""

    def __init__(self, **by_process: float) -> None:
        self._by_process = {int(name.strip("p")): seconds for name, seconds in by_process.items()}

    def cpu_by_process(self) -> dict[int, float]:
        return self._by_process


BEFORE = {1: 2.0, 2: 2.0}


def found(server: Any, *, wanted: int = 2) -> list[str]:
    return [refusal.text for refusal in absent_ranks(server, before=BEFORE, wanted=wanted)]


def test_ranks_that_compute_are_counted() -> None:
    assert found(Tree(p1=2.5, p2=2.4)) == []
    assert found(Tree(p1=2.5, p3=0.4)) == [], "one that was started meanwhile computes, too"
    assert found(Tree(p1=2.5), wanted=1) == []


@pytest.mark.parametrize(
    ("server", "counted"),
    [
        (Tree(p1=2.5), "1 of its 1 processes computed"),
        (Tree(p1=2.5, p2=2.0), "1 of its 2 processes computed"),
        (Tree(), "0 of its 0 processes computed"),
    ],
)
def test_a_process_that_only_stands_there_is_no_rank(server: Tree, counted: str) -> None:
    (text,) = found(server)
    assert text.startswith(f"parallelism.tensor is 2, and {counted} while it was probed. Valid: 2 ranks")
    (refusal,) = absent_ranks(server, before=BEFORE, wanted=2)  # type: ignore[arg-type]
    assert (refusal.gate, refusal.reason_class) == ("ranks", "absent_rank")
