"""The routes around the sessions."""

from __future__ import annotations

import numpy as np
import pytest
from conftest import make_speech
from local_server import LocalServer, Speaker, wav

WAV = wav(make_speech(0.5, seed=5))


def test_operators_see_its_state(server: LocalServer) -> None:
    assert server.get("/live").data == {"status": "live"}
    assert server.get("/health").data == {"status": "ok"}
    metrics = server.get("/metrics").body.decode()
    assert "# TYPE vllm:num_requests_running gauge" in metrics and 'span="prefill"' in metrics


def test_the_model_is_listed(server: LocalServer) -> None:
    (card,) = server.get("/v1/models").data["data"]
    assert server.get(f"/v1/models/{card['id']}").data["id"] == card["id"] == server.service.model_name
    assert server.get("/v1/models/other").status == 404


@pytest.mark.parametrize("kind", ["json", "text", "verbose_json"])
def test_a_file_is_transcribed(server: LocalServer, kind: str) -> None:
    answer = server.transcribe(WAV, response_format=kind, model=server.service.model_name)
    assert answer.status == 200
    text = answer.body.decode().removesuffix("\n") if kind == "text" else answer.data["text"]
    assert text == server.transcribe(WAV).data["text"] != ""


def test_channels_are_averaged_and_rates_converted(server: LocalServer) -> None:
    samples = make_speech(0.5, seed=5)
    assert server.transcribe(wav(samples, channels=2)).data["text"] == server.transcribe(wav(samples)).data["text"]
    assert server.transcribe(wav(samples, rate_hz=8000)).data["usage"]["seconds"] == 1.0


@pytest.mark.parametrize(
    ("file", "fields", "status"),
    [
        (None, {}, 400),
        (b"RIFFnothing", {}, 400),
        (WAV[:50], {}, 400),
        (wav(np.zeros(0, dtype=np.float32)), {}, 400),
        (WAV, {"response_format": "srt"}, 400),
        (WAV, {"model": "other"}, 404),
    ],
)
def test_bad_forms_are_refused(server: LocalServer, file: bytes | None, fields: dict[str, str], status: int) -> None:
    answer = server.transcribe(file, **fields)
    assert answer.status == status
    assert answer.data["error"]["message"] and answer.data["error"]["type"]


def test_a_file_that_is_too_long_is_refused_not_cut(server: LocalServer) -> None:
    seconds = server.service.parameters.max_audio_s + 1
    answer = server.transcribe(wav(np.zeros(round(8000 * seconds), dtype=np.float32), rate_hz=8000))
    assert answer.status == 400 and "at most" in answer.data["error"]["message"]


@pytest.mark.parametrize("body", [b"", b"{}", b"--x--"])
def test_what_is_no_form_is_refused(server: LocalServer, body: bytes) -> None:
    answer = server.post("/v1/audio/transcriptions", body, headers={"content-type": "application/json"})
    assert answer.status == 400 and "multipart" in answer.data["error"]["message"]


def test_request_ids_come_back(server: LocalServer) -> None:
    assert server.get("/v1/models", headers={"x-request-id": "mine"}).headers["x-request-id"] == "mine"
    assert server.get("/no-such-route").status == 404


def test_a_key_is_asked_of_files_and_of_speakers(server: LocalServer) -> None:
    from runtime.http import create_app

    server.service.api_key = "secret"
    kept, server.app = server.app, create_app(server.service)
    try:
        assert server.get("/health").status == 200
        assert server.transcribe(WAV).status == 401
        with Speaker(server) as speaker:
            speaker.wait("denied")
            assert speaker.denied == 401
        with Speaker(server, headers={"authorization": "Bearer secret"}) as speaker:
            speaker.update()
    finally:
        server.service.api_key, server.app = None, kept
