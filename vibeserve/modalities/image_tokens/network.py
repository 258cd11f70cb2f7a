"""The network of the Janus shape in plain torch: a Llama body over text and codes, and a head that scores codes.

A sequence is begin, prompt, begin of image, codes, all causal. Its branch without a prompt has as many rows: pad tokens
stand between the two begin tokens, and are seen like words. So both branches are one batch, and nothing is masked.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from vibeserve.modalities.image.network import Layer, rms_norm

BODY = "model.language_model."
ALIGNER, HEAD = "model.generation_aligner.", "model.generation_head."


@dataclass(kw_only=True)
class State:
    """One image that is drawn: keys and values by layer, each [num_branches, num_kv_heads, num_rows, head_dim]."""

    kept: list[tuple[Tensor, Tensor]]
    num_rows: int
    logits: Tensor
    """[num_branches, num_codes] of the code that follows, f32"""


class TokenNetwork:
    """`tensors` by their names in the checkpoint, `config` its config.json. Computes in the tensors' own dtype."""

    def __init__(self, tensors: Mapping[str, Tensor], config: Mapping[str, Any]) -> None:
        self._tensors, self._config = tensors, config
        text = config["text_config"]
        self._layers = [
            Layer(tensors, f"{BODY}layers.{number}.", text) for number in range(text["num_hidden_layers"])
        ]  # fmt: skip

    @property
    def num_codes(self) -> int:
        return len(self._tensors["model.generation_embeddings.weight"])

    @torch.inference_mode()
    def begin(self, token_ids: Sequence[int], *, is_guided: bool) -> State:
        """Of a prompt's tokens; with a branch without them where it `is_guided`."""
        x = self._text(token_ids, is_guided=is_guided)
        num_rows = x.shape[1]
        kept: list[tuple[Tensor, Tensor]] = []
        for layer in self._layers:
            x = layer(x, first=0, kept=None, keep=kept, modulation=None)
        return State(kept=kept, num_rows=num_rows, logits=self._logits(x[:, -1]))

    @torch.inference_mode()
    def step(self, state: State, code: int) -> None:
        """Append a code to every branch."""
        x = self._embedded(torch.tensor([code])).expand(len(state.logits), 1, -1)
        new: list[tuple[Tensor, Tensor]] = []
        for number, layer in enumerate(self._layers):
            x = layer(x, first=state.num_rows, kept=state.kept[number], keep=new, modulation=None)
        state.kept = [
            (torch.cat((keys, key), dim=2), torch.cat((values, value), dim=2))
            for (keys, values), (key, value) in zip(state.kept, new, strict=True)
        ]
        state.num_rows += 1
        state.logits = self._logits(x[:, -1])

    @torch.inference_mode()
    def forced(self, token_ids: Sequence[int], codes: Sequence[int], *, is_guided: bool) -> Tensor:
        """Logits at each of `codes` behind those before it, [num_codes of the image, num_branches, num_codes], f32."""
        text = self._text(token_ids, is_guided=is_guided)
        x = text
        if len(codes) > 1:
            rows = self._embedded(torch.tensor(codes[:-1]))
            x = torch.cat((text, rows.expand(len(text), *rows.shape)), dim=1)
        for layer in self._layers:
            x = layer(x, first=0, kept=None, keep=None, modulation=None)
        return self._logits(x[:, text.shape[1] - 1 :]).transpose(0, 1)

    def _text(self, token_ids: Sequence[int], *, is_guided: bool) -> Tensor:
        """[num_branches, num_rows, hidden_size]"""
        first, last, pad = (self._config[f"{name}_token_id"] for name in ("bos", "boi", "pad"))
        branches = [[first, *token_ids, last]]
        if is_guided:
            branches.append([first, *[pad] * len(token_ids), last])
        return self._tensors[f"{BODY}embed_tokens.weight"][torch.tensor(branches)]

    def _embedded(self, codes: Tensor) -> Tensor:
        """[num] -> [num, hidden_size]"""
        x = self._linear(f"{ALIGNER}fc1", self._tensors["model.generation_embeddings.weight"][codes])
        for number in range(self._config["vq_config"]["num_hidden_layers"] - 1):
            x = self._linear(f"{ALIGNER}hidden_layers.{number}", functional.gelu(x))
        return x

    def _logits(self, x: Tensor) -> Tensor:
        normed = rms_norm(x, self._tensors[f"{BODY}norm.weight"], eps=self._config["text_config"]["rms_norm_eps"])
        inner = functional.gelu(self._linear(f"{HEAD}proj_out", normed))
        return self._linear(f"{HEAD}vision_head", inner).float()

    def _linear(self, name: str, x: Tensor) -> Tensor:
        return functional.linear(x, self._tensors[f"{name}.weight"], self._tensors[f"{name}.bias"])
