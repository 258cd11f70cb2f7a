"""The gated delta rule over many tokens at once (Yang et al. 2024, arXiv:2406.06484 and arXiv:2412.06464).

Inside a chunk every token's change depends on the changes before it. With G the sum of decays since the chunk began and
D[i, j] = exp(G_i - G_j) for j <= i, the changes U of a chunk that starts from state S solve one triangular system:

    (I + strictly_lower(beta K K^T * D)) U = beta (V - exp(G) K S)

and give the outputs and the next state by matrix products:

    O = exp(G) Q S + lower(Q K^T * D) U;   S' = exp(G_last) S + (exp(G_last - G) K)^T U

The system does not depend on S, so it is solved for beta V and beta exp(G) K of all chunks at once, and what is left in
order is two products a chunk.
"""

from __future__ import annotations

import torch
from torch import Tensor


def scan(
    state: Tensor, query: Tensor, key: Tensor, value: Tensor, *, decay: Tensor, beta: Tensor, chunk_tokens: int
) -> Tensor:
    """Carry `state` f32 [heads, key_dim, value_dim] over all rows, in place; outputs f32 [num_rows, heads, value_dim].

    `query`, `key` [num_rows, heads, key_dim], `value` [num_rows, heads, value_dim], `decay` (logarithm, <= 0) and
    `beta` [num_rows, heads]. Rows beyond the last whole chunk are a shorter chunk: a state is exact at any position.
    """
    num_rows = len(query)
    num_whole = num_rows // chunk_tokens * chunk_tokens
    outputs = []
    for start, stop, size in ((0, num_whole, chunk_tokens), (num_whole, num_rows, num_rows - num_whole)):
        if stop > start:
            parts = [_chunked(x[start:stop], size) for x in (query, key, value, decay, beta)]
            outputs.append(_scan_chunks(state, *parts))
    return torch.cat(outputs)


def _chunked(x: Tensor, size: int) -> Tensor:
    """[num_rows, heads, ..] -> [num_chunks, heads, size, ..]."""
    return torch.unflatten(x, 0, (-1, size)).transpose(1, 2).contiguous()


def _scan_chunks(state: Tensor, query: Tensor, key: Tensor, value: Tensor, decay: Tensor, beta: Tensor) -> Tensor:
    """Chunks of one size, [num_chunks, heads, size, ..]; returns [num_chunks * size, heads, value_dim]."""
    size = query.shape[2]
    total = decay.cumsum(-1)
    mask = torch.ones(size, size, dtype=torch.bool).tril()
    # later rows would overflow exp before a product with zero could hide them
    fading = (total.unsqueeze(-1) - total.unsqueeze(-2)).masked_fill(~mask, float("-inf")).exp()
    weighted = beta.unsqueeze(-1) * key
    system = (weighted @ key.mT) * fading
    sides = torch.cat((beta.unsqueeze(-1) * value, total.exp().unsqueeze(-1) * weighted), dim=-1)
    # the diagonal is taken as 1 and what is above it is not read
    solved = torch.linalg.solve_triangular(system, sides, upper=False, unitriangular=True)
    changes, reads = solved.split_with_sizes([value.shape[-1], key.shape[-1]], dim=-1)
    inside = (query @ key.mT) * fading
    entering = total.exp().unsqueeze(-1) * query
    leaving = ((total[..., -1:] - total).exp().unsqueeze(-1) * key).mT
    kept = total[..., -1].exp()[..., None, None]
    output = torch.empty_like(value)
    for number in range(len(query)):
        change = changes[number] - reads[number] @ state
        torch.baddbmm(entering[number] @ state, inside[number], change, out=output[number])
        state.mul_(kept[number]).baddbmm_(leaving[number], change)
    return output.transpose(1, 2).flatten(0, 1)
