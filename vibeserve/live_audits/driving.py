"""Blocks of requests on one server: all of a block at once, the next one when the last of it is answered.

One load generator serves all blocks of an audit: the stream of requests waits inside until a block is answered.
"""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from vibeserve.client import LoadSession
from vibeserve.contract import Record, Request
from vibeserve.core.nouns import LoadPoint
from vibeserve.errors import ServerError
from vibeserve.roles.workbench import Workbench
from vibeserve.service import Server

POLL_S = 0.002
WATCH_S = 0.02
STALL_S = 300.0
"""without any answer: what is not answered by then has failed"""

Block = Sequence[Request]


@dataclass(kw_only=True)
class BlockStream:
    """An iterator of requests that hands out a block when `num_finished` says that all before it are answered.

    `between(k)` is called before block k, with nothing in flight, and once more after the last one. `close` ends it.
    """

    blocks: Sequence[Block]
    num_finished: Callable[[], int]
    between: Callable[[int], None] | None = None
    closed: threading.Event = field(default_factory=threading.Event)
    is_done: bool = False
    """the last call of `between` has returned"""

    def __iter__(self) -> Iterator[Request]:
        num_given = 0
        for number, block in enumerate([*self.blocks, ()]):
            while self.num_finished() < num_given:
                if self.closed.wait(POLL_S):
                    return
            if self.between is not None:
                self.between(number)
            yield from block
            num_given += len(block)
        self.is_done = True

    def close(self) -> None:
        self.closed.set()


def drive(
    bench: Workbench, server: Server, blocks: Sequence[Block], *, name: str,
    between: Callable[[int], None] | None = None, stall_s: float = STALL_S,
) -> list[list[Record]]:  # fmt: skip
    """The records of every block, in the order of its requests; a request without an answer in time has none, or one
    with an error.

    ServerError for a server that died, InfraError for a generator that did.
    """
    run = f"{name}-{secrets.token_hex(3)}"  # an audit that is measured again sends other requests
    numbered = [[_renamed(request, f"{run}-{k}.{n}") for n, request in enumerate(b)] for k, b in enumerate(blocks)]
    total = sum(len(block) for block in numbered)
    started: list[LoadSession] = []
    stream = BlockStream(blocks=numbered, num_finished=lambda: len(started[0].finished()), between=between)
    session = _session(bench, server, iter(stream), concurrency=max(len(block) for block in numbered), name=name)
    started.append(session)
    try:
        session.start()
        _await(session, server, stream=stream, total=total, stall_s=stall_s)
    finally:
        stream.close()
        records = session.stop() if session.is_started else []
    by_id = {record.request.request_id: record for record in records}
    return [[by_id[each.request_id] for each in block if each.request_id in by_id] for block in numbered]


def _session(
    bench: Workbench, server: Server, requests: Iterator[Request], *, concurrency: int, name: str
) -> LoadSession:
    return bench.load_session(
        server, bundle=bench.bundle_at(bench.plan.spec.workload.headline_load), requests=requests,
        load=LoadPoint(name=name, concurrency=concurrency), dialect="vllm", model="", name=f"{name}-{server.name}",
    )  # fmt: skip


def _renamed(request: Request, name: str) -> Request:
    """With an id of its own; ids are never sent."""
    return replace(request, request_id=name)


def _await(session: LoadSession, server: Server, *, stream: BlockStream, total: int, stall_s: float) -> None:
    """Until everything is answered and the stream has ended, or nothing has been answered for too long."""
    num_seen, deadline_s = -1, 0.0
    while (num_finished := len(session.finished())) < total or not stream.is_done:
        if num_finished > num_seen:
            num_seen, deadline_s = num_finished, time.monotonic() + stall_s
        if time.monotonic() > deadline_s:
            return
        status = server.poll()
        if status is not None:
            detail = f"exit status {status} in an audit"
            raise ServerError(server.name, outcome=server.outcome, detail=detail, log_tail=server.log_tail())
        session.check()
        time.sleep(WATCH_S)
