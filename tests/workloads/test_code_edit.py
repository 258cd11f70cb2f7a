"""`code_edit`: source of the standard library and an instruction."""

from __future__ import annotations

import dataclasses
import difflib
import itertools
import json
import random
from pathlib import Path

import pytest
from stream_samples import assert_function_of_arguments, assert_lengths_are_true, take

from vibeserve.config.workload_rules import workload_problems
from vibeserve.core.nouns import PromptRequest
from vibeserve.errors import SpecError
from vibeserve.spec import Load, Model, Workload
from vibeserve.workloads import Pool
from vibeserve.workloads.code_edit import source_files
from vibeserve.workloads.edit_tasks import edit_task_problems, edit_tasks
from vibeserve.workloads.predictions import FROM_ANSWER, edited, predicted_text

EDITS = Workload(
    kind="code_edit", prompt_tokens_min=160, prompt_tokens_max=320, output_tokens_min=16, output_tokens_max=32
)


def test_prompts_lie_in_the_declared_range(tiny_model_dir: Path) -> None:
    requests = take(20, tiny_model_dir, EDITS)
    assert_lengths_are_true(requests, model_dir=tiny_model_dir)
    assert {request.num_prompt_tokens for request in requests} <= set(range(160, 321))
    assert len({request.num_prompt_tokens for request in requests}) > 5


def test_a_prompt_is_a_nonce_an_instruction_and_whole_lines_of_a_file(tiny_model_dir: Path) -> None:
    files = {file.name: file.text for file in source_files(Pool.visible)}
    for request in take(10, tiny_model_dir, EDITS):
        nonce, instruction, _, name, _, source = request.prompt.split("\n", 5)
        assert int(nonce.removeprefix("# "), 16) >= 0
        assert "`" in instruction
        excerpt = source.removesuffix("\nThe edited file:\n\n")
        assert excerpt != source
        assert excerpt.endswith("\n") and excerpt in files[name.removesuffix(":")]
        assert excerpt.startswith(("def ", "class ", "async "))


def test_pools_share_no_file(tiny_model_dir: Path) -> None:
    names = [{file.name for file in source_files(pool)} for pool in Pool]
    assert not any(left & right for left, right in itertools.combinations(names, 2))
    assert all(len(pool) > 20 for pool in names)


def test_stream_is_a_function_of_its_arguments(tiny_model_dir: Path) -> None:
    assert_function_of_arguments(tiny_model_dir, EDITS)


def test_ranges_that_no_excerpt_meets_are_refused(tiny_model_dir: Path) -> None:
    with pytest.raises(SpecError, match="prompt_tokens_min 20: at least 96, the nonce needs room"):
        take(1, tiny_model_dir, dataclasses.replace(EDITS, prompt_tokens_min=20))
    with pytest.raises(SpecError, match="no source excerpt of 200000 to 200000 tokens found in 64 attempts"):
        take(1, tiny_model_dir, dataclasses.replace(EDITS, prompt_tokens_min=200_000, prompt_tokens_max=200_000))


def predicted(requests: list[PromptRequest]) -> list[str | None]:
    return [predicted_text(request) for request in requests]


def test_what_is_predicted_changes_nothing_that_is_asked(tiny_model_dir: Path) -> None:
    plain = take(6, tiny_model_dir, EDITS)
    assert predicted(plain) == [None] * 6
    for kind in ("pre_edit", "useless", "exact", "edits"):
        requests = take(6, tiny_model_dir, dataclasses.replace(EDITS, prediction=kind))
        assert [dataclasses.replace(request, payload=None) for request in requests] == plain
        assert (None in predicted(requests)) is (kind in FROM_ANSWER)


def test_the_file_as_it_was_is_in_the_prompt_and_useless_text_is_not(tiny_model_dir: Path) -> None:
    for request in take(6, tiny_model_dir, dataclasses.replace(EDITS, prediction="pre_edit")):
        text = predicted_text(request)
        assert text and request.prompt.endswith(f"{text}\nThe edited file:\n\n")
    useless = take(6, tiny_model_dir, dataclasses.replace(EDITS, prediction="useless"))
    for request in useless:
        text = predicted_text(request)
        assert text and text not in request.prompt
    assert take(6, tiny_model_dir, dataclasses.replace(EDITS, prediction="useless")) == useless


def test_edits_are_five_to_ten_percent_in_short_runs() -> None:
    generator = random.Random(3)
    ids, fresh = list(range(1000, 1200)), list(range(100))
    kinds = set()
    for _ in range(200):
        made = edited(ids, generator=generator, fresh=fresh)
        matcher = difflib.SequenceMatcher(None, ids, made, autojunk=False)
        changes = [opcode for opcode in matcher.get_opcodes() if opcode[0] != "equal"]
        num_edited = sum(max(i2 - i1, j2 - j1) for _, i1, i2, j1, j2 in changes)
        # edits side by side count as one, one that would reach into the next is cut
        assert 4 <= num_edited <= 21
        kinds |= {tag for tag, *_ in changes}
    assert kinds == {"insert", "delete", "replace"}
    assert edited([7], generator=generator, fresh=fresh) != [7]


def bench_lines(num: int) -> list[str]:
    """Lines of the shape of CodeEditorBench's code_debug files."""
    tests = {"public_tests_input": "1 2", "public_tests_output": "3", "private_tests_input": ["5 6"]}
    return [
        json.dumps(
            {
                "idx": index, "code_language": "python3", "difficulty": "easy", "solutions": "print(1)",
                "incorrect_solutions": f"def solve_{index}(a, b):\r\n" + "    a = a - b * 17\r\n" * 12, **tests,
            }
        )
        for index in range(num)
    ]  # fmt: skip


def test_tasks_of_the_users_own(tiny_model_dir: Path, tmp_path: Path) -> None:
    path = tmp_path / "debug.jsonl"
    path.write_text("\n".join(bench_lines(30)) + "\n")
    tasks = dataclasses.replace(EDITS, edit_tasks=str(path), prompt_tokens_min=96, prediction="pre_edit")
    assert_function_of_arguments(tiny_model_dir, dataclasses.replace(tasks, prediction="none"))
    requests = take(12, tiny_model_dir, tasks)
    assert_lengths_are_true(requests, model_dir=tiny_model_dir)
    for request in requests:
        nonce, instruction, given, wanted, rest = request.prompt.split("\n", 4)
        assert nonce.startswith("# ")
        assert instruction == "Correct the errors in this python3 code. It has to pass this test:"
        assert (given, wanted) == ("Input: 1 2", "Output: 3")
        assert rest.removeprefix("\n") == f"{predicted_text(request)}\nThe edited file:\n\n"
        assert "\r" not in rest
    pools = [{task.code for task in edit_tasks(path, pool)} for pool in Pool]
    assert sum(map(len, pools)) == 30 and not any(a & b for a, b in itertools.combinations(pools, 2))
    for request in take(4, tiny_model_dir, dataclasses.replace(tasks, prediction="useless")):
        text = predicted_text(request)
        assert text and text.startswith("def solve_") and text.strip() not in request.prompt


def test_the_rules_of_a_target_know_the_tasks(tmp_path: Path) -> None:
    """`vibeserve check` refuses what a run could not use, before anything is spent."""
    workload = dataclasses.replace(EDITS, edit_tasks=str(tmp_path / "none.jsonl"), predictions_ahead=0)
    workload.loads, workload.headline_load = {"c1": Load(concurrency=1)}, "c1"
    assert list(workload_problems(workload, model=Model(), is_own=False)) == [
        "workload.predictions_ahead: 0 is below 1",
        f"workload.edit_tasks: no file {tmp_path / 'none.jsonl'}",
    ]
    chat = dataclasses.replace(workload, kind="chat", predictions_ahead=1)
    told = "workload.edit_tasks: only a code_edit workload has it, workload.kind is chat"
    assert told in list(workload_problems(chat, model=Model(), is_own=False))


def test_tasks_that_cannot_be_used_are_refused_by_line(tiny_model_dir: Path, tmp_path: Path) -> None:
    path = tmp_path / "debug.jsonl"
    tasks = dataclasses.replace(EDITS, edit_tasks=str(path))
    with pytest.raises(SpecError, match=r"debug.jsonl cannot be used") as caught:
        take(1, tiny_model_dir, tasks)
    assert caught.value.problems == (f"workload.edit_tasks: no file {path}",)
    path.write_text('[]\n{\n{"incorrect_solutions": " "}\n{"incorrect_solutions": "x", "code_language": 3}\n')
    with pytest.raises(SpecError) as caught:
        take(1, tiny_model_dir, tasks)
    assert list(caught.value.problems) == [
        "debug.jsonl:1: expected a JSON object, got list",
        "debug.jsonl:2: not JSON: Expecting property name enclosed in double quotes at column 2",
        "debug.jsonl:3: incorrect_solutions: expected code that is not empty",
        "debug.jsonl:4: code_language: expected text, got 3",
    ]
    path.write_text("\n" * 3)
    assert edit_task_problems(path) == ["debug.jsonl: holds no task"]
    path.write_text("{}\n" * 30)
    assert len(edit_task_problems(path)) == 21 and edit_task_problems(path)[-1] == "and 10 more"
    path.write_bytes(b"\xff")
    assert edit_task_problems(path) == ["debug.jsonl: not UTF-8 text: invalid start byte at byte 0"]
    path.write_text(bench_lines(1)[0])
    empty = next(pool for pool in Pool if not edit_tasks(path, pool))
    with pytest.raises(SpecError) as caught:
        take(1, tiny_model_dir, tasks, pool=empty)
    text = f"debug.jsonl: no task for the pool {empty.value}; tasks are dealt to three pools by their code"
    assert caught.value.problems == (text,)
