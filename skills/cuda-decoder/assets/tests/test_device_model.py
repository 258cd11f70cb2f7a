"""The decoder on a device: where it runs, its shapes, and that rows of a step do not see each other."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from runtime import weights
from runtime.device import context_bucket, rows_on
from runtime.interfaces import Batch, ModelConfig, Segment
from runtime.kv_cache import KVCache
from runtime.model import Model
from runtime.parameters import Parameters
from torch import Tensor

SMALL = replace(Parameters(), max_num_seqs=4, max_context_tokens=256)
FIRST, SECOND, THIRD = [9, 27, 5, 41, 33, 8, 19], [60, 2, 77], [14, 3, 11, 90]
Part = tuple[int, int, list[int]]
"""slot, first position, token ids"""


class Rig:
    def __init__(self, model_dir: Path, config: ModelConfig) -> None:
        self.model = Model(config, weights.load_weights(model_dir), parameters=SMALL)
        self.kv_cache = KVCache(config, parameters=SMALL)
        self.slots = [self.kv_cache.allocate(64) for _ in range(3)]

    def run(self, *parts: Part) -> Tensor:
        """Logits after the last row of every part."""
        segments, ids, positions = [], [], []
        for slot, start, token_ids in parts:
            segments.append(Segment(slot=slot, start_row=len(ids), num_rows=len(token_ids), start_position=start))
            ids += token_ids
            positions += range(start, start + len(token_ids))
        batch = Batch(
            token_ids=torch.tensor(ids), positions=torch.tensor(positions), segments=tuple(segments),
            logits_rows=tuple(segment.stop_row - 1 for segment in segments),
        )  # fmt: skip
        return self.model.forward(batch, self.kv_cache).clone()


@pytest.fixture
def rig(model_dir: Path, config: ModelConfig) -> Rig:
    return Rig(model_dir, config)


def assert_close(one: Tensor, other: Tensor) -> None:
    """Up to what bf16 kernels of other shapes round."""
    assert (one - other).abs().max() < 0.1 * other.std()


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a device")
def test_a_device_that_is_not_there_ends_the_start(model_dir: Path, config: ModelConfig) -> None:
    with pytest.raises(RuntimeError, match="parameter 'device' is cuda, and PyTorch sees no CUDA device"):
        KVCache(config, parameters=replace(SMALL, device="cuda"))


def test_decode_rows_of_one_step_are_those_of_steps_of_their_own(rig: Rig) -> None:
    one, two, three = (slot for slot in rig.slots if slot is not None)
    rig.run((one, 0, FIRST), (two, 0, SECOND), (three, 0, THIRD))
    step = [(one, len(FIRST), [21]), (two, len(SECOND), [22]), (three, len(THIRD), [23])]
    together = rig.run(*step)
    for row, part in enumerate(step):
        assert_close(rig.run(part)[0], together[row])


def test_a_step_may_hold_prompts_and_decode_rows(rig: Rig) -> None:
    one, two, three = (slot for slot in rig.slots if slot is not None)
    rig.run((one, 0, FIRST))
    alone = rig.run((one, len(FIRST), [21]))[0], rig.run((two, 0, SECOND))[0]
    mixed = rig.run((two, 0, SECOND), (one, len(FIRST), [21]), (three, 0, THIRD))
    assert_close(mixed[0], alone[1])
    assert_close(mixed[1], alone[0])
    # token by token is the same as at once
    for position, token_id in enumerate(SECOND):
        last = rig.run((three, position, [token_id]))
    assert_close(last[0], alone[1])


def test_contexts_are_rounded_up_to_few_shapes() -> None:
    found = [context_bucket(number, max_context_tokens=2000) for number in (1, 256, 257, 700, 1025, 2000)]
    assert found == [256, 256, 512, 1024, 2000, 2000]


def test_rows_name_their_slots(rig: Rig) -> None:
    batch = Batch(
        token_ids=torch.tensor([1, 2, 3, 4]), positions=torch.tensor([0, 1, 2, 300]), logits_rows=(2, 3),
        segments=(
            Segment(slot=5, start_row=0, num_rows=3, start_position=0),
            Segment(slot=1, start_row=3, num_rows=1, start_position=300),
        ),
    )  # fmt: skip
    rows = rows_on(rig.model.device, batch, max_context_tokens=1024)
    assert rows.slots.tolist() == [5, 5, 5, 1]
    assert (rows.decode_rows.tolist(), rows.context) == ([3], 512)
