"""What clients print, as recorded from Codex CLI 0.171, Claude Code 2.1.197, opencode 1.18 and Gemini CLI 0.61."""

from __future__ import annotations

import json
from typing import Any

import pytest

from vibeserve.agents.clients.parsing import MAX_TURN_CHARS, PARSERS, Parsed
from vibeserve.agents.clients.strict import strict_schema

ANSWER = '{"status": "done"}'


def lines(*documents: dict[str, Any]) -> str:
    return "".join(json.dumps(document) + "\n" for document in documents)


def parse(name: str, output: str) -> Parsed:
    return PARSERS[name](output)


def kinds(parsed: Parsed) -> list[tuple[str, str, str]]:
    return [(turn.kind, turn.name, turn.text) for turn in parsed.turns]


def item(**fields: Any) -> dict[str, Any]:
    return {"type": "item.completed", "item": {"id": "item_1", **fields}}


CODEX_BEGIN = {"type": "thread.started", "thread_id": "t"}
CODEX_COMMAND = item(type="command_execution", command="ls", aggregated_output="a\n", exit_code=0, status="completed")
CODEX_END = {"type": "turn.completed", "usage": {"input_tokens": 1}}


def test_codex_the_last_message_of_a_completed_turn() -> None:
    output = lines(
        CODEX_BEGIN, item(type="reasoning", text="hm"), item(type="agent_message", text="I look first."), CODEX_COMMAND,
        item(type="file_change", changes=[{"path": "a.py", "kind": "update"}]), item(type="agent_message", text=ANSWER),
        CODEX_END,
    )  # fmt: skip
    parsed = parse("codex_jsonl", "Reading additional input\n" + output)
    assert (parsed.text, parsed.error) == (ANSWER, "")
    assert kinds(parsed) == [
        ("reasoning", "", "hm"),
        ("message", "", "I look first."),
        ("tool_call", "exec_command", "ls"),
        ("tool_result", "exec_command", "status 0\na\n"),
        ("tool_call", "file_change", '{"changes": [{"path": "a.py", "kind": "update"}]}'),
        ("message", "", ANSWER),
    ]


@pytest.mark.parametrize(
    "rest",
    [
        [{"type": "turn.failed", "error": {"message": "exceeded retry limit, last status: 429"}}],
        [{"type": "turn.failed", "error": {"message": "exceeded retry limit, last status: 429"}}, CODEX_END],
    ],
)
def test_codex_a_failed_turn_has_no_answer(rest: list[dict[str, Any]]) -> None:
    parsed = parse("codex_jsonl", lines(item(type="agent_message", text=ANSWER), *rest))
    assert (parsed.text, parsed.error) == ("", "exceeded retry limit, last status: 429")


def test_codex_a_turn_that_was_cut_off_has_no_answer_and_no_error() -> None:
    parsed = parse("codex_jsonl", lines(item(type="agent_message", text=ANSWER), {"type": "error", "message": "again"}))
    assert (parsed.text, parsed.error) == ("", "")
    assert kinds(parsed)[-1] == ("note", "", "again")


def claude_block(role: str, **block: Any) -> dict[str, Any]:
    return {"type": role, "message": {"role": role, "content": [block]}}


def result(**fields: Any) -> dict[str, Any]:
    return {"type": "result", "subtype": "success", "is_error": False, "result": ANSWER, **fields}


def test_claude_the_structured_output_is_the_answer() -> None:
    output = lines(
        {"type": "system", "subtype": "init"},
        claude_block("assistant", type="thinking", thinking="hm"),
        claude_block("assistant", type="tool_use", name="Bash", input={"command": "ls"}),
        claude_block("user", type="tool_result", content=[{"type": "text", "text": "a"}]),
        result(result="prose", structured_output={"status": "done"}),
    )
    parsed = parse("claude_json", output)
    assert (parsed.text, parsed.error) == (ANSWER, "")
    assert kinds(parsed) == [
        ("reasoning", "", "hm"),
        ("tool_call", "Bash", '{"command": "ls"}'),
        ("tool_result", "", '[{"type": "text", "text": "a"}]'),
    ]


def test_claude_one_document_over_several_lines_or_a_list_is_read_too() -> None:
    assert parse("claude_json", json.dumps(result(), indent=2)).text == ANSWER
    assert parse("claude_json", json.dumps([{"type": "system"}, result()])).text == ANSWER


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        # the subtype says success and the exit status may be 0
        ({"is_error": True, "result": "API Error: 429"}, "API Error: 429"),
        ({"subtype": "error_max_turns", "result": None}, "error_max_turns"),
        ({"subtype": "error", "is_error": True, "errors": ["no valid output", "gave up"]}, "no valid output; gave up"),
    ],
)
def test_claude_an_error_is_no_answer_whatever_the_subtype_says(fields: dict[str, Any], error: str) -> None:
    parsed = parse("claude_json", lines(result(**fields)))
    assert (parsed.text, parsed.error) == ("", error)


def test_claude_without_a_result_there_is_no_answer() -> None:
    parsed = parse("claude_json", lines(claude_block("assistant", type="text", text=ANSWER)))
    assert (parsed.text, parsed.error) == ("", "it printed no result")
    assert parse("claude_json", "").error == "it printed no result"


def test_opencode_the_texts_after_the_last_tool_call() -> None:
    tool = {"tool": "bash", "state": {"input": {"command": "ls"}, "output": "a\n", "status": "completed"}}
    output = lines(
        {"type": "step_start", "part": {}}, {"type": "text", "part": {"text": "I look."}},
        {"type": "tool_use", "part": tool}, {"type": "text", "part": {"text": ANSWER}}, {"type": "step_finish"},
    )  # fmt: skip
    parsed = parse("opencode_jsonl", output)
    assert (parsed.text, parsed.error) == (ANSWER, "")
    assert kinds(parsed)[1:3] == [("tool_call", "bash", '{"command": "ls"}'), ("tool_result", "bash", "a\n")]


def test_opencode_an_error_is_no_answer() -> None:
    error = {"type": "error", "error": {"name": "APIError", "data": {"message": "too many requests"}}}
    parsed = parse("opencode_jsonl", lines({"type": "text", "part": {"text": ANSWER}}, error))
    assert (parsed.text, parsed.error) == ("", "too many requests")


def test_gemini_the_response_or_the_messages_after_the_last_tool_call() -> None:
    noise = "Ripgrep is not available.\n"
    assert parse("gemini_json", noise + json.dumps({"response": ANSWER, "stats": {}}, indent=2)).text == ANSWER
    streamed = lines(
        {"type": "init"}, {"type": "message", "role": "user", "content": "do it"},
        {"type": "message", "role": "assistant", "content": "I look.", "delta": True},
        {"type": "tool_use", "tool_name": "run_shell_command", "parameters": {"command": "ls"}},
        {"type": "tool_result", "status": "success", "output": "a"},
        {"type": "message", "role": "assistant", "content": ANSWER[:5], "delta": True},
        {"type": "message", "role": "assistant", "content": ANSWER[5:], "delta": True}, {"type": "result"},
    )  # fmt: skip
    parsed = parse("gemini_json", noise + streamed)
    assert (parsed.text, parsed.error) == (ANSWER, "")
    assert [kind for kind, _, _ in kinds(parsed)] == ["message", "tool_call", "tool_result", "message"]


def test_gemini_an_error_is_no_answer() -> None:
    whole = json.dumps({"response": ANSWER, "error": {"type": "ApiError", "message": "quota", "code": 429}}, indent=2)
    assert (parse("gemini_json", whole).text, parse("gemini_json", whole).error) == ("", "quota")


def test_text_is_the_answer_as_it_is() -> None:
    assert parse("text", f"\n{ANSWER}\n") == Parsed(text=ANSWER, turns=parse("text", ANSWER).turns)
    assert parse("text", " \n").turns == ()


@pytest.mark.parametrize("name", sorted(PARSERS))
@pytest.mark.parametrize(
    "output", ["", "null\n[1, 2]\n", '{"type": ', '[{"type"', '{"item": 3, "part": [], "type": 1}\n']
)  # fmt: skip
def test_broken_output_is_no_crash(name: str, output: str) -> None:
    parsed = parse(name, output)
    assert parsed.text in ("", output.strip())


def test_a_long_turn_is_shortened_in_the_transcript_alone() -> None:
    long = "a" * MAX_TURN_CHARS + "b" * MAX_TURN_CHARS
    parsed = parse("text", long)
    assert parsed.text == long
    (turn,) = parsed.turns
    assert turn.text.startswith("aaa") and turn.text.endswith("bbb")
    assert f"... {MAX_TURN_CHARS} characters left out ..." in turn.text and len(turn.text) < MAX_TURN_CHARS + 100


def test_a_strict_schema_leaves_out_what_providers_refuse_and_names_every_type() -> None:
    schema = {
        "type": "object",
        "properties": {
            "verdict": {"enum": ["pass", "refuse"]},
            "minLength": {"type": "string", "minLength": 3, "maxLength": 9, "description": "a property of that name"},
            "reasons": {"type": "array", "items": {"enum": [1, None]}},
            "proposal": {"anyOf": [{"type": "string", "title": "t", "minLength": 1}, {"type": "null"}]},
        },
        "required": ["verdict", "minLength", "reasons", "proposal"],
        "additionalProperties": False,
    }
    assert strict_schema(schema) == {
        "type": "object",
        "properties": {
            "verdict": {"enum": ["pass", "refuse"], "type": "string"},
            "minLength": {"type": "string", "description": "a property of that name"},
            "reasons": {"type": "array", "items": {"enum": [1, None], "type": ["integer", "null"]}},
            "proposal": {"anyOf": [{"type": "string"}, {"type": "null"}]},
        },
        "required": ["verdict", "minLength", "reasons", "proposal"],
        "additionalProperties": False,
    }
