"""`trace`: recorded requests, checked line by line and replayed."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest
from stream_samples import assert_lengths_are_true, take

from vibeserve.errors import SpecError
from vibeserve.spec import Load, Workload
from vibeserve.weights import load_tokenizer
from vibeserve.workloads import arrival_rate_per_s, trace_problems

LENGTHS = [
    {"arrival_s": 10.0, "prompt_tokens": 20, "output_tokens": 3},
    {"arrival_s": 10.5, "prompt_tokens": 30, "output_tokens": 4},
    {"arrival_s": 12.0, "prompt_tokens": 40, "output_tokens": 5, "user": "somebody"},
]
TEXTS = [
    {"prompt": "What does the `with` statement do, and when is it better than try and finally?", "output_tokens": 4},
    {"prompt": "Name three things that a class body may contain, and one that it may not hold.", "output_tokens": 6},
]


def write(tmp_path: Path, rows: list[Any], **changes: Any) -> Workload:
    """A trace workload over a file of these rows; a row that is text is written as it is."""
    path = tmp_path / "my.jsonl"
    path.write_text("".join((row if isinstance(row, str) else json.dumps(row)) + "\n" for row in rows))
    base = Workload(
        kind="trace", trace=str(path), prompt_tokens_min=16, prompt_tokens_max=64, output_tokens_min=1,
        output_tokens_max=16, loads={"x1": Load(trace_speed=1.0)}, headline_load="x1",
    )  # fmt: skip
    return dataclasses.replace(base, **changes)


def test_lengths_and_arrivals_are_the_traces_own(tmp_path: Path, tiny_model_dir: Path) -> None:
    requests = take(7, tiny_model_dir, write(tmp_path, LENGTHS))
    assert_lengths_are_true(requests, model_dir=tiny_model_dir)
    recorded = [(row["prompt_tokens"], row["output_tokens"]) for row in LENGTHS]
    start = recorded.index((requests[0].num_prompt_tokens, requests[0].max_tokens))
    told = [(request.num_prompt_tokens, request.max_tokens) for request in requests]
    assert told == [recorded[(start + number) % 3] for number in range(7)]
    arrivals = [request.arrival_s for request in requests]
    assert arrivals[0] == 0 and arrivals == sorted(arrivals)
    # one lap is the trace's 2 s and a mean gap of 1 s
    assert arrivals[3] == pytest.approx(3.0) and arrivals[6] == pytest.approx(6.0)


def test_a_load_starts_anywhere_in_the_trace_by_its_seed(tmp_path: Path, tiny_model_dir: Path) -> None:
    workload = write(tmp_path, LENGTHS)
    firsts = {take(1, tiny_model_dir, workload, seed=seed)[0].num_prompt_tokens for seed in range(20)}
    assert firsts == {20, 30, 40}
    assert take(5, tiny_model_dir, workload, seed=3) == take(5, tiny_model_dir, workload, seed=3)


def test_texts_come_behind_a_nonce_that_no_two_requests_share(tmp_path: Path, tiny_model_dir: Path) -> None:
    workload = write(tmp_path, TEXTS, loads={"c2": Load(concurrency=2)}, headline_load="c2")
    requests = take(10, tiny_model_dir, workload)
    assert_lengths_are_true(requests, model_dir=tiny_model_dir)
    nonces, texts = zip(*(request.prompt.split("\n", 1) for request in requests), strict=True)
    assert set(texts) == {row["prompt"] for row in TEXTS}
    assert len(set(nonces)) == 10 and all(int(nonce, 16) >= 0 for nonce in nonces)
    assert {request.arrival_s for request in requests} == {0.0}


def test_texts_are_replayed_as_they_are_where_reuse_is_declared(tmp_path: Path, tiny_model_dir: Path) -> None:
    workload = write(tmp_path, TEXTS, reuse="prefix", loads={"c2": Load(concurrency=2)}, headline_load="c2")
    assert {request.prompt for request in take(4, tiny_model_dir, workload)} == {row["prompt"] for row in TEXTS}


def test_timestamps_are_seconds_or_times_of_day(tmp_path: Path, tiny_model_dir: Path) -> None:
    for stamps in ((1000.5, 1002.5), ("2026-03-01T10:00:00+00:00", "2026-03-01T10:00:02+00:00")):
        rows = [{"timestamp": stamp, "prompt_tokens": 16, "output_tokens": 2} for stamp in stamps]
        workload = write(tmp_path, rows)
        assert trace_problems(workload) == []
        assert arrival_rate_per_s(workload, Load(trace_speed=3.0)) == pytest.approx(1.5)


WRONG: list[tuple[Any, str]] = [
    ("{", "my.jsonl:2: not JSON: Expecting property name enclosed in double quotes at column 2"),
    ([1], "my.jsonl:2: expected a JSON object, got list"),
    ({"prompt": "", "output_tokens": 1}, "my.jsonl:2: prompt: expected text that is not empty"),
    ({"output_tokens": 1}, "my.jsonl:2: needs exactly one of prompt (text) and prompt_tokens (a length)"),
    (
        {"prompt": "x", "prompt_tokens": 20, "output_tokens": 1},
        "my.jsonl:2: needs exactly one of prompt (text) and prompt_tokens (a length)",
    ),
    (
        {"prompt_tokens": 3, "output_tokens": 1},
        "my.jsonl:2: prompt_tokens: expected a whole number of at least 16, got 3",
    ),
    ({"prompt_tokens": True, "output_tokens": 1}, "prompt_tokens: expected a whole number of at least 16, got true"),
    ({"prompt_tokens": 20}, "my.jsonl:2: output_tokens: expected a whole number of at least 1, got none"),
    ({"prompt_tokens": 20, "output_tokens": 1.5}, "output_tokens: expected a whole number of at least 1, got 1.5"),
    ({"prompt_tokens": 65, "output_tokens": 1}, "my.jsonl:2: prompt_tokens 65 is above workload.prompt_tokens_max 64"),
    ({"prompt_tokens": 20, "output_tokens": 17}, "output_tokens 17 is above workload.output_tokens_max 16"),
    ({"arrival_s": -1, "prompt_tokens": 20, "output_tokens": 1}, "my.jsonl:2: arrival_s: expected seconds, got -1"),
    ({"arrival_s": "soon", "prompt_tokens": 20, "output_tokens": 1}, 'arrival_s: expected seconds, got "soon"'),
    (
        {"timestamp": "soon", "prompt_tokens": 20, "output_tokens": 1},
        "my.jsonl:2: timestamp: 'soon' is no number of seconds and no ISO 8601 time",
    ),
    (
        {"timestamp": 1, "arrival_s": 1, "prompt_tokens": 20, "output_tokens": 1},
        "my.jsonl:2: needs at most one of arrival_s and timestamp",
    ),
    ({"arrival_s": 9.0, "prompt_tokens": 20, "output_tokens": 1}, "my.jsonl:2: arrives 1 s before line 1"),
    (
        {"prompt_tokens": 20, "output_tokens": 1},
        "my.jsonl:2: has no arrival, unlike line 1; state it for all requests or for none",
    ),
    (
        {"timestamp": 11.0, "prompt_tokens": 20, "output_tokens": 1},
        "my.jsonl:2: arrives by timestamp, line 1 by arrival_s; all requests need the same",
    ),
]


@pytest.mark.parametrize(("row", "problem"), WRONG)
def test_a_wrong_line_is_told_by_file_and_line(tmp_path: Path, row: Any, problem: str) -> None:
    problems = trace_problems(write(tmp_path, [LENGTHS[0], row]))
    assert any(problem in told for told in problems), problems


def test_blank_lines_are_skipped_and_line_numbers_stay(tmp_path: Path) -> None:
    assert trace_problems(write(tmp_path, [LENGTHS[0], "", "nonsense"])) == [
        "my.jsonl:3: not JSON: Expecting value at column 1"
    ]


def test_a_speed_needs_arrivals_that_take_time(tmp_path: Path) -> None:
    without = [{key: value for key, value in row.items() if key != "arrival_s"} for row in LENGTHS]
    assert trace_problems(write(tmp_path, without)) == [
        "my.jsonl:1: no arrival_s or timestamp, and a load has trace_speed"
    ]
    assert trace_problems(write(tmp_path, without, loads={"c2": Load(concurrency=2)})) == []
    at_once = [{**row, "arrival_s": 1.0} for row in LENGTHS]
    assert trace_problems(write(tmp_path, at_once)) == [
        "my.jsonl: all requests arrive at once, and a load has trace_speed"
    ]


def test_files_that_are_no_trace(tmp_path: Path) -> None:
    workload = write(tmp_path, [])
    assert trace_problems(workload) == ["my.jsonl: holds no request"]
    missing = str(tmp_path / "other.jsonl")
    assert trace_problems(dataclasses.replace(workload, trace=missing)) == [f"workload.trace: no file {missing}"]
    assert trace_problems(dataclasses.replace(workload, trace="")) == [
        "workload.trace: a trace workload needs the path of a JSONL file"
    ]
    Path(workload.trace).write_bytes(b"\xff\xfe")
    assert trace_problems(workload) == ["my.jsonl: not UTF-8 text: invalid start byte at byte 0"]


def test_a_long_list_of_faults_is_cut(tmp_path: Path) -> None:
    problems = trace_problems(write(tmp_path, ["x"] * 30))
    assert len(problems) == 21 and problems[-1] == "and 10 more"


def test_a_text_longer_than_declared_is_refused_with_its_line(tmp_path: Path, tiny_model_dir: Path) -> None:
    text = " ".join(["statement"] * 60)
    count = len(load_tokenizer(tiny_model_dir).encode(text).ids)
    workload = write(tmp_path, [TEXTS[0], {"prompt": text, "output_tokens": 2}], loads={"c1": Load(concurrency=1)})
    with pytest.raises(SpecError) as caught:
        take(1, tiny_model_dir, workload)
    assert str(caught.value) == (
        "workload.trace: my.jsonl cannot be replayed\n"
        f"  my.jsonl:2: prompt of {count} tokens and up to 13 of the nonce is above workload.prompt_tokens_max 64\n"
        "next: docs/workloads.md describes the lines of a trace"
    )


def test_a_changed_file_is_read_again(tmp_path: Path) -> None:
    workload = write(tmp_path, LENGTHS)
    assert trace_problems(workload) == []
    write(tmp_path, [*LENGTHS, "x"])
    assert len(trace_problems(workload)) == 1
