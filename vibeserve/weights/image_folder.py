"""A user's own model that draws, in the layout of docs/image.md. Child process only.

What the published checkpoint has beyond what is drawn with (the text's output matrix, the VAE's encoder, its
convolutions over time) is left out; what does not fit is named and refused. A model of the Janus shape is
`janus_folder`'s.
"""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file

from vibeserve.errors import WeightsError
from vibeserve.weights.image_files import NEXT, checked, tokenizer_copier
from vibeserve.weights.janus_folder import write_janus_folder
from vibeserve.weights.seeded_image import ARCHITECTURE, model_shapes, vae_shapes, write_folders
from vibeserve.weights.seeded_janus import ARCHITECTURE as JANUS

UNUSED = ("showo.lm_head.", "encoder.", "conv1.")
UNUSED_PARTS = (".time_conv.",)


def write_image_folder(folder: Path, *, destination: Path) -> int:
    """`f32/` and `bf16/` below `destination`; returns the number of parameters but for the decoder's.

    WeightsError for a folder of another layout, with what is missing or of another shape.
    """
    if _model_type(folder) == JANUS:
        return write_janus_folder(folder, destination=destination)
    config = _config(folder)
    check = partial(checked, folder=folder, unused=UNUSED, unused_parts=UNUSED_PARTS)
    parts = {
        "model": check(_tensors(folder, is_vae=False), dict(model_shapes(config))),
        "vae": check(_tensors(folder, is_vae=True), dict(vae_shapes(config))),
    }
    write_folders(destination, parts, document=config, save_tokenizer=tokenizer_copier(folder))
    return sum(tensor.numel() for tensor in parts["model"].values())


def _model_type(folder: Path) -> str:
    """What `config.json` says; empty where there is none that says it, which `_config` explains."""
    try:
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        return str(config["model_type"])
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        return ""


def _config(folder: Path) -> dict[str, Any]:
    absent = [name for name in ("config.json", "tokenizer.json", "vae.safetensors") if not (folder / name).is_file()]
    if absent:
        raise WeightsError(f"{folder}: no {', '.join(absent)}\n{NEXT}")
    try:
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        is_ours = config["model_type"] == ARCHITECTURE
        dict(model_shapes(config)), dict(vae_shapes(config))
        has_time = bool(config["add_time_embeds"])
    except (ValueError, KeyError, TypeError) as error:
        raise WeightsError(f"{folder / 'config.json'}: {type(error).__name__}: {error}\n{NEXT}") from error
    if not is_ours:
        raise WeightsError(
            f"{folder / 'config.json'}: model_type '{config['model_type']}'; valid: {ARCHITECTURE}, {JANUS}"
        )
    if not has_time:
        raise WeightsError(f"{folder / 'config.json'}: models without an embedding of the time are not implemented")
    return dict(config)


def _tensors(folder: Path, *, is_vae: bool) -> dict[str, torch.Tensor]:
    paths = [path for path in sorted(folder.glob("*.safetensors")) if (path.name == "vae.safetensors") is is_vae]
    return {name: tensor for path in paths for name, tensor in load_file(path).items()}
