"""What a scripted model does, call by call, in words of no particular API.

Which call a request belongs to is read from its prompt, how far the call is from its conversation alone: a request
that is sent twice gets the same answer twice. Only faults are counted, because they must end.
"""

from __future__ import annotations

import re
import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

CALL_LINE = re.compile(r"^\W*vibeserve-call: *(?P<key>[\w.-]+)", re.MULTILINE)
"""the line of a prompt that names its call"""
HTTP_FAULTS = ("429", "500", "unauthorised", "cut", "hang", "garbled")
"""of the server: too many requests, internal error, wrong key, a stream that ends in its middle, no answer at all, a
body that is no document"""
MESSAGE_FAULTS = ("malformed", "empty", "refusal")
"""of the model's last message"""
CALL_FAULTS = ("endless", "huge")
"""of tool calls: the same one for ever, and one that prints very much"""
FAULTS = (*HTTP_FAULTS, *MESSAGE_FAULTS, *CALL_FAULTS)
MALFORMED = '{"verdict": "accept", "reasons": ['
REFUSAL = "I can't help with that."
HUGE_BYTES = 4_000_000
"""more than any client passes on, little enough to be printed in a moment"""


@dataclass(frozen=True)
class Command:
    """A call of the shell tool, by the name and with the arguments that the client gives it."""

    text: str


@dataclass(frozen=True)
class Submit:
    """The final document: an offered tool `submit`, or the last message."""

    document: Any


@dataclass(frozen=True)
class Say:
    """A message without a tool call: for most clients the end of their turn."""

    text: str


@dataclass(frozen=True)
class Fault:
    """One of `FAULTS`."""

    kind: str
    times: int = 1
    """how often it happens, then it is passed over; 0 = for ever. Faults of calls take one turn, or all"""
    retry_after_s: float = 1.0
    """429 only"""

    def __post_init__(self) -> None:
        assert self.kind in FAULTS, f"unknown fault {self.kind!r}; valid faults: {', '.join(FAULTS)}"


Step = Command | Submit | Say | Fault


@dataclass(frozen=True, kw_only=True)
class Script:
    """`script(key)`: the steps of one call. The last step is repeated for as long as the client asks."""

    roles: Mapping[str, Sequence[Step]] = field(default_factory=dict)
    """of every call of a role: `implementer` for the keys `r02a1-implementer` and the like"""
    keys: Mapping[str, Sequence[Step]] = field(default_factory=dict)
    """of one call; stronger than `roles`"""

    def __call__(self, key: str) -> Sequence[Step]:
        return self.keys.get(key) or self.roles.get(key.rpartition("-")[2], ())


StepsOf = Callable[[str], Sequence[Step]]


def key_of(prompts: Sequence[str]) -> str:
    """The key of the call that these messages of the user belong to: the last one named. Empty where none is."""
    found = [match["key"] for text in prompts for match in CALL_LINE.finditer(text)]
    return found[-1] if found else ""


class Position:
    """Which step is next. Safe to use from several threads."""

    def __init__(self, script: StepsOf) -> None:
        self._script = script
        self._fired: Counter[tuple[str, int]] = Counter()
        self._lock = threading.Lock()

    def next_step(self, key: str, *, num_results: int, said: Sequence[str]) -> Step | None:
        """The step after `num_results` tool results and the plain messages `said`; None where the script is silent."""
        steps = list(self._script(key))
        planned = {step.text for step in steps if isinstance(step, Say)}
        turn = num_results + sum(1 for text in said if text in planned)
        with self._lock:
            return self._choose(key, steps, turn)

    def _choose(self, key: str, steps: Sequence[Step], turn: int) -> Step | None:
        passed, last = 0, None
        for index, step in enumerate(steps):
            if isinstance(step, Fault) and step.kind not in CALL_FAULTS:
                if turn <= passed and self._fires(key, index, step):
                    return step
                continue
            last = step
            if turn <= passed or (isinstance(step, Fault) and step.kind == "endless"):
                return step
            passed += 1
        return last

    def _fires(self, key: str, index: int, fault: Fault) -> bool:
        if fault.times and self._fired[key, index] >= fault.times:
            return False
        self._fired[key, index] += 1
        return True
