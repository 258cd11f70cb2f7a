"""Speech on the wire: OpenAI's Realtime transcription events over a WebSocket, and what they brought.

The client sends `session.update`, `input_audio_buffer.append` (base64 of 16 bit little-endian mono samples) and
`input_audio_buffer.commit`. The server answers with `session.created`, `session.updated`,
`input_audio_buffer.committed`, and `conversation.item.input_audio_transcription.delta` and `.completed`, whose deltas
are the final transcript.

Hypotheses of audio that goes on are revised, which deltas cannot express. Hence one event more, sent where the session
asked for it by `transcription.partials`, and skipped by clients that do not know it:

    {"type": "conversation.item.input_audio_transcription.partial", "item_id": ..., "content_index": 0,
     "audio_end_ms": 1500, "transcript": "all of it so far", "token_ids": [...]}

`audio_end_ms` says how much audio of the item it is the transcript of. `completed` has it and `token_ids`, too.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from vibeserve.contract import Record, Request, SendError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

REALTIME_PATH = "/v1/realtime?intent=transcription"
PARTIAL = "conversation.item.input_audio_transcription.partial"
COMPLETED = "conversation.item.input_audio_transcription.completed"
SAMPLE_RATE_HZ = 16000

PARTIAL_MARK, FINAL_MARK = "partial_ms", "final_ms"


@dataclass(frozen=True, kw_only=True)
class SpeechRecord(Record):
    """One recording. `output`: `partials` and `final`, each `{"audio_end_ms", "text", "token_ids"}`; `final` is None
    where the load ended first. `marks` are the partials and the final as they came: {"partial_ms": n}, {"final_ms": n}.
    """

    chunks: tuple[tuple[float, int], ...] = ()
    """(seconds at which it was sent, its end in ms of the recording) of every chunk; empty where nobody sent any"""
    committed_s: float | None = None
    """when the client said that nothing follows"""

    @classmethod
    def of_output(cls, request: Request, output: Any) -> SpeechRecord:
        return cls(request=request, output=output)

    @property
    def waited_s(self) -> float | None:
        """For the transcripts of all chunks, one after the other, and for the final one."""
        from vibeserve.modalities.speech.metrics import answers_of

        finals = [at_s for at_s, mark in self.marks if FINAL_MARK in mark]
        final_s = finals[-1] - self.committed_s if finals and self.committed_s is not None else 0.0
        return sum(answer.latency_s for answer in answers_of(self)) + final_s


def session_update(*, model: str, rate_hz: int = SAMPLE_RATE_HZ) -> str:
    """The event that configures a session for partial transcripts."""
    audio = {
        "format": {"type": "audio/pcm", "rate": rate_hz},
        "transcription": {"model": model, "partials": True},
        "turn_detection": None,
    }
    return json.dumps({"type": "session.update", "session": {"type": "transcription", "audio": {"input": audio}}})


def append_event(samples: NDArray[np.int16]) -> str:
    audio = base64.b64encode(samples.astype("<i2").tobytes()).decode()
    return json.dumps({"type": "input_audio_buffer.append", "audio": audio})


COMMIT = json.dumps({"type": "input_audio_buffer.commit"})
CLEAR = json.dumps({"type": "input_audio_buffer.clear"})


@dataclass(kw_only=True)
class Heard:
    """What one session has brought so far."""

    partials: list[dict[str, Any]] = field(default_factory=list)
    final: dict[str, Any] | None = None
    marks: list[tuple[float, dict[str, int]]] = field(default_factory=list)
    kinds: list[str] = field(default_factory=list)
    """types of all events, in their order"""
    errors: list[dict[str, Any]] = field(default_factory=list)
    is_strict: bool = True
    """an error event ends the session"""

    def read(self, at_s: float, text: str) -> None:
        """One message. SendError for a malformed event or one that reports an error."""
        try:
            self._read(at_s, json.loads(text))
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            raise SendError(f"malformed event ({type(error).__name__})") from error

    def has(self, kind: str) -> bool:
        return kind in self.kinds

    def forget(self) -> None:
        """What was said so far: another item begins."""
        self.partials.clear()
        self.final = None

    def output(self) -> dict[str, Any] | None:
        """JSON data of a record; None while nothing has come."""
        if not self.partials and self.final is None:
            return None
        return {"partials": self.partials, "final": self.final}

    def _read(self, at_s: float, event: Mapping[str, Any]) -> None:
        kind = event["type"]
        self.kinds.append(kind)
        if kind == "error":
            self.errors.append(dict(event["error"]))
            if self.is_strict:
                raise SendError(f"error event: {str(event['error'].get('message'))[:300]}")
        elif kind == PARTIAL:
            self.partials.append(_transcript_of(event))
            self.marks.append((at_s, {PARTIAL_MARK: self.partials[-1]["audio_end_ms"]}))
        elif kind == COMPLETED:
            self.final = _transcript_of(event)
            self.marks.append((at_s, {FINAL_MARK: self.final["audio_end_ms"]}))


def _transcript_of(event: Mapping[str, Any]) -> dict[str, Any]:
    ids, text, end_ms = event["token_ids"], event["transcript"], event["audio_end_ms"]
    if type(end_ms) is not int or end_ms < 0 or not isinstance(text, str):
        raise TypeError("no transcript")
    if not isinstance(ids, list) or not all(type(token) is int and token >= 0 for token in ids):
        raise TypeError("token_ids are not token ids")
    text.encode()  # a lone surrogate is no text; UnicodeEncodeError is a ValueError
    return {"audio_end_ms": end_ms, "text": text, "token_ids": ids}
