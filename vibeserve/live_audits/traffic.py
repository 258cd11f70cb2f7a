"""Requests of audits: alike in shape, so that times of different contents may be compared.

A first prompt of a new length may be slower for honest reasons (kernels are chosen by shape), hence lengths are pinned:
of text by making prompts of one length, of any other workload by drawing many requests and keeping those of the
commonest shape.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from vibeserve.contract import Pool, Request
from vibeserve.core.nouns import PromptRequest
from vibeserve.errors import SpecError
from vibeserve.modalities import Bundle
from vibeserve.roles.workbench import Workbench
from vibeserve.spec import Workload
from vibeserve.workloads import request_stream

if TYPE_CHECKING:
    from tokenizers import Tokenizer

NUM_DRAWN = 256
"""requests among which those of one shape are looked for"""
NUM_LENGTHS = 32
"""requests whose lengths are looked at"""
MIN_UNIQUE_TOKENS = 16
"""behind a shared prefix: a nonce must fit"""
UNIQUE_SHARE = 5
"""one token in so many of a prompt is its own, the others are shared"""


@dataclass(frozen=True, kw_only=True)
class Lengths:
    """Of a workload's text requests, in tokens."""

    prompt_min: int
    prompt_median: int
    prompt_max: int
    output_median: int
    output_max: int


def is_text(bundle: Bundle) -> bool:
    """Its requests are prompts, whoever makes them."""
    return issubclass(bundle.request_type, PromptRequest)


def declares_reuse(bench: Workbench) -> bool:
    """The workload lets requests share prefixes: it says so, or is made of shared prefixes."""
    workload = bench.plan.spec.workload
    return workload.reuse == "prefix" or workload.kind == "shared_prefix"


def headline_bundle(bench: Workbench) -> Bundle:
    return bench.bundle_at(bench.plan.spec.workload.headline_load)


def drawn(bundle: Bundle, *, pool: Pool, seed: int, num: int) -> list[Request]:
    """The workload's own first requests, without what only the check asks for."""
    with bundle.blamed("workload"):
        requests = list(islice(bundle.workload.requests(seed, pool), num))
    return [bundle.plain(request) for request in requests]


def lengths_of(bundle: Bundle, *, seed: int) -> Lengths:
    """Lengths that the workload's requests of text really have."""
    requests = drawn(bundle, pool=Pool.certification, seed=seed, num=NUM_LENGTHS)
    prompts = [request.num_prompt_tokens for request in requests if isinstance(request, PromptRequest)]
    outputs = [request.max_tokens for request in requests if isinstance(request, PromptRequest)]
    return Lengths(
        prompt_min=min(prompts), prompt_median=int(median(prompts)), prompt_max=max(prompts),
        output_median=int(median(outputs)), output_max=max(outputs),
    )  # fmt: skip


def tokenizer_of(bundle: Bundle) -> Tokenizer:
    from vibeserve.weights import load_tokenizer

    return load_tokenizer(Path(bundle.ref.context.model_dir))


def prompts(
    bench: Workbench, *, num: int, seed: int, prompt_tokens: int, output_tokens: int, pool: Pool = Pool.certification
) -> list[Request]:
    """`num` different prompts of exactly so many tokens, each asking for exactly so many."""
    declared = replace(_fixed(bench, prompt_tokens, output_tokens), kind="chat")
    return _stream(bench, declared, pool=pool, seed=seed, num=num)


def prompts_behind_prefix(
    bench: Workbench, *, num: int, seed: int, prompt_tokens: int, output_tokens: int
) -> list[Request]:
    """`num` prompts of exactly so many tokens that differ in the last fifth only; none where the model's tokenizer
    cannot end a prefix at a token's border."""
    unique = max(MIN_UNIQUE_TOKENS, prompt_tokens // UNIQUE_SHARE)
    declared = replace(
        _fixed(bench, unique, output_tokens), kind="shared_prefix", shared_prefix_tokens=prompt_tokens - unique,
        num_prefixes=1,
    )  # fmt: skip
    try:
        return _stream(bench, declared, pool=Pool.certification, seed=seed, num=num)
    except SpecError:
        return []


def _fixed(bench: Workbench, prompt_tokens: int, output_tokens: int) -> Workload:
    return replace(
        bench.plan.spec.workload, prompt_tokens_min=prompt_tokens, prompt_tokens_max=prompt_tokens,
        output_tokens_min=output_tokens, output_tokens_max=output_tokens,
    )  # fmt: skip


def _stream(bench: Workbench, declared: Workload, *, pool: Pool, seed: int, num: int) -> list[Request]:
    stream: Iterator[Request] = request_stream(
        declared, tokenizer=tokenizer_of(headline_bundle(bench)), pool=pool, seed=seed
    )
    return list(islice(stream, num))


def alike(bench: Workbench, *, num: int, seed: int, max_output_tokens: int = 0) -> list[Request]:
    """`num` different requests of one shape: text of the workload's median lengths (at most `max_output_tokens` out,
    0 = as many as the median), else the commonest shape among those drawn. Fewer where there are no more."""
    bundle = headline_bundle(bench)
    if not is_text(bundle):
        found = drawn(bundle, pool=Pool.certification, seed=seed, num=NUM_DRAWN)
        return commonest([bundle.audited(request) for request in found])[:num]
    lengths = lengths_of(bundle, seed=seed)
    output_tokens = min(max_output_tokens or lengths.output_median, lengths.output_median)
    return prompts(bench, num=num, seed=seed, prompt_tokens=lengths.prompt_median, output_tokens=output_tokens)


def alike_behind_prefix(bench: Workbench, *, num: int, seed: int, max_output_tokens: int) -> list[Request]:
    """`num` different requests of one length behind one prefix, for workloads that declare such; none where the
    tokenizer ends no prefix at a token's border, or the requests are no text."""
    bundle = headline_bundle(bench)
    if not is_text(bundle):
        return []
    lengths = lengths_of(bundle, seed=seed)
    return prompts_behind_prefix(
        bench, num=num, seed=seed, prompt_tokens=lengths.prompt_max,
        output_tokens=min(max_output_tokens, lengths.output_median),
    )  # fmt: skip


def commonest(requests: Sequence[Request]) -> list[Request]:
    """Those of the shape that most of them have; no two with the same payload."""
    groups: dict[str, dict[str, Request]] = defaultdict(dict)
    for request in requests:
        groups[shape_of(request.payload)].setdefault(repr(request.payload), request)
    return list(max(groups.values(), key=len, default={}).values())


def shape_of(payload: Any) -> str:
    """JSON data without its content: names, lengths of lists, lengths of strings."""
    if isinstance(payload, Mapping):
        return "{" + ",".join(f"{name}:{shape_of(value)}" for name, value in sorted(payload.items())) + "}"
    if isinstance(payload, list | tuple):
        inner = {shape_of(value) for value in payload}
        return f"[{len(payload)} {'|'.join(sorted(inner))}]"
    return f"str{len(payload)}" if isinstance(payload, str) else type(payload).__name__


def late_twin(bundle: Bundle, request: Request, *, other: Request) -> Request | None:
    """The same prompt but for a late token, taken from `other`, with as many tokens; None where there is none."""
    if not isinstance(request, PromptRequest) or not isinstance(other, PromptRequest):
        return None
    tokenizer = tokenizer_of(bundle)
    ids, others = tokenizer.encode(request.prompt).ids, tokenizer.encode(other.prompt).ids
    for token in reversed(others):
        text = tokenizer.decode([*ids[:-1], token], skip_special_tokens=True)
        again = tokenizer.encode(text).ids
        if token != ids[-1] and len(again) == len(ids) and again != ids and again[:-2] == ids[:-2]:
            return replace(request, prompt=text)
    return None
