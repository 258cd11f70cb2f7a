"""Replies behind prefixes that are taken up again are the replies of computing everything."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from runtime import weights
from runtime.hybrid import HybridConfig
from runtime.interfaces import Sequence
from runtime.kv_cache import MIB, KVCache
from runtime.model import Model
from runtime.parameters import Parameters
from runtime.scheduler import Scheduler
from runtime.tokenizer import Tokenizer
from test_batching import sequence
from torch import Tensor

PREFIX_TOKENS = 43
"""off every grid in use here"""
SNAPSHOT_TOKENS = 16
NUM_STEPS = 4


@pytest.fixture(scope="module")
def model(model_dir: Path, config: HybridConfig) -> Model:
    return Model(config, weights.load_weights(model_dir), parameters=Parameters())


def parameters_of(**changes: int) -> Parameters:
    small = {"max_num_seqs": 4, "max_context_tokens": 128, "snapshot_tokens": SNAPSHOT_TOKENS, "min_shared_tokens": 8}
    return replace(Parameters(), **{**small, **changes})


class Server:
    """Scheduler, cache and model, greedy, without an engine."""

    def __init__(self, model: Model, tokenizer: Tokenizer, parameters: Parameters) -> None:
        self.model = model
        self.tokenizer = tokenizer
        self.cache = KVCache(model.config, parameters=parameters)
        self.scheduler = Scheduler(self.cache, parameters=parameters)
        self.num_computed = 0
        self.logits: dict[str, list[Tensor]] = {}

    def submit(self, token_ids: list[int], *, name: str) -> Sequence:
        item = sequence(self.tokenizer, token_ids, name=name)
        self.logits[name] = []
        self.scheduler.add(item)
        return item

    def step(self) -> None:
        step = self.scheduler.plan()
        assert step is not None
        rows = self.model.forward(step.batch, self.cache)
        self.num_computed += step.batch.num_rows
        assert self.cache.pool.num_bytes <= self.cache.pool.max_bytes
        for segment, item in zip(step.batch.segments, step.sequences, strict=True):
            item.num_computed_tokens = segment.stop_position
        for item, logits in zip(step.sampled, rows, strict=True):
            self.logits[item.request_id].append(logits.clone())
            item.output_token_ids.append(int(logits.argmax()))
            if len(item.output_token_ids) == NUM_STEPS:
                self.scheduler.finish(item)

    def finish(self) -> None:
        while self.scheduler.num_running or self.scheduler.num_waiting:
            self.step()

    def answer(self, token_ids: list[int], *, name: str) -> Tensor:
        """Logits [NUM_STEPS, vocabulary] of a reply of its own."""
        self.submit(token_ids, name=name)
        self.finish()
        return torch.stack(self.logits[name])


@pytest.fixture
def server(model: Model, tokenizer: Tokenizer) -> Server:
    return Server(model, tokenizer, parameters_of())


def fresh(server: Server, token_ids: list[int]) -> Tensor:
    """The reply of a server that has seen nothing."""
    return Server(server.model, server.tokenizer, parameters_of()).answer(token_ids, name="fresh")


def ids(num: int, *, seed: int) -> list[int]:
    return random.Random(seed).choices(range(10, 200), k=num)


def assert_same(one: Tensor, other: Tensor) -> None:
    assert (one - other).abs().max() < 0.03 * other.std()
    assert one.argmax(-1).tolist() == other.argmax(-1).tolist()


def test_a_resumed_prefix_gives_the_reply_of_computing_everything(server: Server) -> None:
    prefix = ids(PREFIX_TOKENS, seed=1)
    for number in range(4):
        prompt = prefix + ids(5, seed=10 + number)
        before = server.num_computed
        assert_same(server.answer(prompt, name=str(number)), fresh(server, prompt))
        num_prompt_rows = server.num_computed - before - (NUM_STEPS - 1)
        # all of it; from the last snapshot on the grid; what is its own
        assert num_prompt_rows == (48, 48 - 32, 5, 5)[number]


def test_a_near_miss_prefix_is_not_the_prefix(server: Server) -> None:
    prefix = ids(PREFIX_TOKENS, seed=2)
    for number in range(3):
        server.answer(prefix + ids(5, seed=20 + number), name=f"w{number}")
    for place in (0, 15, 16, 20, PREFIX_TOKENS - 1):
        near = list(prefix)
        near[place] = 201
        prompt = near + ids(5, seed=20)
        assert_same(server.answer(prompt, name=f"n{place}"), fresh(server, prompt))
        # the difference is one that the comparison would see
        reply = fresh(server, prompt)
        assert (reply - fresh(server, prefix + ids(5, seed=20))).abs().max() > 0.03 * reply.std()


def test_the_first_user_goes_on_beside_those_who_share_its_prefix(server: Server) -> None:
    prefix = ids(PREFIX_TOKENS, seed=3)
    prompts = {str(number): prefix + ids(3 + number, seed=30 + number) for number in range(4)}
    for name, prompt in prompts.items():
        server.submit(prompt, name=name)
    server.finish()
    assert server.num_computed == PREFIX_TOKENS + sum(3 + number for number in range(4)) + 4 * (NUM_STEPS - 1)
    for name, prompt in prompts.items():
        assert_same(torch.stack(server.logits[name]), fresh(server, prompt))


def test_keys_and_values_of_a_prefix_are_read_where_they_lie(
    model: Model, tokenizer: Tokenizer, config: HybridConfig
) -> None:
    server = Server(model, tokenizer, parameters_of(snapshot_tokens=128))
    prefix = ids(PREFIX_TOKENS, seed=4)
    for number in range(2):
        server.submit(prefix + ids(4, seed=40 + number), name=str(number))
    server.step()
    server.step()
    first, second = (server.cache.extent_of(item.slot) for item in server.scheduler.running if item.slot is not None)
    assert second.parent is first
    assert (second.start, second.capacity) == (PREFIX_TOKENS, 4 + 4)
    server.step()
    shared = [piece for piece, rows in server.cache.views.decoding.items() if len(rows) == 2]
    assert [(piece.start, piece.stop) for piece in shared] == [(0, PREFIX_TOKENS)]
    layer = config.attention_layers[0]
    assert shared[0].keys(layer).data_ptr() == first.keys[layer].data_ptr()
    server.finish()


def test_a_snapshot_stays_what_it_was_while_others_go_on_from_it(server: Server) -> None:
    prefix = ids(PREFIX_TOKENS, seed=5)
    for number in range(3):
        server.answer(prefix + ids(4, seed=50 + number), name=str(number))
    match = server.cache.pool.match([*prefix, 1])
    assert match.extent is not None and match.num_tokens == PREFIX_TOKENS
    kept = match.extent.snapshots[PREFIX_TOKENS]
    before = [tensor.clone() for tensor in (*kept.states.values(), *kept.windows.values())]
    assert any(tensor.abs().sum() > 0 for tensor in before)
    for number in range(3):
        server.answer(prefix + ids(6, seed=60 + number), name=f"a{number}")
    after = (*kept.states.values(), *kept.windows.values())
    assert all(torch.equal(one, other) for one, other in zip(before, after, strict=True))


def test_fifty_prefixes_stay_within_the_bound_and_evicted_ones_are_computed_again(
    model: Model, tokenizer: Tokenizer, config: HybridConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = Server(model, tokenizer, parameters_of())
    pool = server.cache.pool
    monkeypatch.setattr(pool, "max_bytes", 4 * 128 * pool.token_bytes + 6 * pool.snapshot_bytes)
    prefixes = [ids(PREFIX_TOKENS, seed=100 + number) for number in range(50)]
    chooser = random.Random(7)
    for number in range(75):
        prompt = chooser.choice(prefixes) + ids(4, seed=1000 + number)
        server.submit(prompt, name=str(number))
        if number % 3 == 2:
            server.finish()
        if number % 25 == 0:
            server.finish()
            assert_same(torch.stack(server.logits[str(number)]), fresh(server, prompt))
    assert pool.num_evicted > 20
    again = prefixes[0] + ids(4, seed=5000)
    for name in ("x", "y", "z"):
        assert_same(server.answer(again, name=name), fresh(server, again))
    assert pool.num_bytes <= pool.max_bytes


def test_a_prefix_is_given_up_where_its_sequence_would_not_fit_beside_it(
    model: Model, tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = Server(model, tokenizer, parameters_of())
    pool = server.cache.pool
    monkeypatch.setattr(pool, "max_bytes", 128 * pool.token_bytes + pool.snapshot_bytes)
    prefix = ids(64, seed=8)
    server.answer(prefix + ids(4, seed=80), name="a")
    prompt = prefix + ids(50, seed=81)
    assert_same(server.answer(prompt, name="b"), fresh(server, prompt))


def test_a_bound_that_holds_no_longest_sequence_is_refused(config: HybridConfig) -> None:
    parameters = parameters_of(max_context_tokens=1 << 20, kv_cache_mib=1)
    token_bytes = len(config.attention_layers) * 2 * config.num_kv_heads * config.head_dim * 4
    assert (1 << 20) * token_bytes > MIB
    with pytest.raises(ValueError, match="kv_cache_mib 1 holds no sequence of 1048576 tokens; it takes"):
        KVCache(config, parameters=parameters)
