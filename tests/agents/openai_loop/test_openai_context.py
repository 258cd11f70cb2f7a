"""The context: what is left out when it grows too long, and what never is."""

from __future__ import annotations

import copy
import json
from pathlib import Path

import pytest
from scripted_model import CHAT, RESPONSES, Say, ScriptedModel, call, submit

from vibeserve.agents.openai_loop.conversation import Conversation, ModelTurn, ToolCall, described


def conversation_of(num_turns: int, *, chars: int = 4000) -> Conversation:
    """A prompt, then answers of one call each with results of `chars` characters."""
    made = Conversation()
    made.say("p" * 40)
    for number in range(num_turns):
        asked = ToolCall(call_id=f"c{number}", name="read_file", arguments=json.dumps({"path": f"runtime/{number}.py"}))
        made.answer(ModelTurn(calls=(asked,), items=({"n": number},)))
        made.result(asked, "x" * chars)
    return made


def texts(conversation: Conversation) -> list[str]:
    return [entry.text for entry in conversation.entries if not isinstance(entry, str | ModelTurn)]


def test_below_the_limit_nothing_changes() -> None:
    made = conversation_of(10)
    before = copy.deepcopy(made.entries)
    assert made.num_tokens() == 10_030
    assert made.trim(max_tokens=10_030) == []
    assert made.entries == before


def test_the_oldest_results_go_down_to_three_quarters() -> None:
    made = conversation_of(10)
    left_out = made.trim(max_tokens=9_000)
    assert [result.call.call_id for result in left_out] == ["c0", "c1", "c2", "c3"]
    line = "[left out: 4000 characters of read_file runtime/0.py; call it again if needed]"
    assert texts(made)[0] == line
    assert [text == "x" * 4000 for text in texts(made)] == [False] * 4 + [True] * 6
    assert made.num_tokens() < 0.75 * 9_000
    assert made.trim(max_tokens=9_000) == []


def test_no_more_goes_than_three_quarters_asks_for() -> None:
    made = conversation_of(20)
    assert len(made.trim(max_tokens=20_000)) == 6  # 20,060 tokens less 15,000, at about 980 a result
    assert 0.70 * 20_000 < made.num_tokens() <= 0.75 * 20_000


def test_the_prompt_and_the_last_six_turns_stay_whatever_the_limit() -> None:
    made = conversation_of(10)
    made.trim(max_tokens=1)
    assert made.entries[0] == "p" * 40
    assert sum(text == "x" * 4000 for text in texts(made)) == 6
    short = conversation_of(6)
    assert short.trim(max_tokens=1) == []


def test_instructions_and_tools_count() -> None:
    assert conversation_of(10).trim(max_tokens=10_500) == []
    assert conversation_of(10).trim(max_tokens=10_500, num_fixed_chars=4 * 1000) != []


def test_results_shorter_than_the_line_stay() -> None:
    made = conversation_of(10, chars=30)
    assert made.trim(max_tokens=1) == []


def test_the_rule_is_deterministic() -> None:
    first, second = conversation_of(30), conversation_of(30)
    first.trim(max_tokens=12_000)
    second.trim(max_tokens=12_000)
    assert first.entries == second.entries


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ('{"path": "a.py", "offset": 3}', "read_file a.py"), ('{"command": "make\\ntest"}', "read_file make"),
        ("{}", "read_file"), ("{", "read_file"), ("[1]", "read_file"), ('{"path": " "}', "read_file"),
    ],
)  # fmt: skip
def test_a_call_in_a_few_words(arguments: str, expected: str) -> None:
    assert described(ToolCall(call_id="1", name="read_file", arguments=arguments)) == expected


def test_a_long_call_is_kept_short(make_backend, make_request, workspace: Path, paths) -> None:
    """Through the back end: pairs of calls and results stay whole, and each request fits."""
    (workspace / "long.txt").write_text("word\n" * 3000)
    replies = [call("read_file", path="long.txt", limit=2000)] * 14
    model = ScriptedModel(replies=[*replies, submit()], paths=paths)
    result = make_backend(model, max_context_tokens=35_000).run(make_request())
    assert result.exit.reason == "done"
    for number, body in enumerate(model.requests):
        if RESPONSES in paths:
            asked = [item["call_id"] for item in body["input"] if item.get("type") == "function_call"]
            answered = [item["call_id"] for item in body["input"] if item.get("type") == "function_call_output"]
            assert body["input"][0] == {"role": "user", "content": "Make it faster."}
        else:
            asked = [c["id"] for message in body["messages"] for c in message.get("tool_calls", [])]
            answered = [message["tool_call_id"] for message in body["messages"] if message["role"] == "tool"]
            assert body["messages"][1] == {"role": "user", "content": "Make it faster."}
        assert asked == answered
        assert sum(map(len, model.results(number))) / 4 < 35_000
    last = model.results()
    assert len(last) == 14 and last[0] == "[left out: 17554 characters of read_file long.txt; call it again if needed]"
    assert not any(text.startswith("[left out") for text in last[-6:])
    notes = [turn.text for turn in result.transcript if turn.kind == "note"]
    assert sum(note.startswith("left out of the context from here on: results of read_file") for note in notes) >= 1


def test_a_single_huge_result_is_cut_at_once(make_backend, make_request, workspace: Path) -> None:
    wide = "\n".join(f"{n} " + "y" * 290 for n in range(200))
    (workspace / "wide.txt").write_text(wide)
    model = ScriptedModel(replies=[call("search", pattern="y"), submit()], paths=(CHAT,))
    make_backend(model, api="chat").run(make_request())
    (told,) = model.results()
    assert len(told) <= 20_000 and "characters left out ...]" in told
    assert told.startswith("wide.txt:1: 0 yyy") and told.endswith("y" * 100)


def test_reasoning_in_chat_is_told_and_not_sent_back(make_backend, make_request) -> None:
    model = ScriptedModel(replies=[Say(calls=[("list_files", {})], reasoning="hm"), submit()], paths=(CHAT,))
    result = make_backend(model, api="chat").run(make_request())
    assert [turn.text for turn in result.transcript if turn.kind == "reasoning"] == ["hm"]
    assert "reasoning_content" not in model.requests[1]["messages"][2]
