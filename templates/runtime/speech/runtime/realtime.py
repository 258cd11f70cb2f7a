"""One client that speaks: OpenAI's Realtime transcription events over a WebSocket.

Audio that the client commits is an item; its transcript comes as a delta and as `completed`. Where the session asked
for `transcription.partials` the transcript of the audio so far comes as well, as often as the model can
(`conversation.item.input_audio_transcription.partial`, with `audio_end_ms`). Turns are the client's to detect.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import json
from collections.abc import Callable, Mapping
from time import perf_counter
from typing import Any
from uuid import uuid4

from starlette.websockets import WebSocket, WebSocketDisconnect

from .audio import AudioError, Resampler, from_pcm16
from .engine import Hearing, Transcribed
from .service import Service

TRANSCRIPTION = "conversation.item.input_audio_transcription."
DEFAULT_RATE_HZ = 24000
"""of the Realtime API's audio/pcm"""


class EventError(Exception):
    """An event that cannot be served; the session goes on."""

    def __init__(self, message: str, *, code: str, param: str | None = None) -> None:
        self.code, self.param = code, param
        super().__init__(message)


class RealtimeSession:
    """Lives on the event loop; what the engine finds is sent by a task of its own."""

    def __init__(self, websocket: WebSocket, service: Service) -> None:
        self._websocket, self._service = websocket, service
        self._session_id = f"sess_{uuid4().hex}"
        self._outgoing: asyncio.Queue[dict[str, Any] | None] = asyncio.Queue()
        self._num_events = 0
        self._rate_hz = DEFAULT_RATE_HZ
        self._has_partials = False
        self._previous_item: str | None = None
        self._item: Item | None = None
        self._open_items: set[Item] = set()

    async def run(self) -> None:
        """Until the client leaves."""
        await self._websocket.accept()
        self._send("session.created", session=self._described())
        sender = asyncio.create_task(self._send_all())
        try:
            while True:
                message = await self._websocket.receive_text()
                started_s = perf_counter()
                self._take(message)
                self._service.spans.add("http", perf_counter() - started_s)
        except (WebSocketDisconnect, KeyError):
            pass  # it left, or sent what is no text, which ends a session as well
        finally:
            for item in self._open_items:
                self._service.engine.drop(item.hearing)
            self._outgoing.put_nowait(None)
            await sender

    async def _send_all(self) -> None:
        """Until the session ends. A client that has gone is not told any more."""
        while (event := await self._outgoing.get()) is not None:
            try:
                await self._websocket.send_text(json.dumps(event, ensure_ascii=False))
            except (WebSocketDisconnect, RuntimeError):
                return

    def _send(self, kind: str, **fields: Any) -> None:
        self._num_events += 1
        self._outgoing.put_nowait({"type": kind, "event_id": f"event_{self._num_events}", **fields})

    # -- what the client says

    def _take(self, message: str) -> None:
        event: Any = None
        try:
            event = json.loads(message)
            if not isinstance(event, dict) or not isinstance(event.get("type"), str):
                raise EventError("an event is a JSON object with a type", code="invalid_event")
            handler = self._handlers().get(event["type"])
            if handler is None:
                raise EventError(
                    f"unknown event type '{event['type'][:80]}'; known: {', '.join(self._handlers())}",
                    code="invalid_event", param="type",
                )  # fmt: skip
            handler(event)
        except (json.JSONDecodeError, RecursionError) as error:
            self._send_error(EventError(f"the event is no JSON: {error}", code="invalid_json"), event)
        except AudioError as error:
            self._send_error(EventError(str(error), code="invalid_audio", param="audio"), event)
        except EventError as error:
            self._send_error(error, event)

    def _handlers(self) -> dict[str, Callable[[Mapping[str, Any]], None]]:
        return {
            "session.update": self._update,
            "input_audio_buffer.append": self._append,
            "input_audio_buffer.commit": self._commit,
            "input_audio_buffer.clear": self._clear,
        }

    def _send_error(self, error: EventError, event: Any) -> None:
        event_id = event.get("event_id") if isinstance(event, dict) else None
        fields = {"code": error.code, "message": str(error), "param": error.param, "event_id": event_id}
        self._send("error", error={"type": "invalid_request_error", **fields})

    def _update(self, event: Mapping[str, Any]) -> None:
        session = mapping(event, "session")
        if session.get("type", "transcription") != "transcription":
            raise EventError(
                "only sessions of type transcription are served", code="invalid_value", param="session.type"
            )
        audio = mapping(mapping(session, "audio"), "input")
        form, asked = mapping(audio, "format"), mapping(audio, "transcription")
        rate = form.get("rate", self._rate_hz)
        if form.get("type", "audio/pcm") != "audio/pcm" or type(rate) is not int:
            raise EventError(
                "the format is audio/pcm with a rate in Hz", code="invalid_value", param="audio.input.format"
            )
        if audio.get("turn_detection") is not None:
            where = "audio.input.turn_detection"
            raise EventError("turns are the client's to commit: null is served", code="invalid_value", param=where)
        model = asked.get("model")
        if model is not None and model != self._service.model_name:
            text = f"the model '{str(model)[:80]}' does not exist; this server has '{self._service.model_name}'"
            raise EventError(text, code="model_not_found", param="audio.input.transcription.model")
        if self._item is not None and rate != self._rate_hz:
            raise EventError(
                "the rate cannot change within an item", code="invalid_value", param="audio.input.format.rate"
            )
        Resampler(rate, to_hz=self._service.sample_rate_hz)  # a rate that cannot be served is told now
        self._rate_hz = rate
        self._has_partials = bool(asked.get("partials", self._has_partials))
        self._send("session.updated", session=self._described())

    def _append(self, event: Mapping[str, Any]) -> None:
        audio = event.get("audio")
        if not isinstance(audio, str):
            raise EventError("audio is missing: base64 of pcm16", code="missing_parameter", param="audio")
        try:
            data = base64.b64decode(audio, validate=True)
        except binascii.Error as error:
            raise EventError(f"audio is no base64: {error}", code="invalid_value", param="audio") from error
        samples = from_pcm16(data)
        if self._item is None:
            self._item = self._opened()
        item = self._item
        limit_s = self._service.parameters.max_audio_s
        if item.num_samples + len(samples) > limit_s * self._rate_hz:
            text = f"an item holds at most {limit_s:g} s of audio; commit it first"
            raise EventError(text, code="input_audio_buffer_too_long", param="audio")
        if len(samples):
            item.num_samples += len(samples)
            self._service.engine.hear(item.hearing, item.resampler.push(samples), end_ms=item.end_ms)

    def _commit(self, event: Mapping[str, Any]) -> None:
        item = self._item
        if item is None or not item.num_samples:
            raise EventError("there is no audio to commit", code="input_audio_buffer_commit_empty")
        self._item = None
        self._send("input_audio_buffer.committed", item_id=item.id, previous_item_id=self._previous_item)
        self._previous_item = item.id
        rest = item.resampler.finish()
        if len(rest):
            self._service.engine.hear(item.hearing, rest, end_ms=item.end_ms)
        self._service.engine.commit(item.hearing)

    def _clear(self, event: Mapping[str, Any]) -> None:
        if self._item is not None:
            self._service.engine.drop(self._item.hearing)
            self._open_items.discard(self._item)
            self._item = None
        self._send("input_audio_buffer.cleared")

    # -- what the engine says

    def _opened(self) -> Item:
        item = Item(self._rate_hz, to_hz=self._service.sample_rate_hz)
        item.hearing = self._service.engine.open(lambda found: self._tell(item, found))
        self._open_items.add(item)
        return item

    def _tell(self, item: Item, found: Transcribed) -> None:
        if item not in self._open_items:
            return
        fields = {"item_id": item.id, "content_index": 0, "audio_end_ms": found.audio_end_ms}
        ids = list(found.token_ids)
        if not found.is_final:
            if self._has_partials:
                self._send(f"{TRANSCRIPTION}partial", **fields, transcript=found.text, token_ids=ids)
            return
        self._open_items.discard(item)
        if found.text:
            self._send(f"{TRANSCRIPTION}delta", item_id=item.id, content_index=0, delta=found.text)
        usage = {"type": "duration", "seconds": item.num_samples / item.rate_hz}
        self._send(f"{TRANSCRIPTION}completed", **fields, transcript=found.text, token_ids=ids, usage=usage)
        self._service.metrics.count_finished("stop")

    def _described(self) -> dict[str, Any]:
        form = {"type": "audio/pcm", "rate": self._rate_hz}
        asked = {"model": self._service.model_name, "partials": self._has_partials}
        audio = {"input": {"format": form, "transcription": asked, "turn_detection": None}}
        return {
            "id": self._session_id,
            "object": "realtime.transcription_session",
            "type": "transcription",
            "audio": audio,
        }


class Item:
    """Audio up to a commit."""

    hearing: Hearing

    def __init__(self, rate_hz: int, *, to_hz: int) -> None:
        self.id = f"item_{uuid4().hex[:20]}"
        self.rate_hz = rate_hz
        self.resampler = Resampler(rate_hz, to_hz=to_hz)
        self.num_samples = 0
        """of the client, at its rate"""

    @property
    def end_ms(self) -> int:
        return self.num_samples * 1000 // self.rate_hz


def mapping(event: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """A part of an event that may be left out."""
    value = event.get(name)
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise EventError(f"{name} is no JSON object", code="invalid_value", param=name)
    return value
