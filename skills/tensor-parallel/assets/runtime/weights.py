"""Read this rank's part of the model: its sizes, and its rows or columns of every matrix.

Queries, keys, values, gate and up are split by rows (heads, neurons), output and down by columns, the output matrix by
rows of the vocabulary (Shoeybi et al. 2019, Megatron-LM, section 3). The input embedding and the norms are whole on
every rank. With more ranks than KV heads a rank keeps one whole head: heads are replicated, never split.
"""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from torch import Tensor

from .interfaces import ModelConfig
from .parameters import Parameters
from .ranks import Ranks

WEIGHTS_DIR = "bf16"
EMBEDDING, HEAD = "model.embed_tokens.weight", "lm_head.weight"
BY_ROWS = ("gate_proj", "up_proj")
BY_COLUMNS = ("o_proj", "down_proj")


class Shard(dict[str, Tensor]):
    """Tensors by their name in the checkpoint, this rank's part of each, and the ranks that hold the others.

    `lm_head.weight` is there in any case: the rank's rows of the output matrix, of the embedding where that is tied.
    """

    def __init__(self, tensors: dict[str, Tensor], *, ranks: Ranks) -> None:
        super().__init__(tensors)
        self.ranks = ranks


def load_config(model_dir: Path) -> ModelConfig:
    """Sizes of one rank: heads and neurons are its own, all else the model's. Raises ValueError for what this runtime
    does not implement and for a model that cannot be split over so many ranks."""
    return config_of_rank(whole_config(model_dir), num_ranks=Parameters().tensor_parallel_size)


def load_weights(model_dir: Path) -> Shard:
    """The server's own part; starts the other ranks, and returns when all have loaded theirs."""
    ranks = Ranks(rank=0, world_size=Parameters().tensor_parallel_size)
    ranks.start(model_dir)
    shard = load_shard(model_dir, ranks=ranks)
    ranks.await_others()
    return shard


def load_shard(model_dir: Path, *, ranks: Ranks) -> Shard:
    """The part of rank `ranks.rank`, bf16; nothing else is read."""
    config = whole_config(model_dir)
    parts: dict[str, Tensor] = {}
    for path in sorted((model_dir / WEIGHTS_DIR).glob("*.safetensors")):
        with safe_open(path, framework="pt") as file:
            for name in file.keys():  # noqa: SIM118 (no mapping)
                parts[name] = part_of(file.get_slice(name), name, config=config, ranks=ranks)
                if name == EMBEDDING and config.tie_word_embeddings:
                    parts[HEAD] = part_of(file.get_slice(name), HEAD, config=config, ranks=ranks)
    return Shard(parts, ranks=ranks)


def part_of(tensor: Any, name: str, *, config: ModelConfig, ranks: Ranks) -> Tensor:
    """A rank's part of the checkpoint's tensor `name`; `tensor` is a slice that is read where it is indexed."""
    rank, num_ranks = ranks.rank, ranks.world_size
    layer = name.removesuffix(".weight").rpartition(".")[2]
    if layer == "q_proj":
        return rows(tensor, rank, config.num_heads * config.head_dim // num_ranks)
    if layer in ("k_proj", "v_proj"):
        first = rank * config.num_kv_heads // num_ranks
        return rows(tensor, first, config.head_dim, num=max(1, config.num_kv_heads // num_ranks))
    if layer in BY_ROWS:
        return rows(tensor, rank, config.intermediate_size // num_ranks)
    if layer in BY_COLUMNS:
        size = tensor.get_shape()[1] // num_ranks
        part: Tensor = tensor[:, rank * size : (rank + 1) * size]
        return part.contiguous()
    if name == HEAD:
        return vocabulary_rows(tensor, config=config, ranks=ranks)
    whole: Tensor = tensor[:]
    return whole


def rows(tensor: Any, index: int, size: int, *, num: int = 1) -> Tensor:
    """Rows of `num` blocks of `size`, from block `index`."""
    part: Tensor = tensor[index * size : (index + num) * size]
    return part


def vocabulary_rows(tensor: Any, *, config: ModelConfig, ranks: Ranks) -> Tensor:
    """As many rows of the output matrix on every rank; the last one's are filled up with zeros."""
    size = -(-config.vocab_size // ranks.world_size)
    part = rows(tensor, ranks.rank, size)
    return torch.nn.functional.pad(part, (0, 0, 0, size - len(part)))


def config_of_rank(config: ModelConfig, *, num_ranks: int) -> ModelConfig:
    """The sizes of one of `num_ranks`. Raises ValueError where they do not divide the model."""
    for name in ("num_heads", "intermediate_size"):
        if getattr(config, name) % num_ranks:
            raise ValueError(f"{num_ranks} ranks do not divide the model's {name} {getattr(config, name)}")
    heads = config.num_kv_heads
    if heads % num_ranks and num_ranks % heads:
        raise ValueError(f"{num_ranks} ranks and the model's num_kv_heads {heads}: neither divides the other")
    return dataclasses.replace(
        config, num_heads=config.num_heads // num_ranks, num_kv_heads=max(1, heads // num_ranks),
        intermediate_size=config.intermediate_size // num_ranks,
    )  # fmt: skip


def whole_config(model_dir: Path) -> ModelConfig:
    """Sizes of the whole model in `model_dir`; raises ValueError for what this runtime does not implement."""
    folder = model_dir / WEIGHTS_DIR
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    _check_supported(config)
    rope = config.get("rope_parameters") or config
    num_heads = config["num_attention_heads"]
    return ModelConfig(
        vocab_size=config["vocab_size"],
        hidden_size=config["hidden_size"],
        intermediate_size=config["intermediate_size"],
        num_layers=config["num_hidden_layers"],
        num_heads=num_heads,
        num_kv_heads=config.get("num_key_value_heads") or num_heads,
        head_dim=config.get("head_dim") or config["hidden_size"] // num_heads,
        rms_norm_eps=config["rms_norm_eps"],
        rope_theta=float(rope["rope_theta"]),
        max_position_embeddings=config["max_position_embeddings"],
        tie_word_embeddings=bool(config.get("tie_word_embeddings", False)),
        eos_token_ids=_eos_token_ids(folder, config),
    )


def _check_supported(config: dict[str, Any]) -> None:
    if config.get("model_type") != "llama":
        raise ValueError(f"config.json: model_type '{config.get('model_type')}' is not supported; supported: llama")
    rope = config.get("rope_parameters") or config.get("rope_scaling") or {}
    rope_type = rope.get("rope_type", rope.get("type", "default"))
    if rope_type != "default":
        raise ValueError(f"config.json: rope type '{rope_type}' is not supported; supported: default")
    for name in ("attention_bias", "mlp_bias"):
        if config.get(name):
            raise ValueError(f"config.json: {name} is not supported")
    if config.get("hidden_act", "silu") != "silu":
        raise ValueError(f"config.json: hidden_act '{config['hidden_act']}' is not supported; supported: silu")


def _eos_token_ids(folder: Path, config: dict[str, Any]) -> tuple[int, ...]:
    """End tokens of `generation_config.json` where it names any, else of `config.json`, as the stock servers do."""
    path = folder / "generation_config.json"
    generation = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    declared = generation.get("eos_token_id")
    if declared is None:
        declared = config.get("eos_token_id")
    if declared is None:
        return ()
    return tuple(declared) if isinstance(declared, list) else (declared,)
