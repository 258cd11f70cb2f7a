"""Workload `constrained_json`: a text and a JSON schema that the reply has to be valid for (`response_format`).

Every other request takes one of the small task schemas in `schemas.json`, of the kind that applications send with an
instruction; the others one of `schemas_store.json`, object types from the configuration files of well-known tools
(SchemaStore, Apache-2.0; `benchmarks/schemas/collect.py` says what was changed).
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vibeserve.contract import Pool
from vibeserve.core.nouns import PromptRequest
from vibeserve.errors import SpecError
from vibeserve.spec import Workload
from vibeserve.workloads.exact_text import MAX_ATTEMPTS, draw_nonce, fit_middle
from vibeserve.workloads.sampling import check_lengths, logprobs_places, seeded_random
from vibeserve.workloads.text_pools import paragraphs

if TYPE_CHECKING:
    from tokenizers import Tokenizer

SHARE_OF_TASKS = 0.5
STORE_INSTRUCTION = "Fill in one JSON object of the type {name} that fits the text."
MIN_TEXT_TOKENS = 48
"""that a prompt has beside its instruction and schema, its nonce included"""
NUM_PARAGRAPHS = 24
"""joined and cut to the drawn length"""


def constrained_json_stream(
    workload: Workload, *, tokenizer: Tokenizer, pool: Pool, seed: int, logprobs_share: int
) -> Iterator[PromptRequest]:
    """Endless requests; each carries its schema as `payload["response_format"]`, in the shape of the OpenAI API.

    The reply ends with the document, at the latest after the drawn number of output tokens.
    """
    check_lengths(workload)
    return _stream(workload, tokenizer=tokenizer, pool=pool, seed=seed, logprobs_share=logprobs_share)


def _stream(
    workload: Workload, *, tokenizer: Tokenizer, pool: Pool, seed: int, logprobs_share: int
) -> Iterator[PromptRequest]:
    generator = seeded_random(workload, pool=pool, seed=seed)
    own, store = (_fitting(entries, workload, tokenizer=tokenizer) for entries in (tasks(), store_schemas()))
    if not own and not store:
        longest = workload.prompt_tokens_max
        raise SpecError(
            f"no schema of constrained_json leaves room for a text in a prompt of {longest} tokens",
            hint="raise workload.prompt_tokens_max",
        )
    for number, logprobs in enumerate(logprobs_places(generator, share=logprobs_share)):
        entries = own if generator.random() < SHARE_OF_TASKS else store
        task = generator.choice(entries or own or store)
        prompt, num_tokens = _draw(workload, task, generator=generator, pool=pool, tokenizer=tokenizer)
        yield PromptRequest(
            request_id=f"{pool.value}-{seed}-{number}",
            payload={"response_format": response_format(task)},
            prompt=prompt,
            num_prompt_tokens=num_tokens,
            max_tokens=generator.randint(workload.output_tokens_min, workload.output_tokens_max),
            ignore_eos=False,
            logprobs=logprobs,
        )


def response_format(task: dict[str, Any]) -> dict[str, Any]:
    """The OpenAI API's `response_format` for one entry of `schemas.json`."""
    schema = {"name": task["name"], "schema": task["schema"], "strict": True}
    return {"type": "json_schema", "json_schema": schema}


def _fitting(
    entries: Sequence[dict[str, Any]], workload: Workload, *, tokenizer: Tokenizer
) -> list[dict[str, Any]]:
    """Those whose instruction and schema leave room for some text within the longest prompt."""
    frames = ["".join(_frame(task)) for task in entries]
    lengths = [len(encoding.ids) for encoding in tokenizer.encode_batch(frames)]
    return [
        task for task, length in zip(entries, lengths, strict=True)
        if length + MIN_TEXT_TOKENS <= workload.prompt_tokens_max
    ]  # fmt: skip


def _frame(task: dict[str, Any]) -> tuple[str, str]:
    """What stands before and behind the text of a prompt, but for its nonce."""
    schema = json.dumps(task["schema"], separators=(",", ":"))
    return f"{task['instruction']}\nText: ", f"\nSchema: {schema}\nJSON: "


def _draw(
    workload: Workload, task: dict[str, Any], *, generator: random.Random, pool: Pool, tokenizer: Tokenizer
) -> tuple[str, int]:
    """One prompt and its number of tokens."""
    before, behind = _frame(task)
    num_tokens = 0
    for _ in range(MAX_ATTEMPTS):
        wanted = generator.randint(workload.prompt_tokens_min, workload.prompt_tokens_max)
        text = " ".join(generator.choice(paragraphs(pool)) for _ in range(NUM_PARAGRAPHS))
        prompt, num_tokens = fit_middle(
            f"{draw_nonce(generator)}\n{before}",
            text,
            behind,
            borders=[match.start() for match in re.finditer(" ", text)],
            num_tokens=wanted,
            tokenizer=tokenizer,
        )
        if workload.prompt_tokens_min <= num_tokens <= workload.prompt_tokens_max:
            return prompt, num_tokens
    low, high = workload.prompt_tokens_min, workload.prompt_tokens_max
    raise SpecError(
        f"no prompt of {low} to {high} tokens for schema '{task['name']}' found in {MAX_ATTEMPTS} attempts",
        hint=f"widen workload.prompt_tokens_min and prompt_tokens_max; the last attempt has {num_tokens} tokens",
    )


@lru_cache(maxsize=1)
def tasks() -> tuple[dict[str, Any], ...]:
    """Entries of `schemas.json`: name, instruction, schema."""
    return tuple(_entries("schemas.json"))


@lru_cache(maxsize=1)
def store_schemas() -> tuple[dict[str, Any], ...]:
    """Entries of `schemas_store.json` in the same form."""
    return tuple(
        {**entry, "instruction": STORE_INSTRUCTION.format(name=entry["name"])}
        for entry in _entries("schemas_store.json")
    )


def _entries(name: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(Path(__file__).with_name(name).read_text(encoding="utf-8"))
    return found
