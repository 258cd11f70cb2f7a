"""The SwiGLU MLP (Shazeer 2020)."""

from __future__ import annotations

from torch import Tensor
from torch.nn import functional

from . import spans
from .interfaces import LinearLike
from .layouts import MLPWeights
from .linear import Linear
from .parameters import Parameters


class MLP:
    """`down(silu(gate(x)) * up(x))`."""

    def __init__(self, weights: MLPWeights, *, parameters: Parameters) -> None:
        self.gate_up: LinearLike = Linear(weights.gate_up, parameters=parameters)
        self.down: LinearLike = Linear(weights.down, parameters=parameters)

    def forward(self, x: Tensor) -> Tensor:
        """f32 [num_rows, hidden_size] -> the same."""
        with spans.forward.linear:
            gate, up = self.gate_up(x).chunk(2, dim=-1)
        activated = functional.silu(gate) * up
        with spans.forward.linear:
            return self.down(activated)
