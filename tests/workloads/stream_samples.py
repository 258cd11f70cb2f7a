"""What the tests of every stream share."""

from __future__ import annotations

import itertools
from pathlib import Path

from vibeserve.core.nouns import PromptRequest
from vibeserve.spec import Workload
from vibeserve.weights import load_tokenizer
from vibeserve.workloads import Pool, request_stream


def take(
    num: int, model_dir: Path, workload: Workload, *, pool: Pool = Pool.visible, seed: int = 1, share: int = 0
) -> list[PromptRequest]:
    """The first `num` requests of a stream."""
    stream = request_stream(workload, tokenizer=load_tokenizer(model_dir), pool=pool, seed=seed, logprobs_share=share)
    return list(itertools.islice(stream, num))


def assert_lengths_are_true(requests: list[PromptRequest], *, model_dir: Path) -> None:
    """Every prompt encodes to as many tokens as the request says."""
    tokenizer = load_tokenizer(model_dir)
    told = [request.num_prompt_tokens for request in requests]
    assert [len(tokenizer.encode(request.prompt).ids) for request in requests] == told


def assert_function_of_arguments(model_dir: Path, workload: Workload) -> None:
    """Same arguments, same requests; another seed or pool, other prompts; log-probabilities at one place a block."""
    first = take(16, model_dir, workload, share=8)
    assert take(16, model_dir, workload, share=8) == first
    prompts = {request.prompt for request in first}
    for other in (take(16, model_dir, workload, seed=2), take(16, model_dir, workload, pool=Pool.certification)):
        assert not prompts & {request.prompt for request in other}
    assert [sum(request.logprobs > 0 for request in first[start : start + 8]) for start in (0, 8)] == [1, 1]
