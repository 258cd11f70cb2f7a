"""`code_edit`: source of the standard library and an instruction."""

from __future__ import annotations

import dataclasses
import itertools
from pathlib import Path

import pytest
from stream_samples import assert_function_of_arguments, assert_lengths_are_true, take

from vibeserve.errors import SpecError
from vibeserve.spec import Workload
from vibeserve.workloads import Pool
from vibeserve.workloads.code_edit import source_files

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
