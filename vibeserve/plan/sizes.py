"""Sizes of a model that its declaration implies."""

from __future__ import annotations

import dataclasses

from vibeserve.spec import Model, SourceKind

CONFIG_KEYS = {
    "num_layers": "num_hidden_layers",
    "hidden_size": "hidden_size",
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
    if model.source.kind is SourceKind.seeded:
        sizes = {name: value or int(model.source.config.get(CONFIG_KEYS[name], 0)) for name, value in sizes.items()}
    sized = dataclasses.replace(model, **sizes)
    return dataclasses.replace(sized, num_parameters=model.num_parameters or count_parameters(sized))


def count_parameters(model: Model) -> int:
    """Parameters of a Llama-shaped model with tied embeddings; 0 when its sizes are not declared.

    Embeddings, per layer q, k, v, o, gate, up, down and two norms, and the last norm.
    """
    intermediate = int(model.source.config.get("intermediate_size", 0))
    if not (intermediate and model.hidden_size and model.num_layers):
        return 0
    attention = 2 * model.hidden_size * model.head_dim * (model.num_heads + model.num_kv_heads)
    layer = attention + 3 * model.hidden_size * intermediate + 2 * model.hidden_size
    return model.vocab_size * model.hidden_size + model.num_layers * layer + model.hidden_size
