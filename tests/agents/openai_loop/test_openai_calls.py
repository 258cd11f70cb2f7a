"""Whole calls against a scripted model, in both APIs: how they go on and how they end."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from scripted_model import CHAT, KEY, RESPONSES, Say, ScriptedModel, call, failed, submit

from vibeserve.errors import AgentInfraError

PATCH = """*** Begin Patch
*** Update File: runtime/model.py
@@ def forward(x):
-    return x * 2
+    return x + x
*** End Patch
"""


def test_an_edit_is_made_and_submitted(make_backend, make_request, workspace: Path, ledger, paths) -> None:
    replies = [
        Say(calls=[("read_file", {"path": "runtime/model.py"})], reasoning="look first"),
        call("apply_patch", patch=PATCH),
        submit(status="done", summary="adds"),
    ]
    model = ScriptedModel(replies=replies, paths=paths)
    result = make_backend(model).run(make_request())
    assert json.loads(result.text) == {"status": "done", "summary": "adds"}
    assert (workspace / "runtime" / "model.py").read_text() == "def forward(x):\n    return x + x\n"
    assert (result.exit.reason, result.exit.num_turns, result.exit.detail) == ("done", 3, "")
    assert model.results() == ["     1\tdef forward(x):\n     2\t    return x * 2", "updated runtime/model.py (+1 -1)"]
    kinds = [turn.kind for turn in result.transcript if turn.kind != "note"]
    assert kinds == ["reasoning", *["tool_call", "tool_result"] * 3]
    usage = result.usage
    assert (usage.input_tokens, usage.output_tokens, usage.num_requests) == (300, 30, 3)
    assert (usage.cached_input_tokens, usage.reasoning_tokens) == (150, 15)
    assert result.usd == pytest.approx(300e-6 + 30 * 10e-6)
    assert ledger.usage(key="r01a1-implementer") == usage
    assert {(spend.role, spend.backend, spend.is_estimate) for spend in ledger.of()} == {
        ("implementer", "openai", False)
    }


def test_the_prefix_of_requests_never_changes(make_backend, make_request, paths) -> None:
    model = ScriptedModel(
        replies=[call("list_files"), call("read_file", path="README.md"), call("nothing"), submit()], paths=paths
    )
    make_backend(model, effort="high").run(make_request())
    name = "input" if RESPONSES in paths else "messages"
    for before, after in zip(model.requests, model.requests[1:], strict=False):
        assert after[name][: len(before[name])] == before[name]
        assert {k: v for k, v in after.items() if k != name} == {k: v for k, v in before.items() if k != name}
    first = model.requests[0]
    if RESPONSES in paths:
        assert (first["store"], first["prompt_cache_key"]) == (False, "r01a1-implementer")
        assert (first["include"], first["reasoning"]) == (["reasoning.encrypted_content"], {"effort": "high"})
        assert first["input"] == [{"role": "user", "content": "Make it faster."}]
    else:
        assert first["reasoning_effort"] == "high"
        assert [message["role"] for message in first["messages"]] == ["system", "user"]


def test_encrypted_reasoning_is_carried_over_with_what_belongs_to_it(make_backend, make_request) -> None:
    model = ScriptedModel(replies=[Say(calls=[("list_files", {})], reasoning="hm"), submit()], paths=(RESPONSES,))
    make_backend(model).run(make_request())
    reasoning, asked, answered = model.requests[1]["input"][1:]
    assert (reasoning["type"], reasoning["encrypted_content"]) == ("reasoning", "sealed-1")
    assert (asked["type"], asked["id"]) == ("function_call", "fc_1_0")
    assert answered["call_id"] == asked["call_id"]


def test_without_encrypted_reasoning_no_id_goes_back(make_backend, make_request) -> None:
    model = ScriptedModel(replies=[Say(text="I look.", calls=[("list_files", {})]), submit()], paths=(RESPONSES,))
    make_backend(model).run(make_request())
    message, asked, _ = model.requests[1]["input"][1:]
    assert message == {"role": "assistant", "content": "I look."}
    assert set(asked) == {"type", "call_id", "name", "arguments"}


@pytest.mark.parametrize(
    ("name", "arguments", "expected"),
    [
        (
            "edit_file",
            {},
            "there is no tool 'edit_file'; valid: read_file, search, list_files, apply_patch, write_file",
        ),
        ("read_file", '{"path": "README.md"', "the arguments of read_file are not valid JSON (Expecting ',' delimiter"),
        ("read_file", "[1]", "must be one JSON object; read_file takes one JSON object with path, offset (optional)"),
        ("read_file", {"file": "x"}, "'path' is a required property"),
        ("read_file", {"path": "x", "limit": "many"}, "limit: 'many' is not of type 'integer'"),
        ("submit", {"status": "perhaps"}, "status: 'perhaps' is not one of ['done', 'gave_up']"),
        ("submit", '{"status": NaN}', "NaN is no JSON number"),
    ],
)
def test_a_wrong_call_is_told_what_is_right_and_mended(
    make_backend, make_request, paths, name, arguments, expected
) -> None:
    model = ScriptedModel(replies=[Say(calls=[(name, arguments)]), submit()], paths=paths)
    result = make_backend(model).run(make_request())
    (told, *_) = model.results()
    assert told.startswith("error: ") and expected in told
    assert json.loads(result.text) == {"status": "done"}


def test_arguments_that_are_no_json_go_back_as_json(make_backend, make_request, paths) -> None:
    """Chat templates of local servers parse them, and the server fails where they cannot."""
    model = ScriptedModel(replies=[Say(calls=[("read_file", '{"path": ')]), submit()], paths=paths)
    make_backend(model).run(make_request())
    if RESPONSES in paths:
        resent = model.requests[1]["input"][1]["arguments"]
    else:
        resent = model.requests[1]["messages"][2]["tool_calls"][0]["function"]["arguments"]
    assert json.loads(resent) == {"not_json": '{"path": '}


def test_three_wrong_calls_in_a_row_end_the_call(make_backend, make_request, paths) -> None:
    model = ScriptedModel(
        replies=[call("a"), call("list_files"), call("b"), Say(calls=[("c", {}), ("d", {}), ("list_files", {})])],
        paths=paths,
    )
    result = make_backend(model).run(make_request())
    assert (result.exit.reason, result.exit.num_turns) == ("died", 4)
    assert "3 wrong tool calls in a row; the last: error: there is no tool 'd'" in result.exit.detail
    assert [turn.text for turn in result.transcript][-1] == "[not run: the task had ended]"


def test_calls_of_one_answer_run_in_order_and_all_are_answered(
    make_backend, make_request, workspace: Path, paths
) -> None:
    calls = [
        ("write_file", {"path": "a.txt", "content": "1\n"}), ("read_file", {"path": "a.txt"}),
        ("write_file", {"path": "a.txt", "content": "2\n"}),
    ]  # fmt: skip
    model = ScriptedModel(replies=[Say(calls=calls), submit()], paths=paths)
    make_backend(model).run(make_request())
    assert model.results() == ["created a.txt (1 lines)", "     1\t1", "replaced a.txt (1 lines)"]
    assert (workspace / "a.txt").read_text() == "2\n"


def test_what_stands_behind_submit_in_the_same_answer_is_not_run(
    make_backend, make_request, workspace: Path, paths
) -> None:
    late = ("write_file", {"path": "late", "content": ""})
    model = ScriptedModel(replies=[Say(calls=[("submit", {"status": "done"}), late])], paths=paths)
    assert make_backend(model).run(make_request()).exit.reason == "done"
    assert not (workspace / "late").exists()


def test_a_plain_final_message_is_the_result(make_backend, make_request, paths) -> None:
    text = 'Here it is:\n```json\n{"status": "done"}\n```'
    model = ScriptedModel(replies=[call("list_files"), Say(text=text)], paths=paths)
    result = make_backend(model).run(make_request())
    assert (result.text, result.exit.reason, result.exit.detail) == (text, "done", "")


def test_an_empty_answer_is_an_empty_result(make_backend, make_request, paths) -> None:
    model = ScriptedModel(replies=[Say(text="I begin.", calls=[("list_files", {})]), Say()], paths=paths)
    result = make_backend(model).run(make_request())
    assert (result.text, result.exit.reason, result.exit.detail) == ("", "done", "the answer is empty")


def test_an_answer_that_the_server_cut_short_says_so(make_backend, make_request, paths) -> None:
    model = ScriptedModel(replies=[Say(text='{"status": "do', status="incomplete")], paths=paths)
    result = make_backend(model).run(make_request())
    assert (result.text, result.exit.detail) == ('{"status": "do', "the server cut it short")


def test_a_refusal_is_the_result_and_no_document(make_backend, make_request, paths) -> None:
    model = ScriptedModel(replies=[Say(refusal="I cannot help with that.")], paths=paths)
    result = make_backend(model).run(make_request())
    assert (result.text, result.exit.detail) == ("I cannot help with that.", "the model refused")


def test_an_endless_loop_ends_by_its_turns_and_is_warned(make_backend, make_request, paths) -> None:
    model = ScriptedModel(replies=[Say(text="Once more.", calls=[("list_files", {})])], paths=paths)
    result = make_backend(model).run(make_request(max_turns=8))
    assert (result.exit.reason, result.exit.num_turns, len(model.requests)) == ("max_turns", 8, 8)
    assert result.text == "Once more."
    results = model.results()
    assert [number for number, text in enumerate(results) if "left" in text] == [2, 6]
    assert results[2].endswith("[5 turns left: come to an end and submit]")
    assert results[6].endswith("[1 turn left: submit now]")


def test_a_single_turn_is_told_with_the_prompt(make_backend, make_request, paths) -> None:
    model = ScriptedModel(replies=[submit()], paths=paths)
    make_backend(model).run(make_request(max_turns=1))
    body = model.requests[0]
    assert body.get("input", body.get("messages"))[-1]["content"] == "Make it faster.\n\n[1 turn left: submit now]"


def test_the_cap_is_exceeded_by_the_request_in_flight_and_no_more(
    make_backend, make_request, make_ledger, paths
) -> None:
    ledger = make_ledger(tokens=300)
    replies = [call("list_files"), Say(text="half done", calls=[("list_files", {})]), call("list_files"), submit()]
    model = ScriptedModel(replies=replies, paths=paths)
    result = make_backend(model, ledger=ledger).run(make_request())
    assert (result.exit.reason, result.text, len(model.requests)) == ("cap", "half done", 3)
    assert result.exit.detail == "the run's cap of 300 tokens is reached (330); next: raise budget.tokens"
    # the third was sent at 220 of 300 and brought 110
    assert ledger.usage().tokens == 330 and result.usage.tokens == 330
    again = make_backend(model, ledger=ledger).run(make_request())
    assert (again.exit.reason, again.text, len(model.requests)) == ("cap", "", 3)


def test_what_a_server_does_not_count_is_estimated(make_backend, make_request, ledger, paths) -> None:
    model = ScriptedModel(replies=[Say(text="x" * 40, usage=None)], paths=paths)
    result = make_backend(model).run(make_request())
    (spend,) = ledger.of()
    assert spend.is_estimate
    assert result.usage.output_tokens == 10
    sent = len(json.dumps(model.requests[0]))
    assert result.usage.input_tokens == pytest.approx(sent / 4, rel=0.02)


def test_a_model_without_a_price_has_no_cost(make_backend, make_request, paths) -> None:
    result = make_backend(ScriptedModel(replies=[submit()], paths=paths), model="unheard-of").run(make_request())
    assert result.usd is None and result.usage.tokens == 110


def test_time_is_over_between_answers(make_backend, make_request, paths) -> None:
    """The command is cut to what is left, and nothing is asked after it."""
    model = ScriptedModel(replies=[call("run_command", command="sleep 99; echo late", timeout_s=600)], paths=paths)
    result = make_backend(model).run(make_request(timeout_s=4.0))
    assert (result.exit.reason, len(model.requests)) == ("timed_out", 1)
    (told,) = [turn.text for turn in result.transcript if turn.kind == "tool_result"]
    assert told.startswith("[killed after ") and "all that is left of this task]" in told and "late" not in told


@pytest.fixture
def hang() -> Iterator[Callable[[object], Say]]:
    """A reply that does not come while the test runs."""
    ended = threading.Event()

    def wait(body: object) -> Say:
        assert ended.wait(120)
        return submit()

    yield wait
    ended.set()


def test_time_is_over_inside_a_request(make_backend, make_request, hang, paths) -> None:
    model = ScriptedModel(replies=[Say(text="wait", calls=[("list_files", {})]), hang], paths=paths)
    result = make_backend(model).run(make_request(timeout_s=3.0))
    assert (result.exit.reason, result.text) == ("timed_out", "wait")
    assert "had not answered after" in result.exit.detail


def test_a_server_that_never_answers_is_no_slow_agent(make_backend, make_request, hang, paths) -> None:
    model = ScriptedModel(replies=[hang], paths=paths)
    backend = make_backend(model, api=_api(paths))
    with pytest.raises(AgentInfraError, match=r"had not answered after [0-9.]+ s") as caught:
        backend.run(make_request(timeout_s=2.0))
    assert not caught.value.is_lasting
    model.replies = [submit()]
    # the time that it waited is not the agent's
    assert backend.run(make_request(timeout_s=2.0)).exit.reason == "done"


def _api(paths: tuple[str, ...]) -> str:
    return "responses" if RESPONSES in paths else "chat"


def test_the_model_is_told_once_that_its_time_runs_out(make_backend, make_request, monkeypatch, paths) -> None:
    used_s = [0.0]
    monkeypatch.setattr("vibeserve.agents.openai_loop.loop.Timer.used_s", lambda self: used_s[0])

    def late(body: object) -> Say:
        used_s[0] = 90.0
        return call("list_files")

    model = ScriptedModel(replies=[call("list_files"), late, call("list_files"), submit()], paths=paths)
    make_backend(model).run(make_request(timeout_s=100.0))
    assert [text.endswith("[10 seconds left: submit now]") for text in model.results()] == [False, True, False]


def test_feedback_goes_on_from_the_answer(make_backend, make_request, workspace: Path, paths) -> None:
    replies = [call("write_file", path="a", content="1"), Say(text="I am done."), submit()]
    model = ScriptedModel(replies=replies, paths=paths)
    backend = make_backend(model)
    assert backend.run(make_request()).text == "I am done."
    result = backend.run(make_request(feedback="the answer holds no JSON document"))
    assert json.loads(result.text) == {"status": "done"}
    body = model.requests[-1]
    texts = [item.get("content") for item in body.get("input", body.get("messages", []))]
    expected = "Your answer to this task was refused: the answer holds no JSON document\nMend that and submit again."
    assert "Make it faster." in texts and "I am done." in texts and texts[-1] == expected
    assert (result.exit.num_turns, result.usage.num_requests) == (1, 1)


def test_feedback_begins_anew_where_the_workspace_was_changed(
    make_backend, make_request, workspace: Path, paths
) -> None:
    model = ScriptedModel(replies=[Say(text="I am done."), submit()], paths=paths)
    backend = make_backend(model)
    backend.run(make_request())
    (workspace / "README.md").write_text("somebody else's\n")
    backend.run(make_request(feedback="no document"))
    body = model.requests[-1]
    last = body.get("input", body.get("messages"))[-1]["content"]
    assert last.startswith("Make it faster.\n\nYour answer to this task was refused: no document\n")


def test_a_call_that_the_api_cut_short_goes_on_where_it_stood(
    make_backend, make_request, workspace: Path, ledger, paths
) -> None:
    replies = [call("write_file", path="a", content="1"), failed(503, "busy"), submit()]
    model = ScriptedModel(replies=replies, paths=paths)
    backend = make_backend(model, api=_api(paths))
    with pytest.raises(AgentInfraError, match="busy"):
        backend.run(make_request())
    result = backend.run(make_request(timeout_s=50.0))
    assert (result.exit.reason, result.exit.num_turns, result.usage.num_requests) == ("done", 2, 2)
    assert model.results() == ["created a (0 lines)"]
    assert len(ledger.of()) == 2


def test_a_call_that_the_api_cut_short_begins_anew_in_a_workspace_that_was_put_back(
    make_backend, make_request, workspace: Path, paths
) -> None:
    replies = [call("write_file", path="a", content="1"), failed(503, "busy"), submit()]
    model = ScriptedModel(replies=replies, paths=paths)
    backend = make_backend(model, api=_api(paths))
    with pytest.raises(AgentInfraError, match="busy"):
        backend.run(make_request())
    (workspace / "a").unlink()
    assert backend.run(make_request()).exit.num_turns == 1
    assert model.results() == []


def test_a_reader_has_no_tool_that_writes(make_backend, make_request, workspace: Path, paths) -> None:
    model = ScriptedModel(
        replies=[call("write_file", path="a", content="1"), call("run_command", command="echo 1 > a"), submit()],
        paths=paths,
    )
    make_backend(model).run(make_request(is_writable=False))
    refused, status = model.results()
    assert "there is no tool 'write_file'; valid: read_file, search, list_files, run_command," in refused
    assert status.startswith("[exit status ") and not status.startswith("[exit status 0")
    assert not (workspace / "a").exists()
    assert "The workspace is read-only" in json.dumps(model.requests[0])


def test_the_key_is_in_no_record(make_backend, make_request, workspace: Path, tmp_path: Path, paths) -> None:
    """Not even where the server itself says it, in an answer or in an error."""
    replies = [
        Say(text=f"your key is {KEY}", calls=[("write_file", {"path": "stolen", "content": f"{KEY} env"})]),
        call("run_command", command="env; cat /proc/*/environ"),
        failed(500, f"broken for {KEY}"),
    ]
    model = ScriptedModel(replies=replies, paths=paths)
    backend = make_backend(model, api=_api(paths))
    with pytest.raises(AgentInfraError, match="broken for \\[key\\]") as caught:
        backend.run(make_request())
    model.replies = [submit(summary=f"{KEY}!", status="done")]
    result = backend.run(make_request())
    assert model.headers[0]["authorization"] == f"Bearer {KEY}"
    told = json.dumps([(turn.kind, turn.text) for turn in result.transcript]) + result.text + str(caught.value)
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert {"exchanges.jsonl", "stolen"} <= {path.name for path in files}
    assert KEY not in told + "".join(path.read_text() for path in files)
    assert (workspace / "stolen").read_text() == "[key] env"


def test_exchanges_hold_every_request_whole(make_backend, make_request, tmp_path: Path, paths) -> None:
    model = ScriptedModel(replies=[call("list_files"), call("nothing"), submit()], paths=paths)
    make_backend(model).run(make_request())
    rows = [json.loads(line) for line in (tmp_path / "records" / "exchanges.jsonl").read_text().splitlines()]
    sent = list(model.requests)
    body, items = {}, []
    for row in rows:
        assert row["schema_version"] == 1
        body = {key: value for key, value in (body | row["request"]).items() if key not in row["dropped"]}
        items = items[: row["num_kept_items"]] + row["items"]
        if row["status"] == 200:
            assert {**body, "input" if row["api"] == "responses" else "messages": items} == sent.pop(0)
    assert sent == []
    if RESPONSES in paths:
        assert [row["num_kept_items"] for row in rows] == [0, 1, 3]
    else:
        assert [(row["status"], row["num_kept_items"]) for row in rows] == [(404, 0), (200, 0), (200, 2), (200, 4)]
        assert "prompt_cache_key" in rows[1]["dropped"] and "404" in rows[0]["error"]
    assert rows[-1]["request"] == {}


def test_a_server_without_responses_is_asked_by_chat_from_then_on(make_backend, make_request) -> None:
    model = ScriptedModel(replies=[call("list_files"), submit()], paths=(CHAT,))
    backend = make_backend(model)
    result = backend.run(make_request())
    assert model.asked == [RESPONSES, CHAT, CHAT]
    assert "answered 404: Not Found; Chat Completions from now on" in result.transcript[0].text
    backend.run(make_request(key="r01a2-implementer"))
    assert model.asked[3:] == [CHAT]
