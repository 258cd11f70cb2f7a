"""Batched transformers over a copied prefix cache: the right tokens, whatever joins and leaves the batch."""

from __future__ import annotations

import asyncio
import importlib.util
import random
import sys
import tempfile
import threading
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from vibeserve import baselines
from vibeserve.baselines import PeerOptions, get_peer
from vibeserve.config import compose_spec
from vibeserve.weights import materialise

LAUNCHER = Path(baselines.__file__).parent / "launchers/transformers_prefix_server.py"
MAX_TOKENS = 6


@cache
def launcher() -> ModuleType:
    found = importlib.util.spec_from_file_location("transformers_prefix_server", LAUNCHER)
    assert found is not None and found.loader is not None
    module = importlib.util.module_from_spec(found)
    sys.modules[found.name] = module
    found.loader.exec_module(module)
    return module


@cache
def hybrid_dir(name: str) -> Path:
    spec = compose_spec(["+target=tiny_cpu", f"model={name}"])
    return materialise(spec.model, cache=Path(tempfile.gettempdir()) / "vibeserve-tests").path


def ids(num: int, *, seed: int) -> list[int]:
    return random.Random(seed).choices(range(10, 1000), k=num)


def answers(engine: Any, prompts: list[list[int]]) -> list[list[int]]:
    """Ids of the replies to prompts that are all sent at once, by an engine of its own thread."""

    async def ask() -> list[list[int]]:
        requests = [
            launcher().Request(
                prompt_ids=prompt, max_tokens=MAX_TOKENS + number % 3, ignore_eos=True, num_logprobs=0,
                events=asyncio.Queue(), loop=asyncio.get_running_loop(),
            )
            for number, prompt in enumerate(prompts)
        ]  # fmt: skip
        for request in requests:
            engine.submitted.put(request)
        for request in requests:
            event = await request.events.get()
            while event.finish_reason is None:
                event = await request.events.get()
            assert event.error is None
        return [request.output_ids for request in requests]

    return asyncio.run(ask())


def greedy(model: Any, prompt: list[int], num: int) -> list[int]:
    import torch

    tokens = list(prompt)
    with torch.inference_mode():
        for _ in range(num):
            tokens.append(int(model(input_ids=torch.tensor([tokens]), use_cache=False).logits[0, -1].argmax()))
    return tokens[len(prompt) :]


@pytest.mark.slow
@pytest.mark.timeout(120)
@pytest.mark.parametrize("name", ["tiny_olmo_hybrid", "tiny_qwen3_next"])
def test_tokens_are_the_models_own_behind_shared_near_and_other_prefixes(name: str) -> None:
    engine = launcher().build_engine(str(hybrid_dir(name) / "f32"), dtype="float32", max_num_seqs=4, max_prefixes=2)
    threading.Thread(target=engine.run, daemon=True).start()
    first, second = ids(101, seed=1), ids(101, seed=2)
    near = [*first[:100], first[100] + 1]
    # lengths differ, more come than fit, and one prefix more than is kept
    prompts = [first + ids(5 + number % 2, seed=10 + number) for number in range(5)]
    others = (near, second, second, ids(90, seed=3))
    prompts += [prefix + ids(5, seed=20 + number) for number, prefix in enumerate(others)]
    for _ in range(2):
        served = answers(engine, prompts)
        assert served == [greedy(engine.model, prompt, len(own)) for prompt, own in zip(prompts, served, strict=True)]
    assert len(engine.prefixes) == 2
    assert all(len(prefix) in (100, 101) for prefix in engine.prefixes)


def test_a_prefix_is_what_another_prompt_begins_with() -> None:
    shared_tokens, prefix = launcher().shared_tokens, ids(80, seed=4)
    assert shared_tokens([*prefix, 1, 2], [[*prefix, 3, 4], [5, 6]]) == 80
    assert shared_tokens([*prefix, 1], [[*prefix[:40], 1]]) == 0
    # the same prompt again is no prefix: its last token has to be computed
    assert shared_tokens([*prefix, 1], [[*prefix, 1]]) == 0
    assert shared_tokens([*prefix, 1], []) == 0


def test_it_is_started_on_the_chosen_dtype_with_room_for_the_load(tmp_path: Path) -> None:
    (tmp_path / "bf16").mkdir()
    (tmp_path / "bf16/model.safetensors").write_bytes(b"x" * 20)
    options = PeerOptions(
        model_dir=tmp_path, dtype="bf16", max_concurrency=20, max_sequence_tokens=4400, scratch_dir=tmp_path / "x",
        flags=("--max-prefixes", "3"),
    )  # fmt: skip
    peer = get_peer("transformers_prefix")
    launch = peer.launch(options)
    assert launch.argv[:2] == ("{python}", str(LAUNCHER))
    assert str(tmp_path / "bf16") in launch.argv
    assert peer.flags(options)[:4] == ("--dtype", "bfloat16", "--max-num-seqs", "20")
    assert launch.argv[-2:] == ("--max-prefixes", "3")
    facts = peer.precision_facts(options)
    assert (facts.weight_bits, facts.kv_bits, facts.weight_bytes) == (16, 16, 20)
    assert peer.installed_version()
