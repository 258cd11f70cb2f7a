"""What one copy of a model moves and computes for a demand, before it is spread over ranks."""

from __future__ import annotations

from vibeserve.hardware import Sharding, attention_flops, kv_bytes_per_token, state_bytes_per_sequence
from vibeserve.hardware.footprint import SMALLEST_WEIGHT_BYTES, bytes_per_weight
from vibeserve.hardware.roofline import block_parameters, forward_flops
from vibeserve.plan.demand import Demand
from vibeserve.spec import Precision, Spec


class Work:
    """Bytes and operations of a resolved spec.

    Where any precision may serve, caches and states count nothing and weights four bits: fewer have not been seen to
    pass the gate.
    """

    def __init__(self, spec: Spec) -> None:
        self._model, self._workload = spec.model, spec.workload
        self._is_any = spec.evaluation.precision is Precision.any
        # caches are split by heads within a layer; over all layers of a pipeline they add up
        # the ranks of a CPU read the same memory: all of them together move what one would
        self._sharding = Sharding(tensor=1 if spec.hardware.kind == "cpu" else spec.parallelism.tensor)

    @property
    def num_head(self) -> int:
        """Parameters of the output matrix."""
        return self._model.vocab_size * self._model.hidden_size

    @property
    def num_read(self) -> int:
        """Parameters that a pass reads: all active ones; of an input embedding of its own, a row per token."""
        model = self._model
        unread = 0 if model.tied_embeddings else self.num_head
        return max(0, (model.num_active_parameters or model.num_parameters) - unread)

    @property
    def bytes_per_weight(self) -> float:
        return SMALLEST_WEIGHT_BYTES if self._is_any else bytes_per_weight(self._model)

    @property
    def weight_bytes(self) -> float:
        """That a pass reads."""
        return self.num_read * self.bytes_per_weight

    def cache_bytes(self, demand: Demand, *, num_sequences: float) -> float:
        """KV cache that a pass reads on one tensor rank, over all layers: every sequence's own, and a shared prefix
        once for all of them (as Hydragen does, arXiv:2402.05099). Contexts are the shortest."""
        if self._is_any:
            return 0.0
        tokens = demand.num_prefix_tokens + num_sequences * demand.prompt_min
        return tokens * kv_bytes_per_token(self._model, sharding=self._sharding)

    def state_bytes(self, *, num_sequences: float) -> float:
        """Recurrent state that a pass reads, and writes, on one tensor rank over all layers."""
        if self._is_any:
            return 0.0
        return num_sequences * state_bytes_per_sequence(self._model, sharding=self._sharding)

    def prefill_flops(self, demand: Demand, *, num_verified: int = 0) -> float:
        """Operations of the shortest prompt: its own tokens behind the kept prefix, and the output matrix for the last
        one alone. `num_verified` tokens of a foretold answer go through in the same pass, each with its logits."""
        num_new = demand.prompt_min + num_verified
        matrices = forward_flops(
            num_tokens=num_new, num_parameters=max(0, self.num_read - self.num_head), num_outputs=1 + num_verified,
            num_head_parameters=self.num_head,
        )  # fmt: skip
        return matrices + attention_flops(self._model, num_new=num_new, num_cached=demand.num_prefix_tokens)

    def decode_flops(self, demand: Demand) -> float:
        """Operations of one token of one sequence."""
        matrices = forward_flops(num_tokens=1, num_parameters=self.num_read)
        return matrices + attention_flops(self._model, num_new=1, num_cached=demand.context_min)

    @property
    def num_image_passes(self) -> int:
        """Passes that follow each other for one image: denoising steps, or tokens where it is drawn one by one."""
        head = self._model.image_head
        return head.num_tokens if head.kind == "tokens" else self._workload.num_steps

    @property
    def num_image_parameters(self) -> int:
        """Parameters that such a pass reads and multiplies: the blocks of the body and of the image head."""
        model, head = self._model, self._model.image_head
        body = block_parameters(
            num_layers=model.num_layers, hidden_size=model.hidden_size, intermediate_size=model.intermediate_size,
            num_heads=model.num_heads, num_kv_heads=model.num_kv_heads, head_dim=model.head_dim,
        )  # fmt: skip
        return body + block_parameters(
            num_layers=head.num_layers, hidden_size=head.hidden_size, intermediate_size=head.intermediate_size,
            num_heads=head.num_heads, num_kv_heads=head.num_kv_heads, head_dim=head.head_dim,
        )  # fmt: skip

    def image_flops(self) -> float:
        """Operations of one image: body and head over its tokens in every step (once where they are drawn one by one),
        twice under guidance; attention itself, the text encoder and the decoder to pixels are left out."""
        head = self._model.image_head
        num_times = 1 if head.kind == "tokens" else self._workload.num_steps
        num_conditions = 2 if self._workload.guidance_scale > 1 else 1
        tokens = num_times * num_conditions * head.num_tokens
        return forward_flops(num_tokens=tokens, num_parameters=self.num_image_parameters)

    @property
    def encoder_flops_per_s(self) -> float:
        """Operations of a speech encoder for one second of audio, each frame once; its MLP taken as two matrices, the
        fewest there are. The frontend, attention itself and the decoder are left out."""
        encoder = self._model.speech_encoder
        parameters = block_parameters(
            num_layers=encoder.num_layers, hidden_size=encoder.hidden_size, num_heads=encoder.num_heads,
            intermediate_size=encoder.intermediate_size, num_kv_heads=encoder.num_heads, head_dim=encoder.head_dim,
            num_mlp_matrices=2,
        )  # fmt: skip
        return forward_flops(num_tokens=encoder.frames_per_s, num_parameters=parameters)
