"""Speech: what is asked (`vibeserve.workloads.streaming_asr`), how it is spoken and what is measured (`metrics`)."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import accumulate
from typing import Any

from vibeserve.contract import Context, Metric, Pool, Request, SendError, Session, Window
from vibeserve.core.documents import from_data
from vibeserve.modalities.speech.metrics import MEASURED, measure_speech
from vibeserve.modalities.speech.wire import COMMIT, REALTIME_PATH, Heard, SpeechRecord, append_event, session_update
from vibeserve.spec import Workload
from vibeserve.workloads.streaming_asr import chunk_of, num_chunks_of, streaming_asr_stream

SHORT_CHUNKS = 2
AUDITED_CHUNKS = 4
LEAST_SLEEP_S = 0.0005
"""a timer may fire a little early by the load's own clock"""


def configure(context: Context) -> SpeechWorkload:
    return SpeechWorkload(context)


class SpeechWorkload:
    """See `contract.Workload`."""

    METRICS: Sequence[Metric] = MEASURED
    RECORD = SpeechRecord

    def __init__(self, context: Context) -> None:
        self._context = context

    @cached_property
    def declared(self) -> Workload:
        return from_data(Workload, dict(self._context.workload))

    def requests(self, seed: int, pool: Pool) -> Iterator[Request]:
        return streaming_asr_stream(self.declared, pool=pool, seed=seed)

    async def send(self, session: Session, request: Request) -> SpeechRecord:
        """Speak one recording in real time; what was cut keeps what came before."""
        heard, speech = Heard(), Speech(session)
        try:
            await speech.speak(request.payload, heard)
        except SendError as error:
            return speech.record(request, heard, error=str(error))
        return speech.record(request, heard)

    def measure(self, records: Sequence[SpeechRecord], windows: Sequence[Window]) -> dict[str, float]:
        return measure_speech(records, windows, chunk_s=self.declared.chunk_s, slo=self.declared.slo)

    def shortened(self, request: Request) -> Request:
        return shortened(request, num_chunks=SHORT_CHUNKS)

    def audited(self, request: Request) -> Request:
        return shortened(request, num_chunks=AUDITED_CHUNKS)


def shortened(request: Request, *, num_chunks: int) -> Request:
    """The recording's first chunks alone."""
    payload = request.payload
    duration_ms = min(payload["duration_ms"], num_chunks * payload["chunk_ms"])
    starts = accumulate((length for _, length, _ in payload["pieces"]), initial=0)
    pieces = [piece for start, piece in zip(starts, payload["pieces"], strict=False) if start < duration_ms]
    return replace(request, payload={**payload, "duration_ms": duration_ms, "pieces": pieces})


class Speech:
    """One speaker: a chunk is sent when it has been spoken, whatever the server does meanwhile."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._chunks: list[tuple[float, int]] = []
        self._committed_s: float | None = None

    async def speak(self, payload: dict[str, Any], heard: Heard) -> None:
        """Raises SendError where the session ends before the final transcript."""
        session = self._session
        socket = await session.connect(REALTIME_PATH, on_message=heard.read)
        await socket.send(session_update(model=session.model))
        await socket.until(lambda: heard.has("session.updated"))
        started_s = session.now_s()
        for number in range(num_chunks_of(payload)):
            samples = append_event(chunk_of(payload, number))
            end_ms = min((number + 1) * payload["chunk_ms"], payload["duration_ms"])
            await sleep_until(session, started_s + end_ms / 1000)
            self._chunks.append((await socket.send(samples), end_ms))
        self._committed_s = await socket.send(COMMIT)
        await socket.until(lambda: heard.final is not None)
        socket.close()

    def record(self, request: Request, heard: Heard, *, error: str | None = None) -> SpeechRecord:
        return SpeechRecord(
            request=request, output=heard.output(), marks=tuple(heard.marks), chunks=tuple(self._chunks),
            committed_s=self._committed_s, error=error,
        )  # fmt: skip


async def sleep_until(session: Session, due_s: float) -> None:
    """By the load's clock, which stands still while the load is paused: then a timer fires early, and sleeps on."""
    while (wait_s := due_s - session.now_s()) > 0:
        await asyncio.sleep(max(wait_s, LEAST_SLEEP_S))
