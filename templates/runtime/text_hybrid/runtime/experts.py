"""A mixture of experts beside a shared one (Qwen3-Next)."""

from __future__ import annotations

import torch
from torch import Tensor

from . import spans
from .hybrid import HybridConfig
from .layouts import ExpertsWeights
from .mlp import MLP
from .parameters import Parameters


class Experts:
    """Each row goes through its most likely experts, weighted, and through the shared one, gated."""

    def __init__(self, config: HybridConfig, weights: ExpertsWeights, *, parameters: Parameters) -> None:
        self.num_chosen = config.num_experts_per_token
        self.is_normalised = config.normalise_experts
        # rounding here would send rows to other experts: the router and the gate stay in f32
        self.router = weights.router.float()
        self.shared_gate = weights.shared_gate.float()
        self.experts = [MLP(each, parameters=parameters) for each in weights.experts]
        self.shared = MLP(weights.shared, parameters=parameters)

    def forward(self, x: Tensor) -> Tensor:
        """f32 [num_rows, hidden_size] -> the same."""
        with spans.forward.linear:
            probabilities = (x @ self.router.T).softmax(-1)
            gate = (x @ self.shared_gate.T).sigmoid()
        weights, chosen = probabilities.topk(self.num_chosen, dim=-1)
        if self.is_normalised:
            weights = weights / weights.sum(-1, keepdim=True)
        output = self.shared.forward(x) * gate
        for number in sorted({number for row in chosen.tolist() for number in row}):
            rows, places = torch.where(chosen == number)
            output.index_add_(0, rows, self.experts[number].forward(x[rows]) * weights[rows, places].unsqueeze(-1))
        return output
