"""8-bit products: against f64 over the dequantised weight, and how far that is from the stored one."""

from __future__ import annotations

import pytest
import torch
from runtime.linear import Linear
from runtime.parameters import Parameters
from torch import Tensor

GROUP = 32


def quantised(weight: Tensor) -> Tensor:
    """f64 weight after rounding to 8 bits per group of 32 with a bf16 scale that is rounded upwards."""
    padded = torch.nn.functional.pad(weight.double(), (0, -weight.shape[1] % GROUP)).view(len(weight), -1, GROUP)
    bits = (padded.abs().amax(-1, keepdim=True) / 127).float().view(torch.int32)
    scale = ((bits + 0xFFFF) >> 16 << 16).view(torch.float32).double()
    whole = (padded / scale.where(scale > 0, torch.ones(()).double())).round()
    return (whole * scale).flatten(1)[:, : weight.shape[1]]


def random_pair(num_rows: int, num_out: int, num_in: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(num_rows * 1000 + num_out + num_in)
    weight = 0.05 * torch.randn(num_out, num_in, generator=generator)
    return torch.randn(num_rows, num_in, generator=generator), weight.bfloat16()


def relative_error(y: Tensor, expected: Tensor) -> float:
    return float((y - expected).norm() / expected.norm())


@pytest.mark.parametrize("num_rows", [*range(1, 18), 28, 29, 64])
@pytest.mark.parametrize(("num_out", "num_in"), [(64, 96), (37, 18), (160, 33), (1, 1)])
def test_products(num_rows: int, num_out: int, num_in: int) -> None:
    x, weight = random_pair(num_rows, num_out, num_in)
    y = Linear(weight, parameters=Parameters())(x)
    # a weight that lies between two integers may be rounded either way
    assert relative_error(y, x.double() @ quantised(weight).T) < 1e-3
    assert relative_error(y, x.double() @ weight.double().T) < 1e-2


def test_a_row_does_not_depend_on_the_others() -> None:
    x, weight = random_pair(40, 96, 80)
    linear = Linear(weight, parameters=Parameters())
    together = linear(x)
    for size in (1, 2, 5, 9, 14, 15, 33):
        assert torch.equal(linear(x[:size]), together[:size])


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_sums_do_not_overflow(sign: float) -> None:
    x, weight = torch.full((16, 2048), 3.0), torch.full((32, 2048), sign * 0.5).bfloat16()
    expected = torch.full((16, 32), sign * 3072.0)
    assert torch.allclose(Linear(weight, parameters=Parameters())(x), expected, rtol=5e-3)


def test_zeros_stay_zeros() -> None:
    assert not Linear(torch.zeros(40, 66).bfloat16(), parameters=Parameters())(torch.zeros(33, 66)).any()
