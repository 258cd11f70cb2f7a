"""The scripted model server through the clients that talk to such servers: the openai SDK, and plain HTTP."""

from __future__ import annotations

import json
import socket
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import Any

import openai
import pytest

from vibeserve.loopback import FAULTS, Command, Fault, Say, Script, ScriptedServer, Submit
from vibeserve.loopback.script import HUGE_BYTES, MALFORMED

KEY = "r02a1-implementer"
PROMPT = f"Make it faster.\nvibeserve-call: {KEY}\n"
DOCUMENT = {"summary": "done"}
STEPS = (Command("echo hello"), Say("half way"), Submit(DOCUMENT))


@pytest.fixture
def server() -> Iterator[ScriptedServer]:
    with ScriptedServer(script=Script(roles={"implementer": STEPS})) as running:
        yield running


def serving(*steps: Any, **settings: Any) -> ScriptedServer:
    return ScriptedServer(script=Script(roles={"implementer": steps}), **settings)


def post(server: ScriptedServer, path: str, body: object) -> tuple[int, dict[str, str], str]:
    """(status, headers, body); errors are answers."""
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    request = urllib.request.Request(server.root_url + path, data=data, headers={"content-type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=10) as response:
            return response.status, {k.lower(): v for k, v in response.headers.items()}, response.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, {k.lower(): v for k, v in error.headers.items()}, error.read().decode()


def events_of(body: str) -> list[dict[str, Any]]:
    lines = [line.removeprefix("data: ") for line in body.splitlines() if line.startswith("data: ")]
    return [json.loads(line) for line in lines if line != "[DONE]"]


class ResponsesTalk:
    """A conversation of one dialect: what it asks for, what the model said, what it was told."""

    path = "/v1/responses"
    tool = {"type": "function", "name": "run_command", "parameters": {}}
    submit = {"type": "function", "name": "submit", "parameters": {}}

    def __init__(self) -> None:
        self.items: list[dict[str, Any]] = [{"role": "user", "content": [{"type": "input_text", "text": PROMPT}]}]

    def body(self, *, tools: list[dict[str, Any]], stream: bool) -> dict[str, Any]:
        return {"model": "m", "input": self.items, "tools": tools, "stream": stream}

    def read(self, body: str, *, stream: bool) -> tuple[str, Any, int]:
        """(text, (tool, arguments) or None, input tokens)"""
        document = events_of(body)[-1]["response"] if stream else json.loads(body)
        (item,) = document["output"]
        self.items.append(item)
        tokens = document["usage"]["input_tokens"]
        if item["type"] == "function_call":
            return "", (item["name"], json.loads(item["arguments"])), tokens
        return item["content"][0]["text"], None, tokens

    def result(self, text: str) -> None:
        self.items.append({"type": "function_call_output", "call_id": self.items[-1]["call_id"], "output": text})


class ChatTalk(ResponsesTalk):
    path = "/v1/chat/completions"
    tool = {"type": "function", "function": {"name": "bash", "parameters": {}}}
    submit = {"type": "function", "function": {"name": "submit", "parameters": {}}}

    def body(self, *, tools: list[dict[str, Any]], stream: bool) -> dict[str, Any]:
        return {"model": "m", "messages": self.items, "tools": tools, "stream": stream}

    def read(self, body: str, *, stream: bool) -> tuple[str, Any, int]:
        message, tokens = self._streamed(body) if stream else self._whole(body)
        self.items.append(message)
        calls = message.get("tool_calls")
        if calls:
            function = calls[0]["function"]
            return "", (function["name"], json.loads(function["arguments"])), tokens
        return message["content"], None, tokens

    @staticmethod
    def _whole(body: str) -> tuple[dict[str, Any], int]:
        document = json.loads(body)
        return document["choices"][0]["message"], document["usage"]["prompt_tokens"]

    @staticmethod
    def _streamed(body: str) -> tuple[dict[str, Any], int]:
        chunks = events_of(body)
        assert body.endswith("data: [DONE]\n\n")
        deltas = [choice["delta"] for chunk in chunks for choice in chunk["choices"]]
        calls = [call for delta in deltas for call in delta.get("tool_calls", [])]
        tokens = chunks[-1]["usage"]["prompt_tokens"]
        if not calls:
            return {"role": "assistant", "content": "".join(d.get("content") or "" for d in deltas)}, tokens
        arguments = "".join(call["function"]["arguments"] for call in calls)
        call = {**calls[0], "function": {"name": calls[0]["function"]["name"], "arguments": arguments}}
        return {"role": "assistant", "content": None, "tool_calls": [call]}, tokens

    def result(self, text: str) -> None:
        call = self.items[-1]["tool_calls"][0]["id"]
        self.items.append({"role": "tool", "tool_call_id": call, "content": text})


class MessagesTalk(ResponsesTalk):
    path = "/v1/messages"
    tool = {"name": "Bash", "input_schema": {}}
    submit = {"name": "submit", "input_schema": {}}

    def body(self, *, tools: list[dict[str, Any]], stream: bool) -> dict[str, Any]:
        return {"model": "m", "system": "be quick", "messages": self.items, "tools": tools, "stream": stream}

    def read(self, body: str, *, stream: bool) -> tuple[str, Any, int]:
        content, usage = self._streamed(body) if stream else self._whole(body)
        self.items.append({"role": "assistant", "content": content})
        tokens = usage["input_tokens"] + usage["cache_read_input_tokens"]
        (block,) = content
        if block["type"] == "tool_use":
            return "", (block["name"], block["input"]), tokens
        return block["text"], None, tokens

    @staticmethod
    def _whole(body: str) -> tuple[list[dict[str, Any]], dict[str, int]]:
        document = json.loads(body)
        return document["content"], document["usage"]

    @staticmethod
    def _streamed(body: str) -> tuple[list[dict[str, Any]], dict[str, int]]:
        events = events_of(body)
        assert [events[0]["type"], events[-1]["type"]] == ["message_start", "message_stop"]
        block = events[1]["content_block"]
        deltas = [event["delta"] for event in events if event["type"] == "content_block_delta"]
        text = "".join(delta.get("partial_json", delta.get("text")) for delta in deltas)
        whole = {"input": json.loads(text)} if block["type"] == "tool_use" else {"text": text}
        return [{**block, **whole}], events[-2]["usage"]

    def result(self, text: str) -> None:
        call = self.items[-1]["content"][0]["id"]
        block = {"type": "tool_result", "tool_use_id": call, "content": [{"type": "text", "text": text}]}
        self.items.append({"role": "user", "content": [block]})


class GeminiTalk(ResponsesTalk):
    tool = {"functionDeclarations": [{"name": "run_shell_command"}]}
    submit = {"functionDeclarations": [{"name": "submit"}]}
    is_streamed = False

    def __init__(self) -> None:
        self.items = [{"role": "user", "parts": [{"text": PROMPT}]}]

    def body(self, *, tools: list[dict[str, Any]], stream: bool) -> dict[str, Any]:
        self.is_streamed = stream
        return {"contents": self.items, "tools": tools}

    @property
    def path(self) -> str:  # type: ignore[override]
        return f"/v1beta/models/m:{'streamGenerateContent?alt=sse' if self.is_streamed else 'generateContent'}"

    def read(self, body: str, *, stream: bool) -> tuple[str, Any, int]:
        documents = events_of(body) if stream else [json.loads(body)]
        parts = [part for each in documents for part in each["candidates"][0]["content"]["parts"]]
        assert documents[-1]["candidates"][0]["finishReason"] == "STOP"
        tokens = documents[-1]["usageMetadata"]["promptTokenCount"]
        self.items.append({"role": "model", "parts": parts})
        if "functionCall" in parts[0]:
            return "", (parts[0]["functionCall"]["name"], parts[0]["functionCall"]["args"]), tokens
        return "".join(part["text"] for part in parts), None, tokens

    def result(self, text: str) -> None:
        response = {"name": "run_shell_command", "response": {"output": text}}
        self.items.append({"role": "user", "parts": [{"functionResponse": response}]})


TALKS = [ResponsesTalk, ChatTalk, MessagesTalk, GeminiTalk]
COMMANDS = {
    "run_command": {"command": "echo hello"},
    "bash": {"command": "echo hello", "description": "scripted"},
    "Bash": {"command": "echo hello", "description": "scripted"},
    "run_shell_command": {"command": "echo hello", "description": "scripted"},
}


def turn(server: ScriptedServer, talk: ResponsesTalk, *tools: Any, stream: bool) -> tuple[str, Any, int]:
    body = talk.body(tools=list(tools), stream=stream)
    status, headers, text = post(server, talk.path, body)
    assert status == 200, text
    assert headers["content-type"] == ("text/event-stream" if stream else "application/json")
    return talk.read(text, stream=stream)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("kind", TALKS)
def test_a_call_goes_through_its_steps_in_every_dialect(server: ScriptedServer, kind: Any, stream: bool) -> None:
    talk = kind()
    _, call, first = turn(server, talk, talk.tool, stream=stream)
    assert call[1] == COMMANDS[call[0]]
    talk.result("hello")
    text, call, second = turn(server, talk, talk.tool, stream=stream)
    assert (text, call) == ("half way", None)
    assert second > first > 0
    text, call, _ = turn(server, talk, talk.tool, stream=stream)
    assert (json.loads(text), call) == (DOCUMENT, None)
    assert [each.step for each in server.of(KEY)] == list(STEPS)


@pytest.mark.parametrize("kind", TALKS)
def test_an_offered_submit_tool_takes_the_document(kind: Any) -> None:
    with serving(Submit(DOCUMENT)) as server:
        talk = kind()
        _, call, _ = turn(server, talk, talk.submit, stream=False)
    assert call == ("submit", DOCUMENT)


def test_a_repeated_request_gets_the_same_answer(server: ScriptedServer) -> None:
    body = ResponsesTalk().body(tools=[ResponsesTalk.tool], stream=True)
    assert post(server, "/v1/responses", body) == post(server, "/v1/responses", body)


def test_usage_counts_what_was_sent_before_as_cached(server: ScriptedServer) -> None:
    talk = ResponsesTalk()
    body = talk.body(tools=[talk.tool], stream=False)
    first = json.loads(post(server, "/v1/responses", body)[2])
    talk.read(json.dumps(first), stream=False)
    talk.result("x" * 400)
    second = json.loads(post(server, "/v1/responses", talk.body(tools=[talk.tool], stream=False))[2])
    assert first["usage"]["input_tokens"] == len(PROMPT) // 4
    assert first["usage"]["input_tokens_details"]["cached_tokens"] == 0
    assert second["usage"]["input_tokens"] >= first["usage"]["input_tokens"] + 100
    cached = second["usage"]["input_tokens_details"]["cached_tokens"]
    assert first["usage"]["input_tokens"] <= cached < second["usage"]["input_tokens"] - 90


def test_the_openai_sdk_reads_both_of_its_apis(server: ScriptedServer) -> None:
    client = openai.OpenAI(base_url=server.base_url, api_key="k", max_retries=0)
    tool: Any = {"type": "function", "name": "run_command", "parameters": {}, "strict": False}
    with client.responses.stream(model="m", input=PROMPT, tools=[tool]) as stream:
        final = stream.get_final_response()
    assert final.output[0].type == "function_call"
    assert final.usage is not None and final.usage.input_tokens > 0
    chat_tool: Any = {"type": "function", "function": {"name": "run_command", "parameters": {}}}
    messages: Any = [{"role": "user", "content": PROMPT}]
    chunks = list(client.chat.completions.create(model="m", messages=messages, tools=[chat_tool], stream=True))
    assert chunks[-1].usage is not None and chunks[-1].usage.prompt_tokens > 0
    whole = client.chat.completions.create(model="m", messages=messages, tools=[chat_tool])
    assert whole.choices[0].message.tool_calls[0].function.name == "run_command"


def test_a_call_is_told_by_the_last_key_that_the_user_names_and_a_role_stands_for_its_calls() -> None:
    script = Script(roles={"judge": [Say("any")]}, keys={"r01a1-judge": [Say("this one")]})
    with ScriptedServer(script=script) as server:
        for key, expected in (("r01a1-judge", "this one"), ("r07a2-judge", "any"), ("p01-planner", "The script says")):
            content = f"vibeserve-call: other\n...\nvibeserve-call: {key}"
            talk = ChatTalk()
            talk.items = [{"role": "user", "content": content}, {"role": "tool", "content": "vibeserve-call: no"}]
            assert turn(server, talk, talk.tool, stream=False)[0].startswith(expected)


def test_a_request_without_tools_is_beside_the_script() -> None:
    with serving(Fault("500"), Submit(DOCUMENT)) as server:
        text, _, _ = turn(server, ChatTalk(), stream=False)
        assert text == "A side question."
        assert server.of(KEY)[0].step is None
        assert post(server, "/v1/chat/completions", ChatTalk().body(tools=[ChatTalk.tool], stream=False))[0] == 500


@pytest.mark.parametrize("kind", TALKS)
@pytest.mark.parametrize(
    ("fault", "status"), [("429", 429), ("500", 500), ("unauthorised", 401)]
)
def test_faults_of_the_server_fire_as_often_as_they_say(kind: Any, fault: str, status: int) -> None:
    with serving(Command("true"), Fault(fault, times=2, retry_after_s=7), Submit(DOCUMENT)) as server:
        talk = kind()
        turn(server, talk, talk.tool, stream=False)
        talk.result("ok")
        for _ in range(2):
            found, headers, body = post(server, talk.path, talk.body(tools=[talk.tool], stream=False))
            assert found == status
            assert headers.get("retry-after") == ("7" if fault == "429" else None)
            assert "error" in json.loads(body)
        assert json.loads(turn(server, talk, talk.tool, stream=False)[0]) == DOCUMENT


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("kind", TALKS)
def test_a_cut_answer_ends_in_its_middle(kind: Any, stream: bool) -> None:
    with serving(Fault("cut"), Submit(DOCUMENT)) as server:
        talk = kind()
        body = talk.body(tools=[talk.tool], stream=stream)
        with pytest.raises(OSError) as caught:
            post(server, talk.path, body)
        assert not isinstance(caught.value, urllib.error.HTTPError)
        assert json.loads(turn(server, talk, talk.tool, stream=stream)[0]) == DOCUMENT


def test_a_hanging_request_is_let_go_when_the_server_stops() -> None:
    server = serving(Fault("hang"))
    server.start()
    ended: list[BaseException] = []

    def ask() -> None:
        try:
            post(server, "/v1/responses", ResponsesTalk().body(tools=[ResponsesTalk.tool], stream=True))
        except OSError as error:
            ended.append(error)

    client = threading.Thread(target=ask)
    client.start()
    while not server.of(KEY):
        time.sleep(0.01)
    client.join(0.3)
    assert client.is_alive() and not ended
    server.stop()
    client.join(10)
    assert not client.is_alive() and len(ended) == 1
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", server.port), timeout=1)


@pytest.mark.parametrize(("fault", "text"), [("malformed", MALFORMED), ("empty", "")])
def test_faults_of_the_message_end_the_conversation_and_the_next_one_is_right(fault: str, text: str) -> None:
    with serving(Fault(fault), Submit(DOCUMENT)) as server:
        first, again = ChatTalk(), ChatTalk()
        assert turn(server, first, first.tool, stream=False)[0] == text
        assert json.loads(turn(server, again, again.tool, stream=False)[0]) == DOCUMENT


def test_a_refusal_is_said_in_the_words_of_each_api() -> None:
    with serving(Fault("refusal", times=0)) as server:
        tool = [ResponsesTalk.tool]
        item = json.loads(post(server, "/v1/responses", ResponsesTalk().body(tools=tool, stream=False))[2])["output"][0]
        assert item["content"][0]["type"] == "refusal"
        chat = json.loads(post(server, ChatTalk.path, ChatTalk().body(tools=[ChatTalk.tool], stream=False))[2])
        assert chat["choices"][0]["message"]["refusal"] and chat["choices"][0]["message"]["content"] is None
        message = post(server, MessagesTalk.path, MessagesTalk().body(tools=[MessagesTalk.tool], stream=False))[2]
        assert json.loads(message)["stop_reason"] == "refusal"
        talk = GeminiTalk()
        gemini = json.loads(post(server, talk.path, talk.body(tools=[talk.tool], stream=False))[2])
        assert gemini["candidates"][0] == {"index": 0, "finishReason": "SAFETY"}


def test_an_endless_script_never_moves_on_and_a_huge_one_does() -> None:
    with serving(Fault("huge"), Fault("endless"), Submit(DOCUMENT)) as server:
        talk = MessagesTalk()
        _, call, _ = turn(server, talk, talk.tool, stream=True)
        assert str(HUGE_BYTES) in call[1]["command"]
        for _ in range(5):
            talk.result("x")
            assert turn(server, talk, talk.tool, stream=True)[1][1]["command"] == "echo again"


def test_a_garbled_answer_is_no_document() -> None:
    with serving(Fault("garbled")) as server:
        status, headers, body = post(server, ChatTalk.path, ChatTalk().body(tools=[ChatTalk.tool], stream=True))
    assert (status, headers["content-type"], body) == (200, "text/html", "<html>upstream error</html>")


def test_a_wrong_key_is_refused_where_one_is_expected() -> None:
    with serving(Submit(DOCUMENT), expected_key="sk-right") as server:
        messages: Any = [{"role": "user", "content": PROMPT}]
        for key in ("sk-wrong", "sk-right"):
            client = openai.OpenAI(base_url=server.base_url, api_key=key, max_retries=0)
            if key == "sk-wrong":
                with pytest.raises(openai.AuthenticationError, match="this key is not known"):
                    client.chat.completions.create(model="m", messages=messages)
            else:
                assert client.chat.completions.create(model="m", messages=messages).choices[0].message.content
        assert "sk-right" not in server.requests[-1].body
        assert server.requests[-1].headers["authorization"] == "Bearer sk-right"


def test_a_request_that_cannot_be_read_is_answered_with_its_reason(server: ScriptedServer) -> None:
    status, _, body = post(server, "/v1/responses", b"{not json")
    assert (status, "the request cannot be read" in body) == (400, True)
    assert post(server, "/v1/nothing", {})[0] == 404


def test_an_unknown_fault_is_refused() -> None:
    with pytest.raises(AssertionError, match=f"unknown fault 'earthquake'; valid faults: {', '.join(FAULTS)}"):
        Fault("earthquake")
