"""Sizes of a model that its declaration implies."""

from __future__ import annotations

import dataclasses

from vibeserve.hardware.roofline import block_parameters
from vibeserve.spec import Modality, Model, SourceKind

CONFIG_KEYS = {
    "num_layers": "num_hidden_layers",
    "hidden_size": "hidden_size",
    "intermediate_size": "intermediate_size",
    "num_heads": "num_attention_heads",
    "num_kv_heads": "num_key_value_heads",
    "head_dim": "head_dim",
    "vocab_size": "vocab_size",
}
"""field of `Model` -> key of transformers' configuration"""


def with_sizes(model: Model) -> Model:
    """`model` with the sizes of a seeded one taken from its `source.config`, and its parameters counted.

    Sizes that a hub or folder model does not declare stay 0: they are known once its files are there.
    """
    sizes = {name: getattr(model, name) for name in CONFIG_KEYS}
    is_tied = model.tied_embeddings
    if model.source.kind is SourceKind.seeded:
        sizes = {name: value or int(model.source.config.get(CONFIG_KEYS[name], 0)) for name, value in sizes.items()}
        is_tied = is_tied or bool(model.source.config.get("tie_word_embeddings", 0))
    sized = dataclasses.replace(model, **sizes, tied_embeddings=is_tied)
    return dataclasses.replace(sized, num_parameters=model.num_parameters or count_parameters(sized))


def count_parameters(model: Model) -> int:
    """Parameters of a Llama-shaped text model; 0 when its sizes are not declared or it has other layers.

    Input embedding, output matrix where it is not the same, the blocks with two norms each, and the last norm.
    """
    is_other = model.linear_state.num_layers or model.modality is not Modality.text
    if is_other or not (model.intermediate_size and model.hidden_size and model.num_layers):
        return 0
    blocks = block_parameters(
        num_layers=model.num_layers, hidden_size=model.hidden_size, intermediate_size=model.intermediate_size,
        num_heads=model.num_heads, num_kv_heads=model.num_kv_heads, head_dim=model.head_dim,
    )  # fmt: skip
    embeddings = model.vocab_size * model.hidden_size * (1 if model.tied_embeddings else 2)
    return embeddings + blocks + (2 * model.num_layers + 1) * model.hidden_size
