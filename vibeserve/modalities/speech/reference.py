"""The f32 reference of speech: transformers' Moonshine, streaming or not, asked anew for the audio of every partial.

Nothing is kept between partials, so that nothing can be carried wrongly: the encoder runs over all the audio so far and
the decoder over the whole transcript. Two traps of the class (transformers 5.24): the encoder's sliding windows hold
only where an `attention_mask` is passed, and the decoder adds its positions to the encoder's states in place.

A transcript is what greedy decoding writes until its end token, or at most 6.5 tokens for every second of audio (the
limit that Moonshine's model card gives against endless repetitions), one at least.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vibeserve.contract import Request
from vibeserve.workloads.streaming_asr import num_chunks_of, rendered

if TYPE_CHECKING:
    import torch

STREAMING = "moonshine_streaming"
TOKENS_PER_S = 6.5
BEYOND_NATS = 100.0
"""margin of every token behind the longest transcript of its audio: no model may choose it"""
MOST_BEYOND = 8
"""times the longest transcript: what is longer is not scored"""
FRAME_SAMPLES = 80
"""5 ms, what the model's frontend takes at a time; a last frame that is not full is filled with zeros"""


def max_tokens_of(audio_ms: int) -> int:
    """Longest transcript of so much audio."""
    return max(1, math.ceil(audio_ms * TOKENS_PER_S / 1000))


def load(path: str, device: str, dtype: str) -> SpeechReference:
    return SpeechReference(Path(path), device=device, dtype=dtype)


class SpeechReference:
    """See `contract.Reference`."""

    def __init__(self, model_dir: Path, *, device: str, dtype: str) -> None:
        import torch
        from transformers import (
            AutoConfig,
            MoonshineForConditionalGeneration,
            MoonshineStreamingForConditionalGeneration,
        )

        from vibeserve.weights import load_tokenizer

        self._tokenizer = load_tokenizer(model_dir)
        self._is_streaming = AutoConfig.from_pretrained(model_dir / "f32").model_type == STREAMING
        kind = MoonshineStreamingForConditionalGeneration if self._is_streaming else MoonshineForConditionalGeneration
        self._model = kind.from_pretrained(model_dir / "f32", dtype=getattr(torch, dtype), attn_implementation="sdpa")
        self._model.eval().to(device)
        config = self._model.config
        self.start_id = int(config.decoder_start_token_id or config.bos_token_id)
        self.end_id = int(config.eos_token_id)
        self._device = device

    def run(self, request: Request) -> dict[str, Any]:
        """The partial of every chunk, and the final transcript."""
        payload = request.payload
        ends_ms = [
            min((number + 1) * payload["chunk_ms"], payload["duration_ms"]) for number in range(num_chunks_of(payload))
        ]
        partials = [self.transcript(payload, end_ms=end_ms) for end_ms in ends_ms]
        return {"partials": partials, "final": partials[-1]}

    def transcript(self, payload: Any, *, end_ms: int) -> dict[str, Any]:
        """What is right for the first `end_ms` of a recording."""
        ids = self._greedy(self.encoded(payload, end_ms=end_ms), max_tokens=max_tokens_of(end_ms))
        return {"audio_end_ms": end_ms, "text": self.text_of(ids), "token_ids": ids}

    def score(self, request: Request, output: Any) -> dict[str, Any]:
        """What the reference thinks of every served transcript, in the order of `transcripts_of`."""
        return {"transcripts": [self._scored(request.payload, served) for served in transcripts_of(output)]}

    def text_of(self, ids: Sequence[int]) -> str:
        text: str = self._tokenizer.decode(list(ids), skip_special_tokens=True)
        return text

    def encoded(self, payload: Any, *, end_ms: int) -> torch.Tensor:
        """Encoder states of the first `end_ms`, [1, num_frames, hidden_size]."""
        import torch

        samples = torch.from_numpy(rendered(payload, start_ms=0, end_ms=end_ms)).float() / 32768
        if self._is_streaming:
            samples = torch.nn.functional.pad(samples, (0, -len(samples) % FRAME_SAMPLES))
        values = samples[None].to(self._device, self._model.dtype)
        mask = torch.ones(values.shape, dtype=torch.long, device=self._device) if self._is_streaming else None
        with torch.inference_mode():
            states: torch.Tensor = self._model.model.encoder(values, attention_mask=mask).last_hidden_state
        return states

    def logits(self, states: torch.Tensor, ids: Sequence[int]) -> torch.Tensor:
        """Of what follows the start token and each of `ids`, f32, [len(ids) + 1, vocab_size]."""
        import torch

        with torch.inference_mode():
            tokens = torch.tensor([[self.start_id, *ids]], device=self._device)
            hidden = self._model.model.decoder(
                input_ids=tokens, encoder_hidden_states=states.clone(), use_cache=False
            ).last_hidden_state
            logits: torch.Tensor = self._model.proj_out(hidden)[0].float()
        return logits

    def _greedy(self, states: torch.Tensor, *, max_tokens: int) -> list[int]:
        import torch

        ids: list[int] = []
        cache, token = None, self.start_id
        while len(ids) < max_tokens:
            with torch.inference_mode():
                step = self._model.model.decoder(
                    input_ids=torch.tensor([[token]], device=self._device), encoder_hidden_states=states.clone(),
                    cache=cache, use_cache=True,
                )  # fmt: skip
                cache, token = step.cache, int(self._model.proj_out(step.last_hidden_state)[0, -1].argmax())
            if token == self.end_id:
                break
            ids.append(token)
        return ids

    def _scored(self, payload: Any, served: Any) -> dict[str, Any]:
        """Margins in nats of every served token, and of ending where the transcript ends before its longest."""
        end_ms, ids = int(served["audio_end_ms"]), [int(token) for token in served["token_ids"]]
        longest = max_tokens_of(end_ms)
        vocab_size = int(self._model.config.vocab_size)
        problem = ""
        if not 0 < end_ms <= payload["duration_ms"]:
            problem = "a transcript of audio that the recording does not have"
        elif any(token >= vocab_size or token == self.end_id for token in ids):
            problem = "token ids that no transcript holds"
        elif len(ids) > MOST_BEYOND * longest:
            problem = "a transcript several times longer than the audio allows"
        if problem:
            return {"margins": [], "text": "", "problem": problem}
        logits = self.logits(self.encoded(payload, end_ms=end_ms), ids)
        chosen = [*ids, self.end_id] if len(ids) < longest else ids
        margins = [float(row.max() - row[token]) for row, token in zip(logits, chosen, strict=False)]
        margins[longest:] = [BEYOND_NATS] * len(margins[longest:])
        return {"margins": margins, "text": self.text_of(ids), "problem": ""}


def transcripts_of(output: Any) -> list[Any]:
    """Every transcript of an output: its partials, and the final one where it came."""
    final = output["final"]
    return [*output["partials"], *([] if final is None else [final])]
