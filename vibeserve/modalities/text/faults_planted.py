"""Planted faults of a text server by strength, and admissible changes of precision, made with a transformers model.

Only the fault study runs this (`vibeserve.accuracy.bench`). Every plant changes a loaded f32 decoder, or how it is
decoded, and is taken back afterwards. The decoder is one of Llama's kind: `model.model.layers` with `self_attn.o_proj`
and `mlp.down_proj`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import Enum
from functools import partial
from typing import Any

import torch
from torch import Tensor

from vibeserve.modalities.text.reference import round_outputs

FULL = 1.0
STALE_BLOCK = 16
"""positions of a page of a paged KV cache"""
MANTISSA_BITS = range(7)
"""of bf16"""
LOWER_EXPONENT_BITS = range(7, 14)
TOP_EXPONENT_BIT = range(14, 15)
"""0 in every weight below 2: flipped, it multiplies by 2^128"""


Change = Callable[[Any, torch.Generator], Sequence[Any]]
"""(model, generator) -> handles of the hooks that it registered"""


class Kind(Enum):
    """What the gate has to do with it."""

    HONEST = "honest"
    """must pass"""
    FAULT = "fault"
    """should be refused"""


@dataclass(frozen=True, kw_only=True)
class Decoding:
    """How a server decodes. The defaults are the right way."""

    position_shift: int = 0
    """added to the positions of the tokens behind the prompt"""
    prompt_shift: int = 0
    """added to those of the prompt; equal shifts change nothing, because rotary attention is relative"""
    window: float = math.inf
    """most past positions that a decode step attends to; as a share of prompt and reply where it is at most 1"""
    num_sinks: int = 0
    """first positions that it attends to as well"""
    stale_positions: int = 0
    """last positions of the prompt whose keys and values are another request's; -1 = all of them"""
    stale_one_in: int = 1
    """of how many requests one has them"""
    temperature: float = 0.0
    """of sampling; 0 = greedy, as it is asked for"""
    lenience_nats: float = 0.0
    """a draft's token is accepted where it is so little below the best; the draft is the second best token"""
    lenient_share: float = 1.0
    """of the steps that have a draft"""


@dataclass(frozen=True, kw_only=True)
class Plant:
    """One way of serving. `change` alters the model's weights or hooks, and gets a generator for what is random."""

    name: str
    family: str
    kind: Kind
    strength: str
    change: Change = field(default=lambda model, generator: [])
    decoding: Decoding = field(default_factory=Decoding)

    @property
    def is_in_forward(self) -> bool:
        """Whether a plain forward pass of the changed model shows all of it."""
        return self.decoding == Decoding()


def plants(*, num_layers: int, has_packed_q4_1: bool) -> tuple[Plant, ...]:
    """All of them, mild before strong in each family. `has_packed_q4_1`: the weights were shipped in Q4_1 blocks."""
    return (
        *_honest(has_packed_q4_1=has_packed_q4_1),
        *_bit_flips(),
        *_skipped(num_layers),
        *_evicted(),
        *_positions(),
        *_stale(),
        *_sampled(),
        *_lenient(),
        *_formats(),
    )


def _honest(*, has_packed_q4_1: bool) -> Iterator[Plant]:
    kind = partial(Plant, family="honest", kind=Kind.HONEST)
    yield kind(name="f32", strength="the reference's own numbers")
    yield kind(name="bf16", strength="weights and every module's output rounded", change=_bf16)
    yield kind(name="bf16_weights", strength="weights rounded, f32 arithmetic", change=_bf16_weights)
    yield kind(name="int8_group32", strength="symmetric, 32 values a scale", change=_format(bits=8, group=32))
    yield kind(
        name="rope_all_shifted", strength="every position + 7: no fault, attention is relative",
        decoding=Decoding(position_shift=7, prompt_shift=7),
    )  # fmt: skip
    if has_packed_q4_1:
        yield kind(name="q4_1_as_shipped", strength="Q4_1 blocks, packed again", change=_packed_q4_1)


def _bit_flips() -> Iterator[Plant]:
    for num_flips in (100, 1_000, 10_000, 100_000):
        yield Plant(
            name=f"mantissa_flips_{num_flips}", family="bit flips, mantissa", kind=Kind.FAULT,
            strength=f"{num_flips} bits", change=_flips(num_flips, MANTISSA_BITS),
        )  # fmt: skip
    for num_flips in (100, 1_000, 10_000):
        yield Plant(
            name=f"exponent_flips_{num_flips}", family="bit flips, lower exponent", kind=Kind.FAULT,
            strength=f"{num_flips} bits", change=_flips(num_flips, LOWER_EXPONENT_BITS),
        )  # fmt: skip
    yield Plant(
        name="top_exponent_flip_1", family="bit flips, top of the exponent", kind=Kind.FAULT, strength="1 bit",
        change=_flips(1, TOP_EXPONENT_BIT),
    )  # fmt: skip


def _skipped(num_layers: int) -> Iterator[Plant]:
    middle = num_layers // 2
    skipped = partial(Plant, family="layer skipped", kind=Kind.FAULT)
    yield skipped(name="attention_skipped", strength=f"attention of layer {middle}", change=_skip(middle, mlp=False))
    yield skipped(name="mlp_skipped", strength=f"MLP of layer {middle}", change=_skip(middle, attention=False))
    yield skipped(name="middle_layer_skipped", strength=f"layer {middle}", change=_skip(middle))
    if middle != num_layers - 1:
        yield skipped(name="last_layer_skipped", strength=f"layer {num_layers - 1}", change=_skip(num_layers - 1))


def _evicted() -> Iterator[Plant]:
    for share in (0.75, 0.5, 0.25):
        yield Plant(
            name=f"window_{share:g}", family="KV evicted", kind=Kind.FAULT, strength=f"last {share:.0%} kept",
            decoding=Decoding(window=share),
        )  # fmt: skip
    yield Plant(
        name="window_0.25_sinks", family="KV evicted", kind=Kind.FAULT, strength="last 25% and first 4 kept",
        decoding=Decoding(window=0.25, num_sinks=4),
    )  # fmt: skip


def _positions() -> Iterator[Plant]:
    for shift, strength in ((1, "decode positions + 1"), (-1, "decode positions - 1")):
        yield Plant(
            name=f"rope_{'late' if shift > 0 else 'early'}", family="RoPE off by one", kind=Kind.FAULT,
            strength=strength, decoding=Decoding(position_shift=shift),
        )  # fmt: skip
    yield Plant(
        name="rope_base", family="RoPE off by one", kind=Kind.FAULT, strength="base a tenth of the declared one",
        change=_rope_base,
    )  # fmt: skip


def _stale() -> Iterator[Plant]:
    for one_in in (8, 1):
        who = "every request" if one_in == 1 else f"1 request in {one_in}"
        yield Plant(
            name=f"stale_block_1_in_{one_in}", family="stale cache", kind=Kind.FAULT,
            strength=f"last {STALE_BLOCK} positions of {who}",
            decoding=Decoding(stale_positions=STALE_BLOCK, stale_one_in=one_in),
        )  # fmt: skip
        yield Plant(
            name=f"stale_prompt_1_in_{one_in}", family="stale cache", kind=Kind.FAULT,
            strength=f"whole prompt of {who}", decoding=Decoding(stale_positions=-1, stale_one_in=one_in),
        )  # fmt: skip


def _sampled() -> Iterator[Plant]:
    for temperature in (0.1, 0.3, 1.0):
        yield Plant(
            name=f"sampled_at_{temperature:g}", family="temperature ignored", kind=Kind.FAULT,
            strength=f"T = {temperature:g} where greedy is asked", decoding=Decoding(temperature=temperature),
        )  # fmt: skip


def _lenient() -> Iterator[Plant]:
    """Speculation that is verified loosely. No single token is far off, which is what makes it hard to see."""
    for nats, share in ((0.1, 1.0), (0.2, 0.5), (0.2, 1.0)):
        yield Plant(
            name=f"lenient_{nats:g}_{share:g}", family="lenient speculation", kind=Kind.FAULT,
            strength=f"second best within {nats:g} nats, {share:.0%} of steps",
            decoding=Decoding(lenience_nats=nats, lenient_share=share),
        )  # fmt: skip


def _formats() -> Iterator[Plant]:
    for bits, group in ((6, 32), (5, 32), (4, 32), (4, 128)):
        yield Plant(
            name=f"q{bits}_symmetric_group{group}", family="narrow weights", kind=Kind.FAULT,
            strength=f"{bits} bits, symmetric, {group} values a scale", change=_format(bits=bits, group=group),
        )  # fmt: skip
    yield Plant(
        name="dynamic_int8", family="narrow weights", kind=Kind.FAULT,
        strength="8 bits a weight and an activation, one scale a tensor", change=_dynamic_int8,
    )  # fmt: skip
    yield Plant(
        name="kv_4_bits", family="narrow weights", kind=Kind.FAULT,
        strength="keys and values in 4 bits, a scale a head", change=_narrow_cache,
    )  # fmt: skip


@contextmanager
def planted(model: Any, plant: Plant, *, seed: int) -> Iterator[None]:
    """`model` with the plant's change; as it was before, afterwards."""
    kept = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    frequencies = model.model.rotary_emb.inv_freq.clone()
    hooks: Sequence[Any] = ()
    try:
        with torch.no_grad():
            hooks = plant.change(model, torch.Generator().manual_seed(seed))
        yield
    finally:
        with torch.no_grad():
            for name, tensor in model.state_dict().items():
                tensor.copy_(kept[name])
            model.model.rotary_emb.inv_freq.copy_(frequencies)
        for hook in hooks:
            hook.remove()


def quantise(weight: Tensor, *, bits: int, group: int) -> Tensor:
    """Symmetric round-to-nearest values of `weight` [..., columns]; `group` 0 = one scale for the whole tensor."""
    blocks: Tensor = weight.reshape(-1, group) if group else weight.reshape(1, -1)
    scale = blocks.abs().amax(-1, keepdim=True).clamp_min(1e-9) / (2 ** (bits - 1) - 1)
    rounded: Tensor = (blocks / scale).round() * scale
    return rounded.view_as(weight)


def flip_bits(weights: Sequence[Tensor], *, num_flips: int, bits: range, generator: torch.Generator) -> None:
    """Round the weights to bf16 and flip `num_flips` bits of them, drawn uniformly over all values and `bits`."""
    for weight in weights:
        weight.copy_(weight.bfloat16().float())
    places = torch.randint(sum(weight.numel() for weight in weights), (num_flips,), generator=generator)
    chosen = torch.randint(bits.start, bits.stop, (num_flips,), generator=generator)
    start = 0
    for weight in weights:
        is_here = (places >= start) & (places < start + weight.numel())
        here, masks = places[is_here] - start, (1 << chosen[is_here]).to(torch.int16)
        start += weight.numel()
        flat = weight.view(-1)
        words = flat[here].bfloat16().view(torch.int16) ^ masks
        flat[here] = words.view(torch.bfloat16).float()


def _linears(model: Any) -> list[Any]:
    return [module for module in model.modules() if isinstance(module, torch.nn.Linear)]


def _matrices(model: Any) -> list[Tensor]:
    """Of the layers: an embedding's row counts only where its token occurs."""
    return [parameter.data for parameter in model.model.layers.parameters() if parameter.dim() == 2]


def _bf16(model: Any, generator: torch.Generator) -> Sequence[Any]:
    _bf16_weights(model, generator)
    return round_outputs(model)


def _bf16_weights(model: Any, _: torch.Generator) -> Sequence[Any]:
    for parameter in model.parameters():
        parameter.copy_(parameter.bfloat16().float())
    return []


def _format(*, bits: int, group: int) -> Change:
    def change(model: Any, _: torch.Generator) -> Sequence[Any]:
        for module in _linears(model):
            # where the head is tied to the embedding both are changed, as a server that keeps one copy would have it
            module.weight.copy_(quantise(module.weight, bits=bits, group=group))
        return []

    return change


def _packed_q4_1(model: Any, _: torch.Generator) -> Sequence[Any]:
    """Through the very blocks of the file's format: a runtime that reads them is lossless."""
    from gguf import GGMLQuantizationType as Format
    from gguf.quants import dequantize, quantize

    for matrix in _matrices(model):
        packed = quantize(matrix.numpy(), Format.Q4_1)
        matrix.copy_(torch.from_numpy(dequantize(packed, Format.Q4_1)))
    return []


def _flips(num_flips: int, bits: range) -> Change:
    def change(model: Any, generator: torch.Generator) -> Sequence[Any]:
        flip_bits(_matrices(model), num_flips=num_flips, bits=bits, generator=generator)
        return []

    return change


def _skip(layer: int, *, attention: bool = True, mlp: bool = True) -> Change:
    """What leaves the residual stream alone might as well not run."""

    def change(model: Any, _: torch.Generator) -> Sequence[Any]:
        if attention:
            model.model.layers[layer].self_attn.o_proj.weight.zero_()
        if mlp:
            model.model.layers[layer].mlp.down_proj.weight.zero_()
        return []

    return change


def _rope_base(model: Any, _: torch.Generator) -> Sequence[Any]:
    frequencies = model.model.rotary_emb.inv_freq
    frequencies *= 10 ** (torch.arange(len(frequencies)) / len(frequencies))
    return []


def _dynamic_int8(model: Any, generator: torch.Generator) -> Sequence[Any]:
    """Per-tensor int8 weights and per-tensor dynamic int8 activations, as `torch.ao` dynamic quantisation has them."""
    _format(bits=8, group=0)(model, generator)
    return [
        module.register_forward_pre_hook(lambda _, inputs: (quantise(inputs[0], bits=8, group=0),))
        for module in _linears(model)
    ]


def _narrow_cache(model: Any, _: torch.Generator) -> Sequence[Any]:
    hooks = []
    for layer in model.model.layers:
        size = layer.self_attn.head_dim
        for module in (layer.self_attn.k_proj, layer.self_attn.v_proj):
            hook = partial(_in_four_bits, size=size)
            hooks.append(module.register_forward_hook(hook))
    return hooks


def _in_four_bits(module: Any, inputs: Any, output: Tensor, *, size: int) -> Tensor:
    return quantise(output, bits=4, group=size)


@torch.inference_mode()
def decode(
    model: Any, prompts: Sequence[Sequence[int]], *, num_tokens: int, how: Decoding, seed: int
) -> tuple[list[list[int]], list[list[float]]]:
    """Serve prompts of one length as one batch with a KV cache. Returns ids and log-probabilities
    [len(prompts)][num_tokens]."""
    generator = torch.Generator().manual_seed(seed)
    width = len(prompts[0])
    output = model(
        input_ids=torch.tensor(prompts), position_ids=torch.arange(width)[None] + how.prompt_shift, use_cache=True,
        logits_to_keep=1,
    )  # fmt: skip
    cache = output.cache
    _make_stale(cache, how=how, num_requests=len(prompts))
    ids, logprobs = [], []
    for step in range(num_tokens):
        rows = output.logits[:, -1].float()
        chosen = _pick(rows, how=how, generator=generator)
        ids.append(chosen)
        logprobs.append(rows.log_softmax(-1).gather(1, chosen[:, None])[:, 0])
        if step + 1 == num_tokens:
            break
        place = width + step
        output = model(
            input_ids=chosen[:, None], position_ids=torch.tensor([[place + how.position_shift]]), cache=cache,
            use_cache=True, attention_mask=_kept(place + 1, how=how, longest=width + num_tokens, rows=len(prompts)),
        )  # fmt: skip
        cache = output.cache
    return torch.stack(ids, 1).tolist(), torch.stack(logprobs, 1).tolist()


def _pick(rows: Tensor, *, how: Decoding, generator: torch.Generator) -> Tensor:
    if how.lenience_nats:
        values, ids = rows.topk(2)
        has_draft = torch.rand(len(rows), generator=generator) < how.lenient_share
        is_taken = has_draft & (values[:, 0] - values[:, 1] < how.lenience_nats)
        return torch.where(is_taken, ids[:, 1], ids[:, 0])
    if not how.temperature or not bool(rows.isfinite().all()):
        return rows.argmax(-1)
    drawn: Tensor = torch.multinomial((rows / how.temperature).softmax(-1), 1, generator=generator)[:, 0]
    return drawn


def _kept(num_positions: int, *, how: Decoding, longest: int, rows: int) -> Tensor | None:
    """Attention mask [rows, num_positions] of a decode step; None where everything is seen."""
    window = how.window * longest if how.window <= FULL else how.window
    if window >= num_positions:
        return None
    mask = torch.zeros(rows, num_positions, dtype=torch.long)
    mask[:, num_positions - int(window) :] = 1
    mask[:, : how.num_sinks] = 1
    return mask


def _make_stale(cache: Any, *, how: Decoding, num_requests: int) -> None:
    """Give requests the keys and values of the one before them, at the last positions of the prompt."""
    if not how.stale_positions:
        return
    victims = torch.arange(0, num_requests, how.stale_one_in)
    for layer in cache.layers:
        for tensor in (layer.keys, layer.values):
            width = tensor.shape[2]
            start = 0 if how.stale_positions < 0 else width - how.stale_positions
            tensor[victims, :, start:] = tensor[victims - 1, :, start:].clone()
