"""Events of a session: what is read of them, and what is refused."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Callable

import numpy as np
import pytest
from speech_samples import context, recordings, request_of

from vibeserve.contract import SendError
from vibeserve.modalities.speech.wire import COMMIT, Heard, append_event, session_update
from vibeserve.modalities.speech.workload import configure
from vibeserve.workloads.streaming_asr import chunk_of

T = "conversation.item.input_audio_transcription."


def event(kind: str, **fields: object) -> str:
    return json.dumps({"type": kind, "item_id": "i", "content_index": 0, **fields})


def partial(end_ms: int, text: str = "a", ids: tuple[int, ...] = (5,)) -> str:
    return event(f"{T}partial", audio_end_ms=end_ms, transcript=text, token_ids=list(ids))


def completed(end_ms: int, text: str = "a") -> str:
    return event(f"{T}completed", audio_end_ms=end_ms, transcript=text, token_ids=[5])


def test_transcripts_are_kept_with_their_times() -> None:
    heard = Heard()
    assert heard.output() is None
    for at_s, text in ((1.0, event("session.created")), (2.0, partial(500)), (3.0, completed(1000, "ab"))):
        heard.read(at_s, text)
    assert heard.output() == {
        "partials": [{"audio_end_ms": 500, "text": "a", "token_ids": [5]}],
        "final": {"audio_end_ms": 1000, "text": "ab", "token_ids": [5]},
    }
    assert heard.marks == [(2.0, {"partial_ms": 500}), (3.0, {"final_ms": 1000})]
    assert heard.has("session.created") and not heard.has("session.updated")


@pytest.mark.parametrize(
    "text",
    [
        "{", "[]", "{}", event(f"{T}partial"), partial(-1),
        event(f"{T}partial", audio_end_ms=1.5, transcript="a", token_ids=[]),
        event(f"{T}partial", audio_end_ms=1, transcript=None, token_ids=[]),
        event(f"{T}partial", audio_end_ms=1, transcript="a", token_ids=[True]),
        event(f"{T}partial", audio_end_ms=1, transcript="a", token_ids=None),
        event(f"{T}completed", audio_end_ms=1, transcript="\ud800", token_ids=[]),
    ],
)  # fmt: skip
def test_malformed_events_fail_the_recording(text: str) -> None:
    with pytest.raises(SendError, match="malformed event"):
        Heard().read(0.0, text)


def test_an_error_event_fails_the_recording_unless_it_is_asked_for() -> None:
    text = event("error", error={"type": "invalid_request_error", "message": "no"})
    with pytest.raises(SendError, match="error event: no"):
        Heard().read(0.0, text)
    lenient = Heard(is_strict=False)
    lenient.read(0.0, text)
    assert lenient.errors[0]["message"] == "no"


def test_what_is_sent() -> None:
    audio = json.loads(session_update(model="m", rate_hz=8000))["session"]["audio"]["input"]
    assert audio["format"] == {"type": "audio/pcm", "rate": 8000}
    assert audio["transcription"] == {"model": "m", "partials": True} and audio["turn_detection"] is None
    sent = json.loads(append_event(np.array([1, -2], dtype=np.int16)))
    assert base64.b64decode(sent["audio"]) == b"\x01\x00\xfe\xff"


class FakeSocket:
    """Answers every chunk at once, and the commit with the final transcript; `breaks_after` chunks it is gone."""

    def __init__(self, session: FakeSession, on_message: Callable[[float, str], None]) -> None:
        self.session, self.on_message = session, on_message
        self.sent_ms = 0

    async def send(self, text: str) -> float:
        kind = json.loads(text)["type"]
        at_s = self.session.now_s()
        self.session.sent.append((at_s, kind))
        if kind == "session.update":
            self.on_message(at_s, event("session.updated"))
        elif kind == "input_audio_buffer.append":
            self.sent_ms += self.session.chunk_ms
            if self.sent_ms > self.session.breaks_after_ms:
                raise SendError("connection lost before the end of the reply")
            self.on_message(at_s, partial(self.sent_ms))
        elif text == COMMIT:
            self.on_message(at_s, completed(self.sent_ms))
        return at_s

    async def until(self, holds: Callable[[], bool]) -> None:
        assert holds()

    def close(self) -> None:
        self.session.is_closed = True


class FakeSession:
    """Its clock runs fifty times as fast as the wall's, and stands still while it is `held`."""

    model, dialect = "m", "vllm"

    def __init__(self, *, chunk_ms: int = 500, breaks_after_ms: int = 10**9) -> None:
        self.chunk_ms, self.breaks_after_ms = chunk_ms, breaks_after_ms
        self.sent: list[tuple[float, str]] = []
        self.is_closed = False
        self._start_s: float | None = None

    def now_s(self) -> float:
        loop_s = asyncio.get_running_loop().time()
        self._start_s = self._start_s if self._start_s is not None else loop_s
        return 50 * (loop_s - self._start_s)

    async def connect(self, path: str, *, on_message: Callable[[float, str], None]) -> FakeSocket:
        assert path.startswith("/v1/realtime")
        return FakeSocket(self, on_message)


def test_a_chunk_is_sent_when_it_has_been_spoken() -> None:
    session, request = FakeSession(), recordings(1)[0]
    record = asyncio.run(configure(context()).send(session, request))  # type: ignore[arg-type]
    num_chunks = request.payload["duration_ms"] // 500
    kinds = [kind for _, kind in session.sent]
    assert kinds == ["session.update", *["input_audio_buffer.append"] * num_chunks, "input_audio_buffer.commit"]
    assert [end_ms for _, end_ms in record.chunks] == [500 * (number + 1) for number in range(num_chunks)]
    started_s = session.sent[0][0]
    assert all(at_s >= started_s + end_ms / 1000 for at_s, end_ms in record.chunks)
    assert record.committed_s is not None and record.error is None and session.is_closed
    assert record.output is not None and len(record.output["partials"]) == num_chunks


def test_what_came_before_the_end_of_a_load_is_kept() -> None:
    record = asyncio.run(configure(context()).send(FakeSession(breaks_after_ms=1000), request_of(4)))  # type: ignore[arg-type]
    assert record.error == "connection lost before the end of the reply"
    assert record.output is not None and [each["audio_end_ms"] for each in record.output["partials"]] == [500, 1000]
    assert record.output["final"] is None and record.committed_s is None


def test_warm_ups_are_the_beginning_alone() -> None:
    request = recordings(1)[0]
    short = configure(context()).shortened(request)
    assert short.payload["duration_ms"] == 1000
    num = len(short.payload["pieces"])
    assert short.payload["pieces"] == request.payload["pieces"][:num]
    assert sum(length for _, length, _ in short.payload["pieces"]) >= 1000
    np.testing.assert_array_equal(chunk_of(short.payload, 1), chunk_of(request.payload, 1))
    assert configure(context()).audited(request_of(40)).payload["duration_ms"] == 2000
