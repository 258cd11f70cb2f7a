"""Which code follows, to the bit of its noise: the Gumbel-max rule over guided logits, with noise by counter.

- Guided logits of one position: l = l0 + guidance (l1 - l0), l1 behind the prompt, l0 behind the text without one. With
  guidance 1 only l1 is there.
- Temperature 0: the code of the largest l. Else that of the largest l / temperature + g, which is a draw from
  softmax(l / temperature) (Gumbel-max; Maddison, Tarlow, Minka, A* sampling, 2014).
- g of position p, code c: -log(-log(u)), u = ((r >> 11) + 0.5) / 2**53, r the c-th 64-bit word that
  `numpy.random.Philox(key=seed, counter=[0, 0, 0, p]).random_raw()` gives (Philox4x64-10: Salmon et al., Parallel
  random numbers: as easy as 1, 2, 3, 2011). So noise depends on nothing but seed, position and code.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    import torch
    from numpy.typing import NDArray


def gumbel_noise(seed: int, position: int, *, num_codes: int) -> NDArray[np.float64]:
    """[num_codes]"""
    import numpy as np

    words = np.random.Philox(key=seed, counter=[0, 0, 0, position]).random_raw(num_codes)
    uniform = ((words >> np.uint64(11)).astype(np.float64) + 0.5) * 2.0**-53
    noise: NDArray[np.float64] = -np.log(-np.log(uniform))
    return noise


def guided(logits: torch.Tensor, guidance: float) -> torch.Tensor:
    """[num_branches, num_codes], the prompt's first -> [num_codes], f64."""
    given = logits.double()
    return given[0] if len(given) == 1 else given[1] + guidance * (given[0] - given[1])


def scores_of(
    logits: torch.Tensor, *, guidance: float, temperature: float, seed: int, position: int
) -> torch.Tensor:  # fmt: skip
    """What the code that follows is the largest of, [num_codes], f64; in nats where temperature is above 0."""
    import torch

    found = guided(logits, guidance)
    if temperature == 0:
        return found
    return found / temperature + torch.from_numpy(gumbel_noise(seed, position, num_codes=len(found)))
