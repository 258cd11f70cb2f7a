"""Served replies without a server: greedy text of a transformers model, and faults to plant into it."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from vibeserve.core.nouns import Chunk, PromptRequest, Reply, Usage
from vibeserve.spec import Workload
from vibeserve.weights import load_tokenizer
from vibeserve.workloads import Pool, request_stream


def make_reply(
    request: PromptRequest, token_ids: Sequence[int], *, tokenizer: Any, logprobs: Sequence[float] = (), **changes: Any
) -> Reply:
    """An honest finished reply: one chunk a token, usage as counted."""
    texts = [tokenizer.decode(list(token_ids[:n])) for n in range(len(token_ids) + 1)]
    chunks = tuple(
        Chunk(at_s=1.0 + 0.1 * n, text=texts[n + 1][len(texts[n]) :], token_ids=(token,))
        for n, token in enumerate(token_ids)
    )
    fields: dict[str, Any] = {
        "request": request,
        "scheduled_s": 0.0,
        "sent_s": 0.0,
        "end_s": 1.0 + 0.1 * len(token_ids),
        "chunks": chunks,
        "finish_reason": "length",
        "usage": Usage(prompt_tokens=request.num_prompt_tokens, completion_tokens=len(token_ids)),
        "token_logprobs": tuple(logprobs) if request.logprobs else (),
    }
    return Reply(**(fields | changes))


def greedy_replies(model: Any, requests: Sequence[PromptRequest], *, tokenizer: Any) -> list[Reply]:
    """Serve requests of equal lengths as one batch, greedily, with a KV cache; log-probabilities where asked for."""
    import torch

    num_tokens = requests[0].max_tokens
    step = torch.tensor([tokenizer.encode(request.prompt).ids for request in requests])
    cache, ids, logprobs = None, [], []
    with torch.inference_mode():
        for _ in range(num_tokens):
            output = model(input_ids=step, cache=cache, use_cache=True)
            cache = output.cache
            rows = output.logits[:, -1].float().log_softmax(-1)
            best = rows.max(dim=-1)
            step = best.indices[:, None]
            ids.append(best.indices)
            logprobs.append(best.values)
    id_rows, logprob_rows = torch.stack(ids, 1).tolist(), torch.stack(logprobs, 1).tolist()
    return [
        make_reply(request, row, tokenizer=tokenizer, logprobs=values)
        for request, row, values in zip(requests, id_rows, logprob_rows, strict=True)
    ]


def equal_requests(
    model_dir: Path, *, num: int, prompt_tokens: int, output_tokens: int, seed: int = 7
) -> list[PromptRequest]:
    """Requests of one length each way, as `greedy_replies` needs them; one in eight asks for log-probabilities."""
    workload = Workload(
        kind="chat",
        prompt_tokens_min=prompt_tokens,
        prompt_tokens_max=prompt_tokens,
        output_tokens_min=output_tokens,
        output_tokens_max=output_tokens,
    )
    tokenizer = load_tokenizer(model_dir)
    stream = request_stream(workload, tokenizer=tokenizer, pool=Pool.selection, seed=seed, logprobs_share=8)
    return list(itertools.islice(stream, num))


def quantise(weight: Any, *, bits: int, group: int) -> Any:
    """Symmetric round-to-nearest values of `weight` [rows, columns]; `group` 0 = one scale for the whole tensor."""
    blocks = weight.reshape(-1, group) if group else weight.reshape(1, -1)
    scale = blocks.abs().amax(-1, keepdim=True).clamp_min(1e-9) / (2 ** (bits - 1) - 1)
    return ((blocks / scale).round() * scale).view_as(weight)


def plant_bf16(model: Any) -> None:
    import torch

    model.to(torch.bfloat16)


def plant_weight_format(model: Any, *, bits: int, group: int) -> None:
    import torch

    for module in _linears(model):
        module.weight = torch.nn.Parameter(quantise(module.weight.data, bits=bits, group=group), requires_grad=False)


def plant_dynamic_int8(model: Any) -> None:
    """Per-tensor int8 weights and per-tensor dynamic int8 activations, as `torch.ao` dynamic quantisation has them."""
    plant_weight_format(model, bits=8, group=0)
    for module in _linears(model):
        module.register_forward_pre_hook(lambda _, inputs: (quantise(inputs[0], bits=8, group=0),))


def plant_perturbed_layer(model: Any) -> None:
    """Half of a standard deviation of noise on every matrix of the middle layer."""
    import torch

    generator = torch.Generator().manual_seed(3)
    for parameter in model.model.layers[len(model.model.layers) // 2].parameters():
        if parameter.dim() == 2:
            parameter.data += 0.5 * parameter.data.std() * torch.randn(parameter.shape, generator=generator)


def plant_wrong_rope(model: Any) -> None:
    """RoPE base a tenth of the declared one."""
    rope = model.model.rotary_emb
    size = 2 * rope.inv_freq.numel()
    for index in range(rope.inv_freq.numel()):
        rope.inv_freq[index] *= 10 ** (2 * index / size)


def _linears(model: Any) -> list[Any]:
    import torch

    return [module for module in model.modules() if isinstance(module, torch.nn.Linear)]


HONEST: dict[str, Callable[[Any], None]] = {
    "f32": lambda model: None,
    "bf16": plant_bf16,
    "int8_group32": lambda model: plant_weight_format(model, bits=8, group=32),
}
FAULTS: dict[str, Callable[[Any], None]] = {
    "perturbed_layer": plant_perturbed_layer,
    "q4_symmetric": lambda model: plant_weight_format(model, bits=4, group=32),
    "dynamic_int8_per_tensor": plant_dynamic_int8,
    "wrong_rope": plant_wrong_rope,
}
