"""Any causal language model of transformers, one sequence after the other.

transformers brings the architecture and its cache; the batch's segments go through it one by one, so nothing is padded
and no sequence can see another.
"""

from __future__ import annotations

from typing import Any

import torch
import transformers
from torch import Tensor

from .interfaces import Batch, Segment
from .kv_cache import KVCache
from .parameters import Parameters
from .weights import WrappedConfig


class Model:
    """See `interfaces.ModelLike`."""

    def __init__(self, config: WrappedConfig, weights: dict[str, Tensor], *, parameters: Parameters) -> None:
        self.config = config
        self.vocab_size = config.vocab_size
        self.network = build_network(config, weights, dtype=getattr(torch, parameters.compute_dtype))

    @torch.inference_mode()
    def forward(self, batch: Batch, kv_cache: KVCache) -> Tensor:
        wanted = iter(batch.logits_rows)
        row = next(wanted, None)
        logits = []
        for segment in batch.segments:
            rows = []
            while row is not None and row < segment.stop_row:
                rows.append(row - segment.start_row)
                row = next(wanted, None)
            token_ids = batch.token_ids[segment.start_row : segment.stop_row]
            logits.append(self._run(token_ids, segment, rows=rows, kv_cache=kv_cache))
        return torch.cat(logits)

    def _run(self, token_ids: Tensor, segment: Segment, *, rows: list[int], kv_cache: KVCache) -> Tensor:
        """Feed `token_ids` [num_rows] to the segment's sequence; f32 logits [len(rows), vocab_size]."""
        slot = kv_cache.at(segment.slot, start_position=segment.start_position)
        # the head is the widest layer: it runs for the wanted rows only, and for one at least
        kept = torch.tensor(rows or [0])
        output = self.network(input_ids=token_ids.unsqueeze(0), cache=slot.cache, use_cache=True, logits_to_keep=kept)
        slot.cache = output.cache
        slot.num_tokens = segment.stop_position
        logits: Tensor = output.logits[0, : len(rows)].float()
        return logits


def build_network(config: WrappedConfig, weights: dict[str, Tensor], *, dtype: torch.dtype) -> Any:
    """transformers' model with `weights`. Raises ValueError for an architecture that has no causal language model."""
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    declared = transformers.AutoConfig.from_pretrained(config.folder, local_files_only=True)
    known = transformers.MODEL_FOR_CAUSAL_LM_MAPPING
    if type(declared) not in known:
        raise ValueError(f"config.json: transformers has no causal language model '{declared.model_type}'")
    return known[type(declared)].from_pretrained(None, config=declared, state_dict=weights, dtype=dtype).eval()
