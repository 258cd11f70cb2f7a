"""A load on the host: the generator and its clock there, its requests and records by pipe."""

from __future__ import annotations

import contextlib
import os
import queue
import signal
from collections.abc import Callable, Iterator
from typing import Any

from vibeserve.client import LoadSession
from vibeserve.contract import Request
from vibeserve.core.documents import from_data
from vibeserve.core.nouns import LoadPoint
from vibeserve.modalities import BundleRef, open_bundle

FEED_TIMEOUT_S = 120.0


class HostedLoad(LoadSession):
    """A `LoadSession` whose lines come from the controller: it knows no request and rebuilds no record."""

    def __init__(
        self, *, job: dict[str, Any], name: str, join: Callable[[list[str]], list[str]], need: Callable[[], None]
    ) -> None:
        load = LoadPoint(name=name, concurrency=job["concurrency"], rate_per_s=job["rate_per_s"])
        super().__init__(
            bundle=open_bundle(from_data(BundleRef, job["bundle"])), base_url=job["base_url"], dialect=job["dialect"],
            model=job["model"], load=load, requests=_nothing(), cpus=tuple(job["cpus"]), join=join,
            request_timeout_s=job["request_timeout_s"], name=name,
        )  # fmt: skip
        self._need = need
        self._given: queue.Queue[bytes | None] = queue.Queue()

    def feed(self, line: str | None) -> None:
        self._given.put(None if line is None else line.encode())

    def lines_from(self, start: int) -> list[str]:
        return [line.decode() for line in self._lines[start:]]

    def end(self) -> None:
        """End the load; `lines_from` has all of it then."""
        self._given.put(None)
        self._end(self._running())

    def kill(self) -> None:
        self._given.put(None)
        if self._process is not None and self._process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)

    def _next_line(self) -> bytes | None:
        self._need()
        return self._given.get()


def _nothing() -> Iterator[Request]:
    return iter(())
