"""Widened products against f64: every split of rows, columns that fill no panel, and the range of the fixed point."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from runtime.linear import Linear
from runtime.parameters import Parameters
from torch import Tensor

EXACT = replace(Parameters(), fixed_point_min_rows=0)
FIXED = replace(Parameters(), fixed_point_min_rows=1)


def random_pair(num_rows: int, num_out: int, num_in: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(num_rows * 1000 + num_out + num_in)
    weight = 0.05 * torch.randn(num_out, num_in, generator=generator)
    return torch.randn(num_rows, num_in, generator=generator), weight.bfloat16()


def relative_error(y: Tensor, x: Tensor, weight: Tensor) -> float:
    expected = x.double() @ weight.double().T
    return float((y - expected).norm() / expected.norm())


@pytest.mark.parametrize("num_rows", [*range(1, 18), 27, 28, 29, 64])
@pytest.mark.parametrize(("num_out", "num_in"), [(64, 96), (37, 18), (160, 33), (1, 1)])
def test_exact_products(num_rows: int, num_out: int, num_in: int) -> None:
    x, weight = random_pair(num_rows, num_out, num_in)
    assert relative_error(Linear(weight, parameters=EXACT)(x), x, weight) < 1e-6


def test_a_row_does_not_depend_on_the_others() -> None:
    x, weight = random_pair(40, 96, 80)
    linear = Linear(weight, parameters=EXACT)
    together = linear(x)
    for size in (1, 2, 5, 9, 14, 15, 33):
        assert torch.equal(linear(x[:size]), together[:size])
    assert torch.equal(linear(x[7:8])[0], together[7])


@pytest.mark.parametrize("num_rows", [1, 13, 14, 15, 40])
@pytest.mark.parametrize(("num_out", "num_in"), [(64, 96), (37, 18), (70, 130), (32, 33)])
def test_fixed_point_products(num_rows: int, num_out: int, num_in: int) -> None:
    x, weight = random_pair(num_rows, num_out, num_in)
    assert relative_error(Linear(weight, parameters=FIXED)(x), x, weight) < 4e-4


def test_fixed_point_stands_outliers_in_rows_and_columns() -> None:
    x, weight = random_pair(20, 64, 192)
    x[:, 5] *= 100
    x[3] *= 1e-4
    weight[7] *= 100
    y = Linear(weight, parameters=FIXED)(x)
    # against the sum of magnitudes: an outlier may cancel in the sum itself
    magnitude = x.double().abs() @ weight.double().abs().T
    assert float(((y - x.double() @ weight.double().T).abs() / magnitude).max()) < 1e-3


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_fixed_point_sums_do_not_overflow(sign: float) -> None:
    x, weight = torch.full((16, 256), 3.0), torch.full((32, 256), sign * 0.5).bfloat16()
    assert torch.allclose(Linear(weight, parameters=FIXED)(x), torch.full((16, 32), sign * 384.0), rtol=1e-3)


def test_zeros_stay_zeros() -> None:
    weight = torch.zeros(40, 66).bfloat16()
    x = torch.zeros(33, 66)
    for parameters in (EXACT, FIXED):
        assert not Linear(weight, parameters=parameters)(x).any()
