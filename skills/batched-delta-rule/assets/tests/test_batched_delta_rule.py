"""Batched and chunked, the delta rule is what it is token by token, wherever it is cut."""

from __future__ import annotations

import pytest
import torch
from runtime.chunk_scan import scan
from runtime.delta_rule import step
from torch import Tensor

HEADS, KEY_DIM, VALUE_DIM = 3, 8, 5


def rows(num: int, *, seed: int = 0, decay_scale: float = 0.3) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator)

    return {
        "query": normal(num, HEADS, KEY_DIM),
        "key": torch.nn.functional.normalize(normal(num, HEADS, KEY_DIM), dim=-1),
        "value": normal(num, HEADS, VALUE_DIM),
        "decay": -decay_scale * torch.rand(num, HEADS, generator=generator),
        "beta": 2 * torch.rand(num, HEADS, generator=generator),
    }


def first_state(seed: int = 9) -> Tensor:
    return torch.randn(HEADS, KEY_DIM, VALUE_DIM, generator=torch.Generator().manual_seed(seed))


def by_definition(state: Tensor, taken: dict[str, Tensor]) -> Tensor:
    return torch.stack(
        [step(state, **{name: x[row] for name, x in taken.items()}) for row in range(len(taken["query"]))]
    )


@pytest.mark.parametrize("num_rows", [1, 2, 15, 16, 17, 64, 75])
@pytest.mark.parametrize("decay_scale", [0.0, 0.3, 40.0])
def test_chunks_are_the_definition(num_rows: int, decay_scale: float) -> None:
    taken = rows(num_rows, decay_scale=decay_scale)
    stepped, scanned = first_state(), first_state()
    wanted = by_definition(stepped, taken)
    output = scan(scanned, **taken, chunk_tokens=16)
    torch.testing.assert_close(output, wanted, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(scanned, stepped, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("cut", [1, 16, 23, 39])
def test_a_cut_off_the_grid_changes_nothing(cut: int) -> None:
    taken = rows(40)
    whole, cut_state = first_state(), first_state()
    wanted = scan(whole, **taken, chunk_tokens=16)
    parts = [{name: x[part] for name, x in taken.items()} for part in (slice(0, cut), slice(cut, 40))]
    output = torch.cat([scan(cut_state, **part, chunk_tokens=16) for part in parts])
    torch.testing.assert_close(output, wanted, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(cut_state, whole, rtol=1e-4, atol=1e-4)


def test_the_first_state_counts() -> None:
    taken = rows(20)
    one, other = first_state(), first_state(seed=10)
    assert not torch.allclose(scan(one, **taken, chunk_tokens=16), scan(other, **taken, chunk_tokens=16), atol=0.05)


def test_a_batched_step_is_each_ones_own() -> None:
    taken = rows(4)
    states = torch.stack([first_state(seed) for seed in range(4)])
    alone = states.clone()
    together = step(states, **taken)
    for number in range(4):
        own = step(alone[number], **{name: x[number] for name, x in taken.items()})
        torch.testing.assert_close(together[number], own)
    torch.testing.assert_close(states, alone)


def test_later_rows_do_not_reach_earlier_ones() -> None:
    taken, changed = rows(30), rows(30)
    for name, x in rows(30, seed=1).items():
        changed[name][20:] = x[20:]
    one = scan(first_state(), **taken, chunk_tokens=16)
    other = scan(first_state(), **changed, chunk_tokens=16)
    torch.testing.assert_close(one[:20], other[:20])
    assert not torch.allclose(one[20:], other[20:], atol=0.05)
