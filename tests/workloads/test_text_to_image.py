"""Requests for images: pure, nonced, and of the declared lengths."""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from image_samples import WORKLOAD

from vibeserve.contract import Pool, Request
from vibeserve.errors import SpecError
from vibeserve.spec import Workload


@pytest.fixture(scope="module")
def tokenizer(tiny_model_dir: Path) -> Any:
    from vibeserve.weights import load_tokenizer

    return load_tokenizer(tiny_model_dir)


def requests(
    tokenizer: Any, workload: Workload = WORKLOAD, *, seed: int = 3, pool: Pool = Pool.visible
) -> list[Request]:
    from vibeserve.workloads.text_to_image import text_to_image_stream

    stream = text_to_image_stream(workload, tokenizer=tokenizer, size="64x64", pool=pool, seed=seed)
    return list(itertools.islice(stream, 8))


def test_requests_are_a_pure_function_of_seed_and_pool(tokenizer: Any) -> None:
    first = requests(tokenizer)
    assert first == requests(tokenizer)
    others = [requests(tokenizer, seed=4), requests(tokenizer, pool=Pool.certification)]
    for field in ("prompt", "seed"):
        seen = [each.payload[field] for part in (first, *others) for each in part]
        assert len(set(seen)) == len(seen), field


def test_each_holds_what_the_workload_declares(tokenizer: Any) -> None:
    for request in requests(tokenizer):
        payload = request.payload
        assert 16 <= len(tokenizer.encode(payload["prompt"]).ids) <= 32
        assert (payload["size"], payload["steps"], payload["guidance"]) == ("64x64", 4, 3.0)
        assert 0 <= payload["seed"] < 1 << 32
    plain = requests(tokenizer, replace(WORKLOAD, guidance_scale=0.0))
    assert {request.payload["guidance"] for request in plain} == {1.0}


def test_what_no_image_can_be_drawn_with_is_refused(tokenizer: Any) -> None:
    with pytest.raises(SpecError, match="the text_to_image workload needs steps"):
        requests(tokenizer, replace(WORKLOAD, num_steps=0))
    with pytest.raises(SpecError, match="lengths cannot be met"):
        requests(tokenizer, replace(WORKLOAD, prompt_tokens_min=4))


def test_audits_of_times_get_requests_of_one_shape(tokenizer: Any) -> None:
    from image_samples import context

    from vibeserve.live_audits.traffic import commonest
    from vibeserve.modalities.image.workload import configure

    workload = configure(context())
    audited = [workload.audited(request) for request in requests(tokenizer)]
    assert len(commonest(audited)) == len(audited)
    assert {request.payload["steps"] for request in audited} == {2}
    assert all(len(request.payload["prompt"]) == WORKLOAD.prompt_tokens_min for request in audited)
