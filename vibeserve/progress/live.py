"""A terminal: the run's lines go by above, what it is doing now stays below them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from vibeserve.progress.events import event_of
from vibeserve.progress.port import age, beating, clock

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

LIVE_BEAT_S = 5.0
"""between two updates of a terminal's live line"""
FRAMES_PER_S = 0.5
"""of the live view: what draws it has the cores of those who measure to share"""


class LiveProgress:
    """Lines on a terminal, with what is being done and the elapsed time under them.

    `view` renders the state of the run; within `shown` it stays at the bottom of the terminal.
    """

    def __init__(
        self, *, view: Callable[[], RenderableType | None] = lambda: None, console: Console | None = None
    ) -> None:
        from rich.console import Console

        self._console = console or Console(highlight=False)
        self._start_s = time.monotonic()
        self._view = view
        self._is_shown = False
        self._work: list[tuple[str, float]] = []
        """(what, since when) of the work under way, the innermost last"""

    def event(self, stage: str, text: str, **facts: Any) -> None:
        from rich.text import Text

        event = event_of(stage, text, facts, at_s=time.monotonic() - self._start_s)
        line = Text(f"{clock(event.at_s)} ", style="dim")
        line.append(f"{event.stage:<12} ", style="bold")
        line.append(event.text)
        self._console.print(line, soft_wrap=True)

    @contextmanager
    def shown(self) -> Iterator[None]:
        """The view is drawn, and drawn anew, until the block ends; then it is gone."""
        from rich.live import Live

        with Live(
            console=self._console, get_renderable=self._frame, refresh_per_second=FRAMES_PER_S, transient=True,
            redirect_stdout=False, redirect_stderr=False,
        ):  # fmt: skip
            self._is_shown = True
            try:
                yield
            finally:
                self._is_shown = False

    @contextmanager
    def busy(self, stage: str, text: str) -> Iterator[None]:
        self._work.append((f"{stage}  {text}", time.monotonic()))
        try:
            if self._is_shown:
                yield
            else:
                with self._spinning(stage, text):
                    yield
        finally:
            self._work.pop()

    @contextmanager
    def _spinning(self, stage: str, text: str) -> Iterator[None]:
        from rich.markup import escape

        line = escape(f"{stage}  {text}")
        with self._console.status(line) as status:
            with beating(lambda age_s: status.update(f"{line}, {age(age_s)}"), every_s=LIVE_BEAT_S):
                yield

    def _frame(self) -> RenderableType:
        from rich.console import Group
        from rich.text import Text

        parts: list[RenderableType] = []
        if self._work:
            what, since_s = self._work[-1]
            parts.append(Text(f"{what}, {age(time.monotonic() - since_s)}", style="dim"))
        view = self._view()
        return Group(*parts, *([] if view is None else [view]))
