"""`shared_prefix`: many requests behind few long prefixes."""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from pathlib import Path

import pytest
from stream_samples import assert_function_of_arguments, assert_lengths_are_true, take

from vibeserve.errors import SpecError
from vibeserve.spec import Workload
from vibeserve.weights import load_tokenizer
from vibeserve.workloads import Pool

SHARED = Workload(
    kind="shared_prefix", shared_prefix_tokens=96, num_prefixes=3, prompt_tokens_min=16, prompt_tokens_max=24,
    output_tokens_min=8, output_tokens_max=8, reuse="prefix",
)  # fmt: skip


def prefixes_of(model_dir: Path, requests: list[str]) -> dict[tuple[int, ...], list[tuple[int, ...]]]:
    """Ids of the unique parts by the ids of the prefix before them."""
    tokenizer = load_tokenizer(model_dir)
    found = defaultdict(list)
    for prompt in requests:
        ids = tokenizer.encode(prompt).ids
        found[tuple(ids[: SHARED.shared_prefix_tokens])].append(tuple(ids[SHARED.shared_prefix_tokens :]))
    return found


def test_requests_share_as_many_prefixes_as_declared_token_by_token(tiny_model_dir: Path) -> None:
    requests = take(40, tiny_model_dir, SHARED)
    by_prefix = prefixes_of(tiny_model_dir, [request.prompt for request in requests])
    assert len(by_prefix) == 3
    unique = [part for parts in by_prefix.values() for part in parts]
    assert len(set(unique)) == len(unique) == 40
    assert {len(part) for part in unique} <= set(range(16, 25))


def test_prompts_have_the_length_of_both_parts(tiny_model_dir: Path) -> None:
    requests = take(20, tiny_model_dir, SHARED)
    assert_lengths_are_true(requests, model_dir=tiny_model_dir)
    assert {request.num_prompt_tokens for request in requests} <= set(range(112, 121))
    assert all(request.max_tokens == 8 and request.ignore_eos for request in requests)


def test_every_seed_and_pool_has_prefixes_of_its_own(tiny_model_dir: Path) -> None:
    seen = [
        set(prefixes_of(tiny_model_dir, [request.prompt for request in take(12, tiny_model_dir, SHARED, **where)]))
        for where in ({"seed": 1}, {"seed": 2}, {"seed": 1, "pool": Pool.certification})
    ]
    assert not seen[0] & seen[1] and not seen[0] & seen[2]


def test_stream_is_a_function_of_its_arguments(tiny_model_dir: Path) -> None:
    assert_function_of_arguments(tiny_model_dir, SHARED)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"shared_prefix_tokens": 4}, "workload.shared_prefix_tokens 4: at least 16, the nonce needs room"),
        ({"num_prefixes": 0}, "workload.num_prefixes 0: at least 1"),
        ({"prompt_tokens_min": 4}, "workload.prompt_tokens_min 4: at least 16, the nonce needs room"),
    ],
)
def test_what_cannot_be_met_is_refused(tiny_model_dir: Path, changes: dict[str, int], message: str) -> None:
    with pytest.raises(SpecError, match=message):
        take(1, tiny_model_dir, dataclasses.replace(SHARED, **changes))
