"""How OpenVINO's pipeline is driven, over a stand-in for the library."""

from __future__ import annotations

import asyncio
import threading
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from vibeserve.baselines.launchers.peer_server import openvino_engine
from vibeserve.baselines.launchers.peer_server.asking import Ask
from vibeserve.baselines.launchers.peer_server.streams import Delivery, TokenStream

REASONS = SimpleNamespace(STOP="STOP", LENGTH="LENGTH", NONE="NONE")
STATUSES = SimpleNamespace(IGNORED="IGNORED", RUNNING="RUNNING")


@dataclass
class Handle:
    """A request that makes one token a step: the numbers from 0 on."""

    config: Any
    made: list[int] = field(default_factory=list)
    unread: list[SimpleNamespace] = field(default_factory=list)
    is_over: bool = False

    def advance(self) -> None:
        self.made.append(len(self.made))
        is_last = len(self.made) == self.config.max_new_tokens
        self.is_over = is_last
        reason = REASONS.LENGTH if is_last else REASONS.NONE
        self.unread.append(SimpleNamespace(generated_ids=[self.made[-1]], finish_reason=reason))

    def can_read(self) -> bool:
        return bool(self.unread)

    def read(self) -> dict[int, SimpleNamespace]:
        return {0: self.unread.pop(0)}

    def get_status(self) -> str:
        return STATUSES.IGNORED if self.config.max_new_tokens > 100 else STATUSES.RUNNING

    def cancel(self) -> None:
        self.is_over = True

    stop = cancel


class Pipeline:
    def __init__(self, *_: object) -> None:
        self.handles: list[Handle] = []
        self.batches: list[int] = []

    def get_config(self) -> SimpleNamespace:
        return SimpleNamespace(structured_output_config=None, validate=lambda: None)

    def add_request(self, number: int, ids: Any, config: Any) -> Handle:
        self.handles.append(Handle(config))
        return self.handles[-1]

    def step(self) -> None:
        alive = [handle for handle in self.handles if not handle.is_over and handle.get_status() == STATUSES.RUNNING]
        if any(handle.config.structured_output_config == "unknown" for handle in alive):
            raise RuntimeError("Unsupported type")
        self.batches.append(len(alive))
        for handle in alive:
            handle.advance()


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> openvino_engine.OpenVinoEngine:
    library = SimpleNamespace(
        SchedulerConfig=SimpleNamespace, ContinuousBatchingPipeline=Pipeline, GenerationFinishReason=REASONS,
        GenerationStatus=STATUSES, StructuredOutputConfig=lambda json_schema: json_schema, Tensor=lambda array: array,
    )  # fmt: skip
    with monkeypatch.context() as patched:
        patched.setattr("importlib.import_module", lambda name: library)
        return openvino_engine.OpenVinoEngine(
            Path("x.gguf"), threads=1, slots=4, max_sequence_tokens=64, vocab_size=100, caches_prefixes=False
        )


def served(engine: openvino_engine.OpenVinoEngine, *asks: Ask) -> list[list[Delivery]]:
    """Everything that each request is delivered; all are there before the engine begins."""

    async def collect() -> list[list[Delivery]]:
        streams = [TokenStream() for _ in asks]
        for ask, stream in zip(asks, streams, strict=True):
            engine.submit(ask, stream)
        threading.Thread(target=engine.run, daemon=True).start()

        async def whole(stream: TokenStream) -> list[Delivery]:
            return [delivery async for delivery in stream.deliveries()]

        return await asyncio.wait_for(asyncio.gather(*map(whole, streams)), timeout=20)

    return asyncio.run(collect())


def ask(num: int, **fields: Any) -> Ask:
    return Ask(prompt_ids=(1, 2), max_tokens=num, **fields)


def test_requests_share_steps_and_end_apart(engine: openvino_engine.OpenVinoEngine) -> None:
    short, long = served(engine, ask(2), ask(4))
    assert [delivery.token_ids for delivery in short[:-1]] == [(0,), (1,)]
    assert [short[-1].finish_reason, long[-1].finish_reason] == ["length", "length"]
    assert sum(len(delivery.token_ids) for delivery in long) == 4
    assert engine._pipeline.batches[:4] == [2, 2, 1, 1]


def test_a_schema_that_the_library_does_not_know_is_refused_alone(engine: openvino_engine.OpenVinoEngine) -> None:
    refused, known, plain = served(engine, ask(3, schema="unknown"), ask(3), ask(2, schema=None))
    assert [delivery.fault for delivery in refused] == ["response_format: Unsupported type"]
    assert (known[-1].finish_reason, plain[-1].finish_reason) == ("length", "length")


def test_what_does_not_fit_the_cache_is_told(engine: openvino_engine.OpenVinoEngine) -> None:
    (deliveries,) = served(engine, ask(101))
    assert [delivery.fault for delivery in deliveries] == ["the request does not fit the KV cache"]
