"""Packed products against f64."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from runtime.linear import Linear
from runtime.parameters import Parameters


@pytest.mark.parametrize(("packed_dtype", "tolerance"), [("float32", 1e-5), ("bfloat16", 2e-2)])
@pytest.mark.parametrize("num_rows", [1, 3, 16, 65])
def test_products_are_right_for_any_number_of_rows(packed_dtype: str, tolerance: float, num_rows: int) -> None:
    if packed_dtype == "bfloat16" and not torch.ops.mkldnn._is_mkldnn_bf16_supported():
        pytest.skip("oneDNN packs bf16 only where the processor has AVX-512 or AVX-NE-CONVERT")
    generator = torch.Generator().manual_seed(num_rows)
    weight = torch.randn(48, 96, generator=generator).bfloat16()
    x = torch.randn(num_rows, 96, generator=generator)
    y = Linear(weight, parameters=replace(Parameters(), packed_dtype=packed_dtype))(x)
    expected = x.double() @ weight.double().T
    assert y.dtype is torch.float32
    assert y.shape == (num_rows, 48)
    assert float((y - expected).norm() / expected.norm()) < tolerance
