"""Both branches of guidance pass every linear layer in one batch, and the cache stays where it is."""

from __future__ import annotations

import pytest
import torch
from runtime.blocks import Block
from runtime.interfaces import ModelConfig
from runtime.model import Model

TEXTS = ((1, 300, 301, 302, 2), (1, 0, 0, 0, 2))


@pytest.mark.parametrize("num_branches", [1, 2])
def test_branches_share_every_pass(
    model: Model, config: ModelConfig, monkeypatch: pytest.MonkeyPatch, num_branches: int
) -> None:
    shapes: list[tuple[int, int]] = []
    project = Block.project

    def counted(block: Block, x: torch.Tensor, *rest: object) -> object:
        shapes.append((x.shape[0], x.shape[1]))
        return project(block, x, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(Block, "project", counted)
    with torch.inference_mode():
        state, logits = model.begin(TEXTS[:num_branches])
        assert logits.shape == (num_branches, config.num_codes)
        model.step(state, 7)
    assert shapes == [(num_branches, 5)] * config.body.num_layers + [(num_branches, 1)] * config.body.num_layers


@torch.inference_mode()
def test_a_branch_does_not_depend_on_the_other(model: Model) -> None:
    pair, first = model.begin(TEXTS)
    alone, right = model.begin(TEXTS[:1])
    torch.testing.assert_close(first[:1], right, rtol=1e-2, atol=1e-2)
    torch.testing.assert_close(model.step(pair, 3)[:1], model.step(alone, 3), rtol=1e-2, atol=1e-2)


@torch.inference_mode()
def test_a_step_writes_one_row_in_place(model: Model) -> None:
    state, _ = model.begin(TEXTS)
    place, before = state.keys.data_ptr(), state.keys[:, :, :, : state.num_rows].clone()
    model.step(state, 5)
    assert state.keys.data_ptr() == place
    assert state.num_rows == 6 and torch.equal(state.keys[:, :, :, :5], before)
