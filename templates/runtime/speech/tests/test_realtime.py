"""Sessions over the application: events, partial transcripts, faults, and clients that leave."""

from __future__ import annotations

import json
import time

import numpy as np
import pytest
from conftest import make_speech
from local_server import TRANSCRIPTION, LocalServer, Speaker, pcm16, wav
from numpy.typing import NDArray

CHUNK = 8000


def partials(speaker: Speaker) -> list[dict[str, object]]:
    return [event for event in speaker.seen if event["type"] == f"{TRANSCRIPTION}partial"]


def say(speaker: Speaker, samples: NDArray[np.float32], *, size: int = CHUNK) -> dict[str, object]:
    for place in range(0, len(samples), size):
        speaker.append(samples[place : place + size])
        speaker.wait(f"{TRANSCRIPTION}partial")
    return speaker.commit()


def test_every_chunk_has_its_partial_and_the_last_one_is_final(
    server: LocalServer, speech: NDArray[np.float32]
) -> None:
    with Speaker(server) as speaker:
        assert speaker.wait("session.created")["session"]["type"] == "transcription"
        speaker.update()
        final = say(speaker, speech)
    assert [partial["audio_end_ms"] for partial in partials(speaker)] == [500, 1000, 1500, 2000, 2500, 3000]
    assert partials(speaker)[-1]["token_ids"] == final["token_ids"]
    assert final["transcript"] and final["audio_end_ms"] == 3000
    assert final["usage"] == {"type": "duration", "seconds": 3.0}
    kinds = [event["type"] for event in speaker.seen]
    assert kinds.index("input_audio_buffer.committed") < kinds.index(f"{TRANSCRIPTION}delta") < len(kinds) - 1


def test_a_session_that_asks_for_no_partials_gets_none(server: LocalServer, speech: NDArray[np.float32]) -> None:
    with Speaker(server) as speaker:
        speaker.update(partials=False)
        speaker.append(speech[:CHUNK])
        assert speaker.commit()["audio_end_ms"] == 500
    assert not partials(speaker)


def test_a_file_has_the_transcript_of_its_audio(server: LocalServer, speech: NDArray[np.float32]) -> None:
    with Speaker(server) as speaker:
        speaker.update()
        spoken = say(speaker, speech)
    answer = server.transcribe(wav(speech), response_format="verbose_json")
    assert answer.status == 200
    assert (answer.data["text"], answer.data["token_ids"]) == (spoken["transcript"], spoken["token_ids"])


def test_items_know_nothing_of_each_other(server: LocalServer) -> None:
    one, other = make_speech(1.0, seed=21), make_speech(1.0, seed=22)
    with Speaker(server) as speaker:
        speaker.update()
        first, second = say(speaker, one), say(speaker, other)
    with Speaker(server) as alone:
        alone.update()
        assert say(alone, other)["token_ids"] == second["token_ids"]
    committed = [event for event in speaker.seen if event["type"] == "input_audio_buffer.committed"]
    assert committed[1]["previous_item_id"] == committed[0]["item_id"] == first["item_id"] != second["item_id"]


def test_what_is_cleared_is_not_heard(server: LocalServer) -> None:
    one, other = make_speech(1.0, seed=31), make_speech(1.0, seed=32)
    with Speaker(server) as speaker:
        speaker.update()
        speaker.append(other)
        speaker.event("input_audio_buffer.clear")
        speaker.wait("input_audio_buffer.cleared")
        mixed = say(speaker, one)
    with Speaker(server) as alone:
        alone.update()
        assert say(alone, one)["token_ids"] == mixed["token_ids"]


@pytest.mark.parametrize("rate_hz", [8000, 22050, 24000, 44100, 48000])
def test_other_rates_are_heard_to_their_end(server: LocalServer, rate_hz: int) -> None:
    tone = np.sin(np.arange(rate_hz) * 2 * np.pi * 300 / rate_hz).astype(np.float32) * 0.3
    with Speaker(server, rate_hz=rate_hz) as speaker:
        speaker.update()
        final = say(speaker, tone, size=rate_hz // 2)
    assert (final["audio_end_ms"], final["usage"]["seconds"]) == (1000, 1.0)


@pytest.mark.parametrize("level", [0.0, 40.0], ids=["silence", "clipped"])
def test_silence_and_clipping_are_audio(server: LocalServer, level: float) -> None:
    with Speaker(server) as speaker:
        speaker.update()
        assert say(speaker, level * make_speech(1.0, seed=3))["audio_end_ms"] == 1000


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("{not json", "invalid_json"),
        ("[]", "invalid_event"),
        ('{"type": "no.such"}', "invalid_event"),
        ('{"type": "input_audio_buffer.append"}', "missing_parameter"),
        ('{"type": "input_audio_buffer.append", "audio": "%"}', "invalid_value"),
        ('{"type": "input_audio_buffer.append", "audio": "AAAA"}', "invalid_audio"),
        ('{"type": "input_audio_buffer.commit"}', "input_audio_buffer_commit_empty"),
        ('{"type": "session.update", "session": []}', "invalid_value"),
        ('{"type": "session.update", "session": {"type": "realtime"}}', "invalid_value"),
        (
            '{"type": "session.update", "session": {"audio": {"input": {"turn_detection": {"type": "server_vad"}}}}}',
            "invalid_value",
        ),
        ('{"type": "session.update", "session": {"audio": {"input": {"format": {"rate": 7}}}}}', "invalid_audio"),
        (
            '{"type": "session.update", "session": {"audio": {"input": {"transcription": {"model": "other"}}}}}',
            "model_not_found",
        ),
    ],
)
def test_what_is_wrong_is_told_and_the_session_goes_on(server: LocalServer, text: str, code: str) -> None:
    with Speaker(server) as speaker:
        speaker.text(text)
        error = speaker.wait("error")["error"]
        assert (error["code"], error["type"]) == (code, "invalid_request_error") and error["message"]
        speaker.update()


def test_an_item_that_is_too_long_is_refused_and_can_still_be_committed(server: LocalServer) -> None:
    limit_s = server.service.parameters.max_audio_s
    with Speaker(server) as speaker:
        speaker.update(partials=False)
        speaker.append(make_speech(0.5, seed=1))
        speaker.append(np.zeros(round(limit_s * 16000), dtype=np.float32))
        assert speaker.wait("error")["error"]["code"] == "input_audio_buffer_too_long"
        assert speaker.commit()["audio_end_ms"] == 500


def test_speakers_that_leave_free_their_places(server: LocalServer) -> None:
    for seed in range(5):
        speaker = Speaker(server)
        with speaker:
            speaker.update()
            speaker.append(make_speech(0.5, seed=seed))
    deadline_s = time.monotonic() + 30
    while server.service.num_sessions and time.monotonic() < deadline_s:
        time.sleep(0.01)
    assert server.service.num_sessions == 0
    assert server.get("/health").status == 200


def test_one_speaker_too_many_is_told_to_come_back(server: LocalServer) -> None:
    server.service.num_sessions += server.service.parameters.max_sessions
    try:
        with Speaker(server) as speaker:
            speaker.wait("denied")
            assert speaker.denied == 503
        answer = server.transcribe(wav(make_speech(0.2, seed=1)))
        assert (answer.status, answer.headers["retry-after"]) == (503, "1")
    finally:
        server.service.num_sessions -= server.service.parameters.max_sessions


def test_a_frame_that_is_no_text_ends_the_session(server: LocalServer) -> None:
    speaker = Speaker(server)
    speaker.__enter__()
    speaker._say({"type": "websocket.receive", "bytes": pcm16(make_speech(0.1, seed=1))})
    speaker._done.result(timeout=60)
    assert server.service.num_sessions == 0


def test_events_are_json_that_every_client_reads(server: LocalServer) -> None:
    with Speaker(server) as speaker:
        event = speaker.wait("session.created")
    assert event["event_id"] == "event_1" and json.dumps(event)
