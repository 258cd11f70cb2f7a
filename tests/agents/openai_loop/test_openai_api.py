"""What a server may do wrong, and what follows: wait, give up, ask otherwise, or end the call."""

from __future__ import annotations

import email.utils
import json
import time
from pathlib import Path

import httpx2
import pytest
from scripted_model import CHAT, KEY, RESPONSES, Say, ScriptedModel, call, failed, submit

from vibeserve.agents.openai_loop.client import default_client, is_loopback
from vibeserve.errors import AgentInfraError, InfraError

LOCAL = "http://127.0.0.1:8000/v1"


def error_of(make_backend, make_request, reply, **changes) -> AgentInfraError:
    """What one reply raises."""
    model = ScriptedModel(replies=[reply], paths=changes.pop("paths", (RESPONSES, CHAT)))
    with pytest.raises(AgentInfraError) as caught:
        make_backend(model, **changes).run(make_request())
    return caught.value


@pytest.mark.parametrize(
    ("reply", "words", "retry_after_s"),
    [
        (failed(429, "slow down", headers={"retry-after": "7"}), "answered 429: slow down", 7.0),
        (failed(429, "slow down", headers={"retry-after-ms": "1500", "retry-after": "9"}), "slow down", 1.5),
        (failed(429, "slow down", headers={"retry-after": "soon"}), "slow down", None),
        (failed(429, "You exceeded your current quota", code="insufficient_quota"), "current quota", None),
        (failed(500, "oops"), "https://api.openai.com/v1/responses answered 500: oops", None),
        (failed(503, headers={"retry-after": "-3"}), "answered 503", 0.0),
        (failed(408), "answered 408", None),
        (httpx2.Response(502, text="<html>\nbad gateway</html>"), "answered 502: <html> bad gateway</html>", None),
        (httpx2.ConnectError("refused"), "no answer from https://api.openai.com/v1/responses (ConnectError: refused)",
         None),
        (httpx2.ConnectTimeout("slow"), "ConnectTimeout: slow", None),
        (httpx2.RemoteProtocolError("Server disconnected without sending a response."), "Server disconnected", None),
        (httpx2.ReadError("peer closed connection"), "ReadError: peer closed connection", None),
        (httpx2.Response(200, text="<html>"), "answered 200 with what is no JSON: '<html>'", None),
        (httpx2.Response(200, json=[]), "no answer of the responses API: it has no list 'output'", None),
        (httpx2.Response(200, json={"error": {"message": "overloaded"}}), "/responses reports: overloaded", None),
        (httpx2.Response(200, json={"status": "failed", "error": {"code": "server_error", "message": "x"}}),
         "reports: x", None),
    ],
)  # fmt: skip
def test_what_a_repetition_may_mend(make_backend, make_request, ledger, reply, words, retry_after_s) -> None:
    error = error_of(make_backend, make_request, reply)
    assert words in str(error) and KEY not in str(error)
    assert (error.is_lasting, error.retry_after_s) == (False, retry_after_s)
    assert ledger.of() == []


def test_a_date_to_wait_for(make_backend, make_request) -> None:
    date = email.utils.formatdate(time.time() + 3600, usegmt=True)
    error = error_of(make_backend, make_request, failed(429, headers={"retry-after": date}))
    assert error.retry_after_s is not None and 0 < error.retry_after_s <= 3600


@pytest.mark.parametrize(
    ("reply", "words"),
    [
        (failed(401, "Incorrect API key"), "answered 401: Incorrect API key\nnext: look at the key in OPENAI_API_KEY"),
        (failed(403, "Country not supported"), "answered 403: Country not supported\nnext: look at the key"),
        (failed(404, "The model `scripted` does not exist or you do not have access to it.", code="model_not_found"),
         "next: is agents.model=scripted a model of this server?"),
        (failed(404, "model 'scripted' not found, try pulling it first"), "next: is agents.model=scripted a model"),
        (failed(400, "Unsupported value: 'high'", param="reasoning.effort"), "answered 400: Unsupported value: 'high'"),
    ],
)  # fmt: skip
def test_what_no_repetition_mends(make_backend, make_request, reply, words) -> None:
    error = error_of(make_backend, make_request, reply)
    assert words in str(error)
    assert error.is_lasting


def test_a_server_that_dies_in_mid_call_is_an_infrastructure_error(make_backend, make_request, ledger) -> None:
    model = ScriptedModel(replies=[call("list_files"), httpx2.RemoteProtocolError("incomplete chunked read")])
    with pytest.raises(AgentInfraError, match="incomplete chunked read") as caught:
        make_backend(model).run(make_request())
    assert not caught.value.is_lasting
    assert ledger.usage().num_requests == 1


def test_the_sdk_repeats_nothing_by_itself(make_backend, make_request) -> None:
    model = ScriptedModel(replies=[failed(500)])
    with pytest.raises(AgentInfraError):
        make_backend(model).run(make_request())
    assert len(model.asked) == 1
    assert default_client(LOCAL, KEY).max_retries == 0


def test_a_client_that_breaks_is_told_from_a_server(make_backend, make_request, monkeypatch) -> None:
    monkeypatch.setattr("threading.excepthook", lambda told: None)
    with pytest.raises(InfraError, match="broke off inside the client") as caught:
        make_backend(ScriptedModel(replies=[ValueError("of the client")])).run(make_request())
    assert not isinstance(caught.value, AgentInfraError)


@pytest.mark.parametrize("status", [404, 405, 501])
def test_no_route_of_either_api(make_backend, make_request, status: int) -> None:
    error = error_of(make_backend, make_request, failed(status), base_url=LOCAL)
    assert f"answered {status}" in str(error) and error.is_lasting
    assert "the server has neither Responses nor Chat Completions\nnext: look at agents.base_url (http:" in str(error)


def test_a_path_that_a_server_calls_unknown_is_a_missing_route(make_backend, make_request) -> None:
    model = ScriptedModel(replies=[failed(400, "Unknown path: /v1/responses"), submit()])
    assert make_backend(model).run(make_request()).exit.reason == "done"
    assert model.asked == [RESPONSES, CHAT]


def test_a_declared_api_is_not_left(make_backend, make_request) -> None:
    error = error_of(make_backend, make_request, submit(), paths=(CHAT,), api="responses")
    assert "the server has no /responses\nnext: look at agents.base_url" in str(error) and error.is_lasting
    model = ScriptedModel(replies=[submit()])
    make_backend(model, api="chat").run(make_request())
    assert model.asked == [CHAT]


def test_a_route_that_vanishes_may_come_back(make_backend, make_request) -> None:
    model = ScriptedModel(replies=[call("list_files"), failed(404, "no upstream")])
    with pytest.raises(AgentInfraError, match="no upstream") as caught:
        make_backend(model).run(make_request())
    assert not caught.value.is_lasting
    assert model.asked == [RESPONSES, RESPONSES]


@pytest.mark.parametrize(
    ("refusal", "name"),
    [
        (failed(400, "Encrypted content is not supported with this model.", param="include"), "include"),
        (failed(422, "extra fields not permitted: prompt_cache_key"), "prompt_cache_key"),
        (failed(400, "unknown field", param="parallel_tool_calls"), "parallel_tool_calls"),
    ],
)
def test_a_parameter_that_the_server_refuses_is_left_out_from_then_on(
    make_backend, make_request, refusal, name: str
) -> None:
    model = ScriptedModel(replies=[refusal, call("list_files"), submit()])
    backend = make_backend(model)
    result = backend.run(make_request())
    assert f"asked again without {name}" in result.transcript[0].text
    backend.run(make_request(key="other"))
    assert [name in body for body in model.requests] == [True, False, False, False]


def test_a_shorter_context_than_declared_is_found_out(make_backend, make_request, workspace: Path) -> None:
    (workspace / "long.txt").write_text("word " * 3000)
    replies = [*[call("read_file", path="long.txt")] * 8, failed(400, "maximum context length is 9000", code=None)]
    model = ScriptedModel(replies=[*replies, submit()])
    result = make_backend(model).run(make_request())
    assert result.exit.reason == "done"
    assert [text.startswith("[left out: ") for text in model.results()] == [True, True, *[False] * 6]
    notes = [turn.text for turn in result.transcript if turn.kind == "note"]
    assert notes == ["left out of the context from here on: results of read_file long.txt, read_file long.txt"]


def test_a_context_that_cannot_be_shortened_ends_the_call(make_backend, make_request) -> None:
    model = ScriptedModel(replies=[failed(400, "too long", code="context_length_exceeded")])
    result = make_backend(model).run(make_request())
    assert (result.exit.reason, len(model.requests)) == ("died", 1)
    assert "too long\nnext: lower agents.max_context_tokens" in result.exit.detail


def test_what_the_provider_filters_is_the_agents_doing(make_backend, make_request) -> None:
    model = ScriptedModel(replies=[call("list_files"), failed(400, "flagged", code="invalid_prompt")])
    result = make_backend(model).run(make_request())
    assert (result.exit.reason, result.exit.num_turns) == ("died", 1)
    assert "flagged" in result.exit.detail


def test_a_missing_key_is_named(make_backend, make_request, monkeypatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY")
    monkeypatch.delenv("OTHER_KEY", raising=False)
    error = error_of(make_backend, make_request, submit(), api_key_env="OTHER_KEY")
    assert str(error) == (
        "no key for https://api.openai.com/v1: the environment variable OTHER_KEY is not set\n"
        "next: set it, or name another one in agents.api_key_env"
    )
    assert error.is_lasting


def test_the_named_key_is_sent_and_read_at_use(make_backend, make_request, monkeypatch) -> None:
    model = ScriptedModel(replies=[submit()])
    backend = make_backend(model, api_key_env="OTHER_KEY")
    monkeypatch.setenv("OTHER_KEY", "  another-key\n")
    backend.run(make_request())
    assert model.headers[0]["authorization"] == "Bearer another-key"


def test_a_key_with_blanks_is_refused(make_backend, make_request, monkeypatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "two words")
    error = error_of(make_backend, make_request, submit())
    assert "OPENAI_API_KEY holds no key: it has blanks" in str(error) and "two words" not in str(error)


def test_a_server_on_this_machine_needs_no_key(make_backend, make_request, monkeypatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY")
    model = ScriptedModel(replies=[Say(text="none of that")])
    assert make_backend(model, base_url=LOCAL).run(make_request()).text == "none of that"
    assert model.headers[0]["authorization"] == "Bearer none"


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("http://localhost:1/v1", True), ("http://127.0.0.2/v1", True), ("http://[::1]:8000/v1", True),
        ("https://api.openai.com/v1", False), ("http://127.0.0.1.evil.example/v1", False), ("http://10.0.0.1", False),
    ],
)  # fmt: skip
def test_loopback(url: str, expected: bool) -> None:
    assert is_loopback(url) is expected


@pytest.mark.parametrize("url", ["ftp://x", "localhost:8000", "http://", "http://[::1", "http://x:99999999/v1"])
def test_an_address_that_is_none_is_refused(make_backend, make_request, url: str) -> None:
    error = error_of(make_backend, make_request, submit(), base_url=url)
    assert f"back end openai, role implementer: base_url '{url}' is no http or https address" in str(error)
    assert error.is_lasting


def test_headers_of_the_environment_do_not_replace_the_key(monkeypatch) -> None:
    """OPENAI_CUSTOM_HEADERS is the SDK's own way in."""
    monkeypatch.setenv("OPENAI_CUSTOM_HEADERS", "Authorization: Bearer somebody-elses")
    assert default_client(LOCAL, KEY).default_headers["Authorization"] == f"Bearer {KEY}"


@pytest.mark.parametrize(
    "tool_calls",
    [
        [{"function": {"name": "list_files", "arguments": {"path": "runtime"}}}],
        [{"id": None, "type": "function", "function": {"name": "list_files", "arguments": '{"path": "runtime"}'}}],
    ],
)
def test_chat_servers_that_are_careless_about_calls(make_backend, make_request, tool_calls) -> None:
    first = httpx2.Response(200, json={"choices": [{"message": {"tool_calls": tool_calls}}]})
    model = ScriptedModel(replies=[first, submit()], paths=(CHAT,))
    make_backend(model, api="chat").run(make_request())
    _, _, asked, answered = model.requests[1]["messages"]
    assert answered["tool_call_id"] == asked["tool_calls"][0]["id"] != ""
    assert json.loads(asked["tool_calls"][0]["function"]["arguments"]) == {"path": "runtime"}
    assert answered["content"] == "model.py  33"


def test_calls_of_one_id_are_told_apart(make_backend, make_request) -> None:
    calls = [{"id": "x", "function": {"name": "list_files", "arguments": "{}"}}] * 2
    first = httpx2.Response(200, json={"choices": [{"message": {"content": "", "tool_calls": calls}}]})
    model = ScriptedModel(replies=[first, submit()], paths=(CHAT,))
    make_backend(model, api="chat").run(make_request())
    ids = [message["tool_call_id"] for message in model.requests[1]["messages"] if message["role"] == "tool"]
    assert len(set(ids)) == 2


def test_half_surrogates_go_nowhere(make_backend, make_request, workspace: Path) -> None:
    """JSON can say them; neither a file nor the next request can."""
    model = ScriptedModel(replies=[Say(calls=[("write_file", '{"path": "a", "content": "x\\ud800y"}')]), submit()])
    make_backend(model).run(make_request())
    assert model.results() == ["error: the arguments of write_file hold half of a surrogate pair, which no file takes"]
    assert not (workspace / "a").exists()
    first = httpx2.Response(200, text='{"output": [{"type": "message", "content": "half \\ud800"}]}')
    result = make_backend(ScriptedModel(replies=[first])).run(make_request(key="other"))
    assert result.text == "half ?"
