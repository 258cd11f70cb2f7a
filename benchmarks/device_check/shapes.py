"""What is served where: the overrides of the tiny target that make it the device's."""

from __future__ import annotations

from dataclasses import dataclass, replace

from vibeserve.config import compose_spec
from vibeserve.core.paths import data_dir
from vibeserve.errors import SpecError
from vibeserve.hardware import HardwareFacts
from vibeserve.spec import Load, Spec

LLAMA_8B = {
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "vocab_size": 8192,
    "max_position_embeddings": 2048,
}
"""Llama-3.1-8B's layers. Its 128,256 tokens are not: seeded tokenizers end at 8,192, which leaves 7.0 of 8.0 billion
parameters at 32 layers"""
ASSEMBLIES: dict[str, tuple[str, ...]] = {
    "eager": ("batched-sampling", "cuda-decoder"),
    "graphs": ("batched-sampling", "cuda-decoder", "cuda-graph-decode"),
    "paged": ("batched-sampling", "cuda-decoder", "cuda-graph-decode", "cuda-paged-kv"),
}
"""in the order in which they are tried: the ground, then graphs, then batched paged decode"""
CONCURRENCIES = (1, 8, 32)
SPARE_TOKENS = 256
"""of context, for probes that ask for more than the load does"""
GROUPS = {"H100": "h100", "H200": "h200", "L4": "l4"}
"""word in a GPU's name -> option of the group hardware, which knows its bandwidth"""


@dataclass(frozen=True, kw_only=True)
class Shape:
    """One device, one model, one load. `device` is the components' parameter."""

    device: str
    overrides: tuple[str, ...]
    window_s: float
    ramp_s: float
    prompt_tokens: int
    output_tokens: int

    @property
    def context_tokens(self) -> int:
        return self.prompt_tokens + self.output_tokens

    def spec(self) -> Spec:
        """The tiny target made into this shape's, with its loads and without goals."""
        spec = compose_spec(["+target=tiny_cpu", *self.overrides], cwd=data_dir("targets").parent)
        loads = {f"c{number}": Load(concurrency=number) for number in CONCURRENCIES}
        return replace(spec, workload=replace(spec.workload, loads=loads, headline_load="c8"), goals=[])


def shape_for(facts: HardwareFacts, *, layers: int) -> Shape:
    """SpecError for a GPU whose bandwidth no file of conf/hardware declares."""
    if not facts.gpus:
        return _shape("cpu", (), window_s=1.0, ramp_s=0.5, prompt_tokens=48, output_tokens=16)
    name = facts.gpus[0].name
    group = next((option for word, option in GROUPS.items() if word in name), None)
    if group is None:
        raise SpecError(
            f"device_check: no file of conf/hardware is about '{name}'",
            problems=[f"known: {', '.join(GROUPS)}"],
            hint="add conf/hardware/NAME.yaml with its bandwidth, and its word to benchmarks/device_check/shapes.py",
        )
    sizes = [f"model.source.config.{key}={value}" for key, value in LLAMA_8B.items()]
    model = ("model.id=llama_8b_shape", f"model.source.config.num_hidden_layers={layers}", *sizes)
    return _shape(
        "cuda", (f"hardware={group}", "hardware.count=1", *model), window_s=10.0, ramp_s=3.0, prompt_tokens=256,
        output_tokens=128,
    )  # fmt: skip


def _shape(
    device: str, overrides: tuple[str, ...], *, window_s: float, ramp_s: float, prompt_tokens: int, output_tokens: int
) -> Shape:  # fmt: skip
    lengths = (
        f"workload.prompt_tokens_min={prompt_tokens // 2}", f"workload.prompt_tokens_max={prompt_tokens}",
        f"workload.output_tokens_min={output_tokens}", f"workload.output_tokens_max={output_tokens}",
        f"model.max_context_tokens={prompt_tokens + output_tokens + SPARE_TOKENS}",
        "evaluation.tolerances.logprob_share=8",
    )  # fmt: skip
    return Shape(
        device=device, window_s=window_s, ramp_s=ramp_s, prompt_tokens=prompt_tokens, output_tokens=output_tokens,
        overrides=(*overrides, *lengths),
    )  # fmt: skip
