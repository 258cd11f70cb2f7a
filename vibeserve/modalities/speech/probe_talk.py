"""Conversations with a server of speech, for the probes: as fast as the server answers, in no real time."""

from __future__ import annotations

import asyncio
import io
import json
import time
import wave
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import urlsplit

from vibeserve.contract import Pool, Request, SendError
from vibeserve.modalities import open_bundle
from vibeserve.modalities.probe_http import REQUEST_TIMEOUT_S, PlainHttp, ProbeFailure, expect
from vibeserve.modalities.probes import ProbeJob
from vibeserve.modalities.speech.wire import COMMIT, REALTIME_PATH, SAMPLE_RATE_HZ, Heard, append_event, session_update
from vibeserve.modalities.websocket import SocketExchange
from vibeserve.workloads.streaming_asr import chunk_of, num_chunks_of, rendered

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Samples = NDArray[np.int16]

PROBE_CHUNKS = 3
NUM_RECORDINGS = 6
BOUNDARY = "probe-4711-boundary"


@dataclass(frozen=True, kw_only=True)
class Said:
    """The final transcript of one item."""

    text: str
    token_ids: tuple[int, ...]
    audio_end_ms: int


class Talk:
    """One connection. Every wait ends with the probes' time."""

    def __init__(self, socket: SocketExchange, heard: Heard, *, deadline_s: float) -> None:
        self.socket, self.heard = socket, heard
        self._deadline_s = deadline_s

    async def until(self, holds: Any, *, what: str) -> None:
        """ProbeFailure where it does not come true in time."""
        limit_s = max(1.0, min(REQUEST_TIMEOUT_S, self._deadline_s - time.monotonic()))
        try:
            await asyncio.wait_for(self.socket.until(holds), limit_s)
        except TimeoutError:
            raise ProbeFailure(f"no {what} in {limit_s:.0f} s") from None

    async def update(self, *, model: str, rate_hz: int = SAMPLE_RATE_HZ) -> None:
        num = self.heard.kinds.count("session.updated")
        await self.socket.send(session_update(model=model, rate_hz=rate_hz))
        await self.until(lambda: self.heard.kinds.count("session.updated") > num, what="session.updated")

    async def say(self, chunks: Sequence[Samples], *, rate_hz: int = SAMPLE_RATE_HZ) -> Said:
        """One item: each chunk when the one before it has its transcript; then the final one."""
        sent = 0
        heard = self.heard
        heard.forget()
        for chunk in chunks:
            await self.socket.send(append_event(chunk))
            sent += len(chunk)
            end_ms = sent * 1000 // rate_hz
            await self.until(
                lambda end_ms=end_ms: ends_of(heard)[-1:] >= [end_ms], what="partial transcript of a chunk"
            )
        return await self.commit()

    async def commit(self) -> Said:
        heard = self.heard
        await self.socket.send(COMMIT)
        await self.until(lambda: heard.final is not None, what="final transcript")
        final = cast("dict[str, Any]", heard.final)  # a message has set it meanwhile
        return Said(
            text=final["text"], token_ids=tuple(final["token_ids"]), audio_end_ms=final["audio_end_ms"]
        )  # fmt: skip


def ends_of(heard: Heard) -> list[int]:
    return [partial["audio_end_ms"] for partial in heard.partials]


class Talker:
    """The server that is probed, and recordings to be spoken to it."""

    def __init__(self, job: ProbeJob, *, deadline_s: float) -> None:
        self.http = PlainHttp(job.base_url, deadline_s=deadline_s)
        self.deadline_s = deadline_s
        self._job = job

    @cached_property
    def model(self) -> str:
        return str(json.loads(self.http.expect_ok("/v1/models"))["data"][0]["id"])

    @cached_property
    def recordings(self) -> list[Request]:
        """Short ones, of the pool that anybody may see."""
        requests = open_bundle(self._job.bundle).workload.requests(self._job.seed, Pool.visible)
        return [cut(next(requests), num_chunks=PROBE_CHUNKS) for _ in range(NUM_RECORDINGS)]

    async def connect(self, *, is_strict: bool = True) -> Talk:
        """A session that has said hello. With `is_strict` an error event is a failure."""
        heard = Heard(is_strict=is_strict)
        url = urlsplit(self.http.root)
        socket = SocketExchange(host=url.netloc, path=REALTIME_PATH, now_s=time.monotonic, on_message=heard.read)
        talk = Talk(socket, heard, deadline_s=self.deadline_s)
        host, port = url.hostname or "127.0.0.1", url.port or 80
        await asyncio.get_running_loop().create_connection(lambda: socket, host, port)
        await talk.until(lambda: heard.kinds[:1] == ["session.created"], what="session.created as the first event")
        return talk

    async def whole(self, payload: Mapping[str, Any]) -> Said:
        """One recording in a session of its own, chunk by chunk."""
        talk = await self.connect()
        await talk.update(model=self.model)
        try:
            return await talk.say(list(chunks_of(payload)))
        finally:
            talk.socket.close()


def run(coroutine: Any) -> Any:
    """A probe's conversation. ProbeFailure where the server ends it."""
    try:
        return asyncio.run(coroutine)
    except SendError as error:
        raise ProbeFailure(f"the session ends: {str(error)[:300]}") from error


def cut(request: Request, *, num_chunks: int) -> Request:
    payload = request.payload
    return replace(
        request, payload={**payload, "duration_ms": min(payload["duration_ms"], num_chunks * payload["chunk_ms"])}
    )


def chunks_of(payload: Mapping[str, Any]) -> Iterator[Samples]:
    return (chunk_of(payload, number) for number in range(num_chunks_of(payload)))


def samples_of(payload: Mapping[str, Any]) -> Samples:
    return rendered(payload, start_ms=0, end_ms=payload["duration_ms"])


def wav_of(samples: Samples, *, rate_hz: int = SAMPLE_RATE_HZ) -> bytes:
    stream = io.BytesIO()
    with wave.open(stream, "wb") as out:
        out.setnchannels(1)
        out.setsampwidth(2)
        out.setframerate(rate_hz)
        out.writeframes(samples.astype("<i2").tobytes())
    return stream.getvalue()


def form_of(fields: Mapping[str, str], *, file: bytes | None) -> bytes:
    """A multipart/form-data body."""
    parts = [
        f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n{value}\r\n'.encode()
        for name, value in fields.items()
    ]
    if file is not None:
        head = 'Content-Disposition: form-data; name="file"; filename="speech.wav"\r\nContent-Type: audio/wav'
        parts.append(f"--{BOUNDARY}\r\n{head}\r\n\r\n".encode() + file + b"\r\n")
    return b"".join(parts) + f"--{BOUNDARY}--\r\n".encode()


FORM_HEADERS = {"Content-Type": f"multipart/form-data; boundary={BOUNDARY}"}


def transcribed(talker: Talker, samples: Samples, *, rate_hz: int = SAMPLE_RATE_HZ) -> str:
    """Text of a file by the transcription route."""
    body = form_of({"model": talker.model}, file=wav_of(samples, rate_hz=rate_hz))
    status, _, answer = talker.http.ask("POST", "/v1/audio/transcriptions", body=body, headers=FORM_HEADERS)
    expect(status == 200, f"a transcription answers {status}")
    text = json.loads(answer)["text"]
    expect(isinstance(text, str), "a transcription has no text")
    return str(text)
