"""The events of a sweep's jobs, read from their files while they are written, whatever process writes them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from vibeserve.sweeps.documents import EVENTS, job_folders


class Follower:
    """Passes on every new event of every job below `folder`, once."""

    def __init__(self, folder: Path, *, tell: Callable[[int, dict[str, Any]], None]) -> None:
        self._folder = folder
        self._tell = tell
        self._offsets: dict[int, int] = {}

    def look(self) -> None:
        """Read what is new; a line that is not whole yet waits for the next look."""
        for job_folder in job_folders(self._folder):
            number, path = int(job_folder.name), job_folder / EVENTS
            if not path.is_file():
                continue
            with path.open("rb") as stream:
                stream.seek(self._offsets.get(number, 0))
                new = stream.read()
            whole = new[: new.rfind(b"\n") + 1]
            self._offsets[number] = self._offsets.get(number, 0) + len(whole)
            for line in whole.splitlines():
                self._tell(number, json.loads(line))


def event_line(event: dict[str, Any]) -> str:
    """`00:12 round 1      accepted ...`, as a run alone prints it."""
    seconds = int(event["at_s"])
    return f"{seconds // 60:02d}:{seconds % 60:02d} {event['stage']:<12} {event['text']}"
