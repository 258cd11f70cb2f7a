"""Guesses change the number of steps and never a token: against one row at a time, for whatever the model says."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest
import torch
from local_server import LocalServer
from runtime.__main__ import build_service
from runtime.constraints import ConstraintCompiler, GrammarConstraint
from runtime.interfaces import ModelConfig
from runtime.parameters import Parameters
from runtime.tokenizer import Tokenizer
from torch import Tensor

NUM_SCHEMAS = 60
MAX_TOKENS = 120
MAX_GUESSES = 8
FIELDS: tuple[dict[str, Any], ...] = (
    {"type": "boolean"},
    {"enum": ["low", "medium", "high"]},
    {"const": "exactly this"},
    {"type": "integer", "minimum": 0, "maximum": 99},
    {"type": "string", "maxLength": 6},
    {"type": "array", "items": {"enum": ["a", "b"]}, "maxItems": 2},
    {"type": "object", "properties": {"in": {"type": "boolean"}}, "required": ["in"], "additionalProperties": False},
)
NAMES = ("severity", "is_open", "count", "first name", "x", "größe", "steps")


def schema_of(generator: random.Random) -> dict[str, Any]:
    names = generator.sample(NAMES, generator.randint(1, 5))
    return {
        "type": "object",
        "properties": {name: generator.choice(FIELDS) for name in names},
        "required": generator.sample(names, generator.randint(0, len(names))),
        "additionalProperties": False,
    }


class RandomModel:
    """Logits that every token before them changes; now and then of a model that likes to go on as the grammar does."""

    def __init__(self, seed: int, vocab_size: int) -> None:
        self.seed, self.vocab_size = seed, vocab_size

    def logits(self, token_ids: list[int]) -> Tensor:
        generator = torch.Generator().manual_seed(hash((self.seed, *token_ids)) & 0x7FFFFFFF)
        return torch.randn(self.vocab_size, generator=generator)


def one_by_one(constraint: GrammarConstraint, model: RandomModel, end_ids: tuple[int, ...]) -> list[int]:
    ids: list[int] = []
    while len(ids) < MAX_TOKENS and not constraint.is_complete and not (ids and ids[-1] in end_ids):
        logits = model.logits(ids)
        constraint.mask(logits)
        ids.append(int(logits.argmax()))
        constraint.accept(ids[-1])
    return ids


def in_steps(
    constraint: GrammarConstraint, model: RandomModel, end_ids: tuple[int, ...], *, is_masked_first: bool
) -> tuple[list[int], int]:
    """The tokens, as the engine keeps them, and the number of steps; `is_masked_first`: as a sampler of whole steps."""
    ids: list[int] = []
    num_steps = 0
    while len(ids) < MAX_TOKENS and not constraint.is_complete and not (ids and ids[-1] in end_ids):
        guesses = constraint.draft(min(MAX_GUESSES, MAX_TOKENS - len(ids) - 1))
        rows = [model.logits(ids + guesses[:row]) for row in range(len(guesses) + 1)]
        chosen = sample(constraint, rows, is_masked_first=is_masked_first)
        num_right = 0
        while num_right < len(guesses) and chosen[num_right] == guesses[num_right]:
            num_right += 1
        ids += chosen[: num_right + 1]
        num_steps += 1
    return ids, num_steps


def sample(constraint: GrammarConstraint, rows: list[Tensor], *, is_masked_first: bool) -> list[int]:
    chosen = []
    if is_masked_first:
        for row in rows:
            constraint.mask(row)
    for row in rows:
        if not is_masked_first:
            constraint.mask(row)
        chosen.append(int(row.argmax()))
        constraint.accept(chosen[-1])
    return chosen


@pytest.mark.parametrize("is_masked_first", [False, True])
def test_tokens_are_those_of_one_row_at_a_time(
    model_dir: Path, config: ModelConfig, is_masked_first: bool
) -> None:
    compiler = ConstraintCompiler(model_dir, config)
    generator = random.Random(7)
    num_tokens = num_steps = 0
    for seed in range(NUM_SCHEMAS):
        form = {"type": "json_schema", "json_schema": {"name": "x", "schema": schema_of(generator)}}
        model = RandomModel(seed, config.vocab_size)
        plain, jumping = compiler.compile(form), compiler.compile(form)
        assert plain is not None and jumping is not None
        expected = one_by_one(plain, model, config.eos_token_ids)
        found, steps = in_steps(jumping, model, config.eos_token_ids, is_masked_first=is_masked_first)
        assert found == expected, form
        num_tokens, num_steps = num_tokens + len(found), num_steps + steps
    # random logits choose odd splits of a name; a model's own are mostly the guessed ones
    assert num_steps < num_tokens


def test_what_a_model_would_write_takes_few_steps(
    model_dir: Path, config: ModelConfig, tokenizer: Tokenizer
) -> None:
    """A model that writes the usual tokens of a document."""
    text = '{"severity":"low","is_open":true,"component":"low","count":7}'
    schema = {
        "type": "object",
        "properties": {
            "severity": {"enum": ["low", "high"]}, "is_open": {"type": "boolean"}, "component": {"enum": ["low"]},
            "count": {"type": "integer", "minimum": 0, "maximum": 9},
        },
        "required": ["severity", "is_open", "component", "count"],
        "additionalProperties": False,
    }  # fmt: skip
    ids = tokenizer.encode_continuation(text)
    constraint = ConstraintCompiler(model_dir, config).compile(
        {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}
    )
    assert constraint is not None
    done, num_steps = 0, 0
    while done < len(ids):
        guesses = constraint.draft(MAX_GUESSES)
        wanted = (ids + [0] * MAX_GUESSES)[done : done + len(guesses) + 1]
        rows = [likes(token_id, config.vocab_size) for token_id in wanted]
        chosen = sample(constraint, rows, is_masked_first=True)
        num_right = next((row for row, guess in enumerate(guesses) if chosen[row] != guess), len(guesses))
        assert chosen[: num_right + 1] == ids[done : done + num_right + 1]
        done, num_steps = done + num_right + 1, num_steps + 1
    assert constraint.is_complete
    assert num_steps < 0.75 * len(ids)


def likes(token_id: int, vocab_size: int) -> Tensor:
    logits = torch.zeros(vocab_size)
    logits[token_id] = 9.0
    return logits


def test_answers_are_the_same_with_and_without_guesses(model_dir: Path) -> None:
    """Over HTTP on the real model, alone and together."""
    generator = random.Random(3)
    bodies = [
        {
            "prompt": f"Item {number}: ", "max_tokens": MAX_TOKENS, "temperature": 0, "return_token_ids": True,
            "response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": schema_of(generator)}},
        }
        for number in range(24)
    ]  # fmt: skip
    answers = {}
    for num_guesses in (0, MAX_GUESSES):
        with LocalServer(build_service(model_dir, parameters=Parameters(max_jump_tokens=num_guesses))) as server:
            pending = [server.start("POST", "/v1/completions", body=body) for body in bodies]
            answers[num_guesses] = [each.result(timeout=120).data["choices"][0] for each in pending]
    for plain, jumping, body in zip(answers[0], answers[MAX_GUESSES], bodies, strict=True):
        assert jumping == plain, body
        if plain["finish_reason"] == "stop":
            json.loads(plain["text"])


def test_a_sampled_answer_has_no_guesses(server: LocalServer) -> None:
    form = {"type": "json_schema", "json_schema": {"name": "x", "schema": schema_of(random.Random(5))}}
    body = {"prompt": "Item: ", "max_tokens": MAX_TOKENS, "temperature": 0.8, "seed": 4, "response_format": form}
    first, again = (server.post("/v1/completions", body).data["choices"] for _ in range(2))
    assert first == again
