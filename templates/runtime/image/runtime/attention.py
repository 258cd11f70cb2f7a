"""Attention of rows to keys: torch's own, with grouped keys and values."""

from __future__ import annotations

from torch import Tensor
from torch.nn import functional


def attend(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None) -> Tensor:
    """q [batch, num_heads, num_rows, head_dim]; k, v [batch, num_kv_heads, num_keys, head_dim]; `mask` [num_rows,
    num_keys] or [batch, 1, num_rows, num_keys], true where a row sees a key, None = all -> as q."""
    return functional.scaled_dot_product_attention(q, k, v, attn_mask=mask, enable_gqa=True)
