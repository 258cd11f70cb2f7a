"""The proxy as a gate: which requests pass, whose, with which headers; what is recorded; that the key stays outside."""

from __future__ import annotations

import json
import socket
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from proxy_rig import KEY, PATHS, Call, Client, ScriptedApi, Setup, responses_events

from vibeserve.agents.proxy import Proxy, read_traffic, upstream_of
from vibeserve.agents.proxy.dialects import error_body
from vibeserve.agents.proxy.redaction import REDACTED, Redactor
from vibeserve.errors import InfraError, SpecError

Start = Callable[..., Setup]
REQUEST = {"model": "big", "input": "hello"}
WHOLE = responses_events()[-1]["response"]


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/v1/responses"),
        ("PUT", "/v1/responses"),
        ("DELETE", "/v1/responses"),
        ("OPTIONS", "/v1/responses"),
        ("POST", "/v1/embeddings"),
        ("POST", "/v1/files"),
        ("POST", "/v1/responses/r1/cancel"),
        ("GET", "/v1/models/big"),
        ("POST", "/"),
        ("GET", "/"),
        ("POST", "/v1beta/models/a/b:generateContent"),
        ("POST", "/v1beta/models/big:embedContent"),
        ("POST", "/v1beta/models/..%2f..%2ffiles:generateContent"),
        ("POST", "http://192.0.2.1/v1/embeddings"),
    ],
)
def test_nothing_but_requests_to_a_model_is_let_through(start: Start, api: ScriptedApi, method: str, path: str) -> None:
    setup = start()
    reply = setup.ask(path, REQUEST, method=method)
    assert reply.status == 404
    error = reply.json["error"]
    assert "is not let through, only requests to a model (responses, chat, messages, gemini)" in error["message"]
    assert error["code"] == "unknown_route" and reply.headers["x-should-retry"] == "false"
    assert api.calls == [] and setup.ledger.of() == []


@pytest.mark.parametrize(
    ("path", "sent"),
    [
        ("/responses", "/v1/responses"),
        ("/any/prefix/v1/responses", "/v1/responses"),
        ("/../../admin/v1/chat/completions", "/v1/chat/completions"),
        ("http://192.0.2.1/v1/chat/completions", "/v1/chat/completions"),
        ("/v1/messages?beta=true", "/v1/messages?beta=true"),
        ("/messages", "/v1/messages"),
        ("/v1beta/models/m:streamGenerateContent?alt=sse&key=K", "/v1beta/models/m:streamGenerateContent?alt=sse"),
        ("/v1/models/big:generateContent", "/v1/models/big:generateContent"),
        ("/models/big:generateContent", "/v1beta/models/big:generateContent"),
    ],
)  # fmt: skip
def test_the_client_chooses_neither_host_nor_path(start: Start, api: ScriptedApi, path: str, sent: str) -> None:
    api.answers(lambda call: call.json({}))
    setup = start()
    assert setup.ask(path, REQUEST, headers={"Host": "evil.example"}).status == 200
    assert api.calls[0].path == sent
    assert api.calls[0].headers["Host"] == api.url.removeprefix("http://")


def test_a_dialect_that_is_not_named_is_not_spoken(start: Start, api: ScriptedApi) -> None:
    setup = start(dialects=("messages",))
    reply = setup.ask(PATHS["responses"], REQUEST)
    assert reply.status == 404
    assert reply.json["error"]["message"].endswith("only requests to a model (messages)")
    assert reply.json["error"]["type"] == "not_found_error"


def test_who_does_not_show_the_calls_key_is_refused(start: Start, api: ScriptedApi) -> None:
    setup, other = start(), start()
    for key in ("", "x", other.proxy.client_key, KEY):
        reply = Client(proxy=setup.proxy, key=key).ask(PATHS["responses"], REQUEST)
        assert reply.status == 401
        assert reply.json["error"]["message"].startswith("this is not the key of this call\nnext: give the client")
    assert api.calls == []


@pytest.mark.parametrize("by", ["Authorization", "x-api-key", "x-goog-api-key", "query"])
def test_the_calls_key_is_taken_wherever_a_client_puts_it(start: Start, api: ScriptedApi, by: str) -> None:
    api.answers(lambda call: call.json({}))
    setup = start()
    key = setup.proxy.client_key
    headers = {"Authorization": "Bearer placeholder"} | ({by: f"Bearer {key}" if by == "Authorization" else key})
    path = PATHS["chat"] + (f"?key={key}" if by == "query" else "")
    assert setup.ask(path, REQUEST, headers={} if by == "query" else headers).status == 200
    assert key not in api.calls[0].path + str(api.calls[0].headers)


def test_headers_of_the_connection_and_of_the_client_stay_behind(start: Start, api: ScriptedApi) -> None:
    api.answers(
        lambda call: call.json({}, set_cookie="a=b", x_request_id="r1", x_ratelimit_remaining="5", server_id="s")
    )
    setup = start()
    given = {
        "Cookie": "c=1", "Proxy-Authorization": "Basic x", "Connection": "keep-alive, X-Private", "X-Private": "1",
        "OpenAI-Organization": "other", "X-Forwarded-For": "1.2.3.4", "api-key": "z", "Accept-Encoding": "br",
        "anthropic-beta": "tools", "X-Custom": "kept", "User-Agent": "codex",
    }  # fmt: skip
    reply = setup.ask(PATHS["messages"], REQUEST, headers=given)
    sent = {name.lower(): value for name, value in api.calls[0].headers.items()}
    assert not set(sent) & {
        "cookie", "proxy-authorization", "x-private", "openai-organization", "x-forwarded-for", "api-key",
        "authorization",
    }  # fmt: skip
    assert (sent["anthropic-beta"], sent["x-custom"], sent["user-agent"]) == ("tools", "kept", "codex")
    assert sent["accept-encoding"] == "identity"
    assert (reply.headers["x-request-id"], reply.headers["x-ratelimit-remaining"]) == ("r1", "5")
    assert "Set-Cookie" not in reply.headers and "server-id" not in reply.headers


@pytest.mark.parametrize(
    ("dialect", "declared", "base_url", "variable"),
    [
        ("responses", "", "https://api.openai.com/v1", "OPENAI_API_KEY"),
        ("chat", "https://host.example/v1/", "https://host.example/v1", "OPENAI_API_KEY"),
        ("messages", "", "https://api.anthropic.com", "ANTHROPIC_API_KEY"),
        ("messages", "https://host.example/v1", "https://host.example", "ANTHROPIC_API_KEY"),
        ("gemini", "", "https://generativelanguage.googleapis.com", "GEMINI_API_KEY"),
        ("gemini", "https://host.example/v1beta/", "https://host.example", "GEMINI_API_KEY"),
        ("chat", "http://127.0.0.1:8000/v1", "http://127.0.0.1:8000/v1", ""),
        ("chat", "http://[::1]:8000/v1", "http://[::1]:8000/v1", ""),
        ("messages", "http://localhost:8000", "http://localhost:8000", ""),
    ],
)
def test_what_is_not_declared_is_the_providers_own(dialect: str, declared: str, base_url: str, variable: str) -> None:
    upstream = upstream_of(dialect, base_url=declared)
    assert (upstream.base_url, upstream.api_key_env) == (base_url, variable)
    assert upstream_of(dialect, base_url=declared, api_key_env="MINE").api_key_env == "MINE"


def test_an_echoed_key_reaches_neither_client_nor_record(start: Start, api: ScriptedApi) -> None:
    """In bodies, headers, errors and streams, also where it is split between two pieces."""

    def split(call: Call) -> None:
        call.begin(200, kind="text/event-stream")
        text = f'data: {{"type":"response.output_text.delta","delta":"your key is {KEY}!"}}\n\n'.encode()
        middle = text.index(KEY.encode()) + len(KEY) // 2
        call.send(text[:middle])
        call.send(text[middle:])
        for item in responses_events():
            call.send(b"data: " + json.dumps(item).encode() + b"\n\n")
        call.end()

    api.answers(
        split,
        lambda call: call.json({"error": {"message": f"Incorrect API key provided: {KEY}"}}, 401, x_request_id=KEY),
        lambda call: call.json({**WHOLE, "echo": call.headers["Authorization"]}),
        lambda call: call.json({"error": {"message": f"odd {KEY}"}}, 400),
    )
    setup = start()
    replies = [setup.ask(PATHS["responses"], REQUEST) for _ in range(2)]
    told = str(setup.proxy.last_failure)
    replies.append(setup.ask(PATHS["responses"], {**REQUEST, "input": f"is it {KEY}?"}))
    replies.append(setup.ask(PATHS["responses"], REQUEST))
    for reply in replies:
        assert KEY not in reply.text + str(reply.headers) and REDACTED in reply.text
    assert KEY not in told + setup.proxy.last_refusal and REDACTED in told
    assert f"your key is {REDACTED}!" in replies[0].text
    record = (setup.record_dir / "traffic.jsonl").read_text()
    assert KEY not in record and json.dumps(KEY)[1:-1] not in record
    assert record.count(REDACTED) >= 4
    assert setup.ledger.of()[0].usage.tokens == 1050


@pytest.mark.parametrize("size", [1, 2, 3, 7, 1000])
def test_the_redaction_of_a_stream_does_not_depend_on_its_pieces(size: int) -> None:
    key = 'secret"key/\\+with ends'
    text = f"a {key} b {json.dumps(key)} {key[:-1]} {key[:4]}{key} secre".encode()
    stream = Redactor(key).stream()
    out = b"".join(stream.feed(text[at : at + size]) for at in range(0, len(text), size)) + stream.finish()
    assert out == Redactor(key).clean(text)
    assert out.count(REDACTED.encode()) == 3 and key.encode() not in out


def test_an_event_is_never_held_back_for_redaction() -> None:
    stream = Redactor(KEY).stream()
    piece = f"data: {KEY[:10]}\n\n".encode()
    assert stream.feed(piece) == piece


def test_a_word_that_stands_for_no_key_is_not_taken_for_one() -> None:
    assert Redactor("EMPTY").clean(b"EMPTY handed") == b"EMPTY handed"


def test_the_record_holds_what_passed_and_no_headers(start: Start, api: ScriptedApi) -> None:
    api.answers(lambda call: call.json(WHOLE), lambda call: call.stream(responses_events()))
    setup = start()
    setup.ask(PATHS["responses"], REQUEST, headers={"X-Custom": "not recorded"})
    streamed = setup.ask(PATHS["responses"], {**REQUEST, "stream": True})
    whole, stream = setup.traffic
    assert set(whole) == {
        "schema_version", "number", "role", "key", "backend", "dialect", "model", "path", "is_metered", "answered_by",
        "request", "status", "content_type", "response", "is_whole", "note", "usage", "usd", "is_estimate", "seconds",
    }  # fmt: skip
    assert (whole["schema_version"], whole["number"], stream["number"]) == (1, 1, 2)
    assert (whole["request"], whole["response"], whole["status"]) == (REQUEST, WHOLE, 200)
    assert (stream["response"], stream["is_whole"], stream["note"]) == (streamed.text, True, "")
    assert (whole["role"], whole["dialect"], whole["path"]) == ("implementer", "responses", "/responses")
    assert whole["usage"]["input_tokens"] == 1000 and whole["usd"] == pytest.approx(0.0114)
    assert "not recorded" not in json.dumps(whole)
    exchanges = read_traffic(setup.record_dir / "traffic.jsonl")
    assert [exchange.number for exchange in exchanges] == [1, 2] and exchanges[0].request == REQUEST


def test_what_is_no_recording_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "traffic.jsonl"
    with pytest.raises(SpecError, match=r"cannot read the recorded traffic .*traffic\.jsonl: .*No such file"):
        read_traffic(path)
    path.write_text("{}\n")
    with pytest.raises(SpecError, match=r"jsonl:1: no recorded exchange: .*\nnext: name a traffic\.jsonl that"):
        read_traffic(path)
    path.write_text("{broken\n")
    with pytest.raises(SpecError, match=r"traffic\.jsonl:1: no recorded exchange"):
        read_traffic(path)


def test_another_version_of_the_record_is_refused(start: Start, api: ScriptedApi) -> None:
    api.answers(lambda call: call.json(WHOLE))
    setup = start()
    setup.ask(PATHS["responses"], REQUEST)
    path = setup.record_dir / "traffic.jsonl"
    path.write_text(path.read_text().replace('"schema_version":1', '"schema_version":2'))
    with pytest.raises(SpecError, match=r"traffic\.jsonl:1: schema_version 2, expected 1"):
        read_traffic(path)


def test_a_record_that_cannot_be_written_ends_the_call(start: Start, api: ScriptedApi) -> None:
    api.answers(lambda call: call.json(WHOLE))
    setup = start()
    (setup.record_dir / "traffic.jsonl").mkdir()
    assert setup.ask(PATHS["responses"], REQUEST).status == 200
    assert setup.ask(PATHS["responses"], REQUEST).status == 403
    with pytest.raises(InfraError, match=r"what r01a1-implementer spends cannot be recorded: .*Is a directory"):
        setup.proxy.stop()


def test_the_socket_is_for_this_user_alone_and_goes_with_the_proxy(start: Start) -> None:
    setup = start()
    path = setup.proxy.socket
    assert stat.S_ISSOCK(path.stat().st_mode) and len(str(path)) < 108
    assert path.parent.stat().st_mode & 0o077 == 0
    setup.proxy.stop()
    assert not path.parent.exists()


def test_a_context_manager_starts_and_stops(start: Start, api: ScriptedApi, tmp_path: Path) -> None:
    like = start()
    arguments: dict[str, Any] = {
        "role": "judge", "key": "k", "backend": "claude", "model": "big", "ledger": like.ledger, "max_turns": 1,
        "upstreams": [upstream_of("chat", base_url=api.url)], "record_dir": tmp_path,
    }  # fmt: skip
    with Proxy(**arguments) as proxy:
        with socket.socket(socket.AF_UNIX) as peer:
            peer.connect(str(proxy.socket))
    with pytest.raises(AssertionError, match="does not run"):
        _ = proxy.socket


def test_every_error_of_ours_names_its_kind() -> None:
    assert error_body("messages", status=502, code="x", message="m")["error"]["type"] == "api_error"
    assert error_body("messages", status=401, code="x", message="m")["error"]["type"] == "authentication_error"
    assert error_body("gemini", status=504, code="x", message="m")["error"]["status"] == "DEADLINE_EXCEEDED"
    assert error_body("chat", status=502, code="x", message="m")["error"]["type"] == "api_error"
