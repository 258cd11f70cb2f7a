"""The f32 reference of images drawn token by token.

What a request means:

- codes: one after the other by the rule of `sampling`, `vq_config.num_patches` squared of them;
- text: `prompt_template` of config.json around the prompt, between the begin and the begin-of-image token;
- pixels: round(127.5 (clamp(decoded, -1, 1) + 1)) of the VQ model's decoder.

A served image is scored on its own codes: behind each of them the reference says how far the next one lies below its
own choice. Where two codes are nearly even, rounding may choose the other one; those that follow are judged behind it.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vibeserve.contract import Request
from vibeserve.modalities.image_tokens.sampling import scores_of
from vibeserve.modalities.image_tokens.wire import output_of

if TYPE_CHECKING:
    from collections.abc import Sequence


def load(path: str, device: str, dtype: str) -> TokenReference:
    return TokenReference(Path(path), device=device, dtype=dtype)


class TokenReference:
    """See `contract.Reference`. Nothing is kept from one request to the next."""

    def __init__(self, model_dir: Path, *, device: str, dtype: str) -> None:
        import torch
        from safetensors.torch import load_file

        from vibeserve.modalities.image_tokens.network import TokenNetwork
        from vibeserve.modalities.image_tokens.pixels import CodeDecoder
        from vibeserve.weights import load_tokenizer

        folder = model_dir / "f32"
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        kind = getattr(torch, dtype)
        tensors = {name: tensor.to(device, kind) for name, tensor in load_file(folder / "model.safetensors").items()}
        self._template: str = config["prompt_template"]
        self._num_tokens = config["vq_config"]["num_patches"] ** 2
        self._tokenizer = load_tokenizer(model_dir)
        self._network = TokenNetwork(tensors, config)
        self._decode = CodeDecoder(tensors, config["vq_config"])

    def run(self, request: Request) -> dict[str, Any]:
        """PNG and codes, as `wire.output_of` writes them."""
        codes = self.codes(request.payload)
        return output_of(self._decode(codes).numpy(), codes)

    def score(self, request: Request, output: Any) -> dict[str, Any]:
        """`margins`, one per served code: how far it lies below the reference's choice behind the codes before it, in
        nats (temperature 0: of guided logits); `png` of the served codes; `problem`, why there are none of both."""
        codes = output.get("token_ids", [])
        problem = self._problem(codes)
        if problem:
            return {"margins": [], "png": "", "problem": problem}
        asked = request.payload
        logits = self._network.forced(self._encoded(asked), codes, is_guided=asked["guidance"] != 1)
        margins = []
        for position, code in enumerate(codes):
            scores = scores_of(logits[position], position=position, **_rule(asked))
            margins.append(float(scores.max() - scores[code]))
        return {"margins": margins, "png": output_of(self._decode(codes).numpy(), codes)["png"], "problem": ""}

    def codes(self, payload: dict[str, Any]) -> list[int]:
        """Row by row."""
        state = self._network.begin(self._encoded(payload), is_guided=payload["guidance"] != 1)
        found: list[int] = []
        for position in range(self._num_tokens):
            if found:
                self._network.step(state, found[-1])
            found.append(int(scores_of(state.logits, position=position, **_rule(payload)).argmax()))
        return found

    def pixels(self, codes: Sequence[int]) -> Any:
        """[height, width, 3], bytes"""
        return self._decode(codes)

    def _encoded(self, payload: dict[str, Any]) -> list[int]:
        text = self._template.replace("{prompt}", payload["prompt"])
        ids: list[int] = self._tokenizer.encode(text, add_special_tokens=False).ids
        return ids

    def _problem(self, codes: Any) -> str:
        if not isinstance(codes, list) or not codes:
            return "no token ids"
        if len(codes) != self._num_tokens:
            return f"{len(codes)} token ids, not {self._num_tokens}"
        if not all(type(code) is int and 0 <= code < self._network.num_codes for code in codes):
            return f"token ids that are no whole numbers from 0 to {self._network.num_codes - 1}"
        return ""


def _rule(payload: dict[str, Any]) -> dict[str, Any]:
    return {name: payload[name] for name in ("guidance", "temperature", "seed")}
