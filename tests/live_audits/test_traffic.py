"""Requests of audits over the tiny model's tokenizer: alike in length, different in content."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tokenizers import Tokenizer

from vibeserve.contract import Pool, Request
from vibeserve.core.nouns import PromptRequest
from vibeserve.live_audits import (
    audit_duplicates,
    audit_idle,
    audit_off_distribution,
    audit_repeats,
    audit_seeds,
    audit_shared_prefix,
)
from vibeserve.live_audits.traffic import (
    alike,
    declares_reuse,
    is_text,
    late_twin,
    lengths_of,
    prompts,
    prompts_behind_prefix,
    tokenizer_of,
)
from vibeserve.modalities import bundle_ref, open_bundle
from vibeserve.spec import Load, Spec, Workload


def bench_of(model_dir: Path, **workload: Any) -> Any:
    declared = Workload(
        kind="chat", prompt_tokens_min=24, prompt_tokens_max=64, output_tokens_min=16, output_tokens_max=32,
        loads={"c4": Load(concurrency=4)}, headline_load="c4",
    )  # fmt: skip
    for name, value in workload.items():
        setattr(declared, name, value)
    spec = Spec(workload=declared)
    bundle = open_bundle(bundle_ref(spec, model_dir=model_dir))
    return SimpleNamespace(plan=SimpleNamespace(spec=spec), bundle=bundle, bundle_at=lambda load: bundle)


@pytest.fixture
def bench(tiny_model_dir: Path) -> Any:
    return bench_of(tiny_model_dir)


def ids_of(bench: Any, request: Any) -> list[int]:
    tokenizer: Tokenizer = tokenizer_of(bench.bundle)
    return list(tokenizer.encode(request.prompt).ids)


def test_requests_are_alike_in_length_and_different_in_content(bench: Any) -> None:
    assert is_text(bench.bundle)
    requests: list[Any] = alike(bench, num=6, seed=3, max_output_tokens=20)
    lengths = lengths_of(bench.bundle, seed=3)
    assert {len(ids_of(bench, request)) for request in requests} == {lengths.prompt_median}
    assert {request.max_tokens for request in requests} == {min(20, lengths.output_median)}
    assert len({request.prompt[:6] for request in requests}) == 6, "nonces open them"
    assert alike(bench, num=6, seed=3, max_output_tokens=20) == requests
    assert 24 <= lengths.prompt_min < lengths.prompt_max <= 64


def test_prompts_behind_a_prefix_share_most_of_their_tokens(bench: Any) -> None:
    shared = prompts_behind_prefix(bench, num=3, seed=3, prompt_tokens=64, output_tokens=2)
    ids = [ids_of(bench, request) for request in shared]
    assert {len(each) for each in ids} == {64}
    assert ids[0][:48] == ids[1][:48] == ids[2][:48]
    assert ids[0][48:] != ids[1][48:]


def test_a_late_twin_differs_near_its_end_and_nowhere_else(bench: Any) -> None:
    found = 0
    for seed in range(8):
        one, other = prompts(bench, num=2, seed=seed, prompt_tokens=40, output_tokens=8)
        twin = late_twin(bench.bundle, one, other=other)
        if twin is None:
            continue
        found += 1
        assert isinstance(twin, PromptRequest)
        mine, twins = ids_of(bench, one), ids_of(bench, twin)
        assert len(twins) == len(mine) == 40 and twins != mine and twins[:38] == mine[:38]
    assert found >= 6


def test_reuse_is_declared_by_word_or_by_kind(tiny_model_dir: Path, bench: Any) -> None:
    assert not declares_reuse(bench)
    assert declares_reuse(bench_of(tiny_model_dir, reuse="prefix"))
    assert declares_reuse(bench_of(tiny_model_dir, kind="shared_prefix", shared_prefix_tokens=32))


class Numbers:
    """A workload of a target's own: vectors of two lengths, the longer ones twice as often."""

    def requests(self, seed: int, pool: Pool) -> Iterator[Request]:
        for number in itertools.count():
            values = [seed + number, len(pool.value), *([0.5] if number % 3 else [])]
            yield Request(request_id=str(number), payload={"values": values})


def own_bench() -> Any:
    bundle = SimpleNamespace(
        request_type=Request, workload=Numbers(), plain=lambda request: request, audited=lambda request: request,
        blamed=lambda _: nullcontext(),
    )
    workload = Workload(kind="own", loads={"c4": Load(concurrency=4)}, headline_load="c4")
    return SimpleNamespace(plan=SimpleNamespace(spec=Spec(workload=workload)), bundle_at=lambda load: bundle)


def test_requests_of_a_targets_own_workload_are_alike_in_shape() -> None:
    requests = alike(own_bench(), num=20, seed=3)
    assert len(requests) == 20
    assert {len(request.payload["values"]) for request in requests} == {3}
    assert len({str(request.payload) for request in requests}) == 20


@pytest.mark.parametrize(
    "audit", [audit_repeats, audit_duplicates, audit_off_distribution, audit_seeds, audit_idle, audit_shared_prefix]
)
def test_an_audit_that_finds_too_few_alike_says_so_and_starts_nothing(
    audit: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = own_bench()
    few = [Request(request_id=str(number), payload={"values": [1] * number}) for number in range(300)]
    monkeypatch.setattr(Numbers, "requests", lambda *_: iter(few))
    monkeypatch.setattr("vibeserve.live_audits.idle.watched_s", lambda _: 0.0)
    found = audit(bench, None, seed=1)
    assert found.state == "not run" and found.refusals == () and found.not_applicable
