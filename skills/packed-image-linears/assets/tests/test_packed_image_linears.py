"""Packed products equal plain ones, in f32 to rounding, in bf16 to the inputs' rounding."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from runtime.linear import Linear
from runtime.parameters import Parameters

BOUNDS = {"float32": 1e-5, "bfloat16": 1e-2}


@pytest.mark.parametrize("dtype", sorted(BOUNDS))
@pytest.mark.parametrize("shape", [(1, 1), (2, 257), (1, 194), (5,)])
def test_products_are_the_plain_ones(dtype: str, shape: tuple[int, ...]) -> None:
    draw = torch.Generator().manual_seed(3)
    weight = torch.randn(96, 64, generator=draw).bfloat16()
    bias = torch.randn(96, generator=draw)
    x = torch.randn(*shape, 64, generator=draw)
    parameters = replace(Parameters(), image_linear_dtype=dtype)
    for given in (None, bias):
        right = torch.nn.functional.linear(x, weight.float(), given)
        found = Linear(weight, given, parameters=parameters)(x)
        assert found.dtype == torch.float32 and found.shape == right.shape
        assert (found - right).norm() < BOUNDS[dtype] * right.norm()
