from __future__ import annotations

import itertools
from pathlib import Path

import pytest
from stream_samples import take

from vibeserve.errors import SpecError
from vibeserve.spec import Workload
from vibeserve.weights import load_tokenizer
from vibeserve.workloads import Pool
from vibeserve.workloads.text_pools import paragraphs

SHORT = Workload(kind="chat", prompt_tokens_min=16, prompt_tokens_max=48, output_tokens_min=8, output_tokens_max=16)
LONG = Workload(kind="chat", prompt_tokens_min=128, prompt_tokens_max=512)


@pytest.mark.parametrize("workload", [SHORT, LONG], ids=["short", "long"])
def test_prompts_have_exactly_the_drawn_length(tiny_model_dir: Path, workload: Workload) -> None:
    tokenizer = load_tokenizer(tiny_model_dir)
    requests = take(60, tiny_model_dir, workload)
    assert [len(tokenizer.encode(request.prompt).ids) for request in requests] == [
        request.num_prompt_tokens for request in requests
    ]
    assert all(tokenizer.decode(tokenizer.encode(request.prompt).ids) == request.prompt for request in requests)


def test_lengths_fill_the_declared_ranges(tiny_model_dir: Path) -> None:
    requests = take(300, tiny_model_dir, SHORT)
    assert {request.num_prompt_tokens for request in requests} == set(range(16, 49))
    assert {request.max_tokens for request in requests} == set(range(8, 17))
    assert all(request.ignore_eos for request in requests)


def test_trace_is_a_function_of_its_arguments(tiny_model_dir: Path) -> None:
    first = take(20, tiny_model_dir, SHORT, share=8)
    assert take(20, tiny_model_dir, SHORT, share=8) == first
    assert take(20, tiny_model_dir, SHORT, seed=2)[0].prompt != first[0].prompt
    assert take(20, tiny_model_dir, SHORT, pool=Pool.certification)[0].prompt != first[0].prompt
    assert [request.request_id for request in first[:2]] == ["visible-1-0", "visible-1-1"]


def test_nonce_opens_every_prompt(tiny_model_dir: Path) -> None:
    heads = [
        request.prompt.split("\n")[0]
        for pool in Pool
        for seed in (1, 2)
        for request in take(50, tiny_model_dir, LONG, pool=pool, seed=seed)
    ]
    assert len(set(heads)) == len(heads)
    assert all(len(head) == 12 and int(head, 16) >= 0 for head in heads)


def test_pools_are_disjoint_and_hold_enough_text() -> None:
    pools = [set(paragraphs(pool)) for pool in Pool]
    assert not any(left & right for left, right in itertools.combinations(pools, 2))
    assert all(sum(map(len, pool)) > 80_000 for pool in pools)


def test_one_request_in_each_block_carries_logprobs(tiny_model_dir: Path) -> None:
    requests = take(80, tiny_model_dir, SHORT, share=8)
    places = [[request.logprobs > 0 for request in requests[start : start + 8]] for start in range(0, 80, 8)]
    assert all(sum(block) == 1 for block in places)
    assert len({block.index(True) for block in places}) > 1
    assert not any(request.logprobs for request in take(20, tiny_model_dir, SHORT))


def test_logprobs_do_not_change_the_prompts(tiny_model_dir: Path) -> None:
    assert all(request.max_tokens in range(8, 17) for request in take(8, tiny_model_dir, SHORT, share=3))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"prompt_tokens_min": 50}, "prompt_tokens_min 50 and prompt_tokens_max 48"),
        ({"output_tokens_min": 0}, "output_tokens_min 0"),
        ({"prompt_tokens_min": 4}, "at least 16, the nonce needs room"),
    ],
)
def test_impossible_lengths_are_refused(tiny_model_dir: Path, changes: dict[str, int], message: str) -> None:
    import dataclasses

    with pytest.raises(SpecError, match=message):
        take(1, tiny_model_dir, dataclasses.replace(SHORT, **changes))


def test_unknown_kind_lists_the_known_ones(tiny_model_dir: Path) -> None:
    kinds = "chat, code_edit, constrained_json, shared_prefix, trace"
    with pytest.raises(SpecError, match=rf"workload.kind 'chess' is unknown\nnext: one of: {kinds}$"):
        take(1, tiny_model_dir, Workload(kind="chess"))
