"""What a model's own files say about it: kind, sizes, pooling, dtype. No weight is loaded, only headers are read."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any

from vibeserve.errors import SpecError
from vibeserve.spec import LinearState
from vibeserve.weights.headers import WeightsHeader, read_headers

KNOWN = (
    "a causal language model in transformers' layout (config.json with ...ForCausalLM)",
    "a sentence embedding model (modules.json of sentence-transformers: Transformer, Pooling, perhaps Normalize)",
)
"""what `init --from` writes a complete folder for"""

CUSTOM_HINT = "vibeserve init NAME --template custom writes the four files as a small example that runs; edit it"
POOLINGS = ("mean", "cls")
OTHER_STATES = ("mamba_d_state", "ssm_state_size", "rwkv_version")
"""configuration fields of recurrent layers whose sizes are named in no common way"""
MODULES = {
    "sentence_transformers.models.Transformer": "transformer",
    "sentence_transformers.models.Pooling": "pooling",
    "sentence_transformers.models.Normalize": "normalize",
}
"""type of a module in modules.json -> its short name; a Dense layer and others are not known"""


class ModelKind(Enum):
    causal_lm = "causal_lm"
    sentence_embedding = "sentence_embedding"


@dataclass(frozen=True, kw_only=True)
class Embedding:
    """How a sentence embedding model turns its last hidden states into one vector."""

    pooling: str
    """mean or cls"""
    is_normalised: bool
    max_tokens: int
    """longer texts are cut"""
    is_lowercased: bool = False
    """texts are read in lower case"""


@dataclass(frozen=True, kw_only=True)
class ModelFacts:
    """One model folder. Sizes that its configuration does not state are 0."""

    kind: ModelKind
    architecture: str
    class_name: str
    sizes: dict[str, int]
    """fields of `spec.Model` -> value"""
    linear_state: LinearState
    weights: WeightsHeader | None
    """None: the folder holds no weights"""
    has_tokenizer: bool
    licence: str
    config: dict[str, Any]
    """config.json as it is"""
    embedding: Embedding | None = None
    notes: tuple[str, ...] = field(default=())


def inspect_folder(folder: Path, *, options: str = "") -> ModelFacts:
    """The facts of the model in `folder`. SpecError where it is none that a target can be written for; `options` are
    those that its config.json was made of, and stand for the folder in what is said."""
    config = _read_config(folder)
    architecture = str(config.get("model_type", ""))
    standard = _standard_config(architecture, config, folder=folder, options=options)
    embedding = _embedding(folder, standard)
    is_seq2seq = bool(getattr(standard, "is_encoder_decoder", False))
    class_name = (
        embedding_class(config)
        if embedding
        else _causal_class(architecture, config, where=options or str(folder), is_encoder_decoder=is_seq2seq)
    )
    weights = read_headers(folder)
    return ModelFacts(
        kind=ModelKind.sentence_embedding if embedding else ModelKind.causal_lm,
        architecture=architecture,
        class_name=class_name,
        sizes=model_sizes(standard.get_text_config()),
        linear_state=linear_state(standard.get_text_config()),
        weights=weights,
        has_tokenizer=(folder / "tokenizer.json").is_file(),
        licence=_licence(folder),
        config=config,
        embedding=embedding,
        notes=tuple(_notes(standard.get_text_config())),
    )


def _notes(standard: Any) -> Iterator[str]:
    if linear_state(standard) == LinearState() and any(hasattr(standard, name) for name in OTHER_STATES):
        yield "the state of its recurrent layers is not known to init: add model.linear_state, so that plan counts it"


def _read_config(folder: Path) -> dict[str, Any]:
    path = folder / "config.json"
    if not path.is_file():
        found = ", ".join(sorted(item.name for item in folder.iterdir())[:8]) if folder.is_dir() else "no such folder"
        raise SpecError(
            f"{folder}: no config.json, so not a model folder",
            problems=[f"found: {found or 'nothing'}", *(f"init knows: {known}" for known in KNOWN)],
            hint=CUSTOM_HINT,
        )
    return _read_json(path)


def _read_json(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise SpecError(f"{path}: not JSON: {error}", hint="take the file from the model's own repository") from error
    if not isinstance(found, dict):
        raise SpecError(f"{path}: expected a JSON object", hint="take the file from the model's own repository")
    return found


def _standard_config(architecture: str, config: dict[str, Any], *, folder: Path, options: str) -> Any:
    """transformers' configuration object: it answers to the standard names whatever the file calls its fields."""
    from huggingface_hub.errors import StrictDataclassError
    from transformers import CONFIG_MAPPING, __version__

    if architecture not in CONFIG_MAPPING:
        stated = f"model_type '{architecture}' is unknown to transformers {__version__}"
        raise SpecError(
            f"{folder / 'config.json'}: {stated if architecture else 'states no model_type'}",
            problems=[f"init knows: {known}" for known in KNOWN],
            hint=CUSTOM_HINT,
        )
    if config.get("quantization_config"):
        raise SpecError(
            f"{folder / 'config.json'}: the checkpoint is quantised (quantization_config)",
            problems=["the reference runs in float32: init reads checkpoints in float32, bfloat16 or float16"],
            hint="name the checkpoint that it was quantised from",
        )
    try:
        return CONFIG_MAPPING[architecture].from_dict(config)
    except (StrictDataclassError, ValueError, TypeError, KeyError) as error:
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        mend = "state sizes that fit each other, as --config KEY=NUMBER ..."
        raise SpecError(
            f"{options or folder / 'config.json'}: transformers refuses it as a {architecture} configuration",
            problems=lines,
            hint=mend if options else "take the file from the model's own repository, or mend what is named",
        ) from error


def _causal_class(architecture: str, config: dict[str, Any], *, where: str, is_encoder_decoder: bool) -> str:
    from transformers.models.auto.modeling_auto import (
        MODEL_FOR_CAUSAL_LM_MAPPING_NAMES,
        MODEL_FOR_MASKED_LM_MAPPING_NAMES,
    )

    declared = config.get("architectures") or [MODEL_FOR_CAUSAL_LM_MAPPING_NAMES.get(architecture, "")]
    name = str(declared[0])
    # encoders have a causal class as well; nobody serves it
    is_encoder = architecture in MODEL_FOR_MASKED_LM_MAPPING_NAMES or is_encoder_decoder
    if name in MODEL_FOR_CAUSAL_LM_MAPPING_NAMES.values() and not is_encoder:
        return name
    raise SpecError(
        f"{where}: {name or architecture} is no model that init can write a target for",
        problems=[f"init knows: {known}" for known in KNOWN],
        hint=CUSTOM_HINT,
    )


def embedding_class(config: dict[str, Any]) -> str:
    return str((config.get("architectures") or ["AutoModel"])[0])


def model_sizes(standard: Any) -> dict[str, int]:
    """Fields of `spec.Model` from a transformers configuration."""
    names = {
        "num_layers": "num_hidden_layers",
        "hidden_size": "hidden_size",
        "intermediate_size": "intermediate_size",
        "num_heads": "num_attention_heads",
        "num_kv_heads": "num_key_value_heads",
        "head_dim": "head_dim",
        "vocab_size": "vocab_size",
        "max_context_tokens": "max_position_embeddings",
    }
    sizes = {field: _number(standard, key) for field, key in names.items()}
    sizes["num_kv_heads"] = sizes["num_kv_heads"] or sizes["num_heads"]
    if sizes["num_heads"] and not sizes["head_dim"]:
        sizes["head_dim"] = sizes["hidden_size"] // sizes["num_heads"]
    if not sizes["num_heads"]:  # state-space models use head_dim for their state
        sizes["head_dim"] = 0
    num_attention = [kind for kind in getattr(standard, "layer_types", None) or [] if "attention" in kind]
    state = linear_state(standard)
    if state.num_layers and sizes["num_layers"] > state.num_layers:
        sizes["num_attention_layers"] = len([kind for kind in num_attention if "linear" not in kind])
    return sizes


def linear_state(standard: Any) -> LinearState:
    """Recurrent state of Mamba, Mamba2 and gated DeltaNet layers, by transformers' names of their sizes."""
    if _number(standard, "state_size") and _number(standard, "head_dim"):  # Mamba2
        num_heads, head_dim = _number(standard, "num_heads"), _number(standard, "head_dim")
        groups, state = _number(standard, "n_groups"), _number(standard, "state_size")
        return LinearState(
            num_layers=_number(standard, "num_hidden_layers"), num_key_heads=groups, num_value_heads=num_heads,
            key_head_dim=state, value_head_dim=head_dim, conv_kernel=_number(standard, "conv_kernel"),
            conv_channels=num_heads * head_dim + 2 * groups * state,
        )  # fmt: skip
    if _number(standard, "state_size"):  # Mamba: one state per channel
        channels = _number(standard, "intermediate_size")
        return LinearState(
            num_layers=_number(standard, "num_hidden_layers"), num_key_heads=1, num_value_heads=1,
            key_head_dim=_number(standard, "state_size"), value_head_dim=channels,
            conv_kernel=_number(standard, "conv_kernel"), conv_channels=channels,
        )  # fmt: skip
    if _number(standard, "linear_num_value_heads"):  # gated DeltaNet beside attention
        kinds = getattr(standard, "layer_types", None) or []
        return LinearState(
            num_layers=sum(kind == "linear_attention" for kind in kinds),
            num_key_heads=_number(standard, "linear_num_key_heads"),
            num_value_heads=_number(standard, "linear_num_value_heads"),
            key_head_dim=_number(standard, "linear_key_head_dim"),
            value_head_dim=_number(standard, "linear_value_head_dim"),
            conv_kernel=_number(standard, "linear_conv_kernel_dim"),
        )
    return LinearState()


def _number(standard: Any, name: str) -> int:
    found = getattr(standard, name, None)
    return int(found) if isinstance(found, int | float) and not isinstance(found, bool) else 0


def _embedding(folder: Path, standard: Any) -> Embedding | None:
    """None for a folder without modules.json. Sources: the files that sentence-transformers writes."""
    path = folder / "modules.json"
    if not path.is_file():
        return None
    try:
        modules = json.loads(path.read_text(encoding="utf-8"))
        kinds = [MODULES.get(str(module["type"]), str(module["type"])) for module in modules]
        pooling_folder = next((str(module["path"]) for module in modules if _is_pooling(module)), "1_Pooling")
    except (json.JSONDecodeError, UnicodeDecodeError, KeyError, TypeError) as error:
        raise SpecError(f"{path}: not a list of modules with type and path", hint=CUSTOM_HINT) from error
    if kinds not in (["transformer", "pooling"], ["transformer", "pooling", "normalize"]):
        raise SpecError(
            f"{path}: modules {', '.join(kinds)}",
            problems=["init knows: transformer, pooling, and normalize behind them"],
            hint=CUSTOM_HINT,
        )
    _refuse_prompts(folder)
    settings = folder / "sentence_bert_config.json"
    declared = _read_json(settings) if settings.is_file() else {}
    limit = _number(standard, "max_position_embeddings")
    return Embedding(
        pooling=_pooling(folder / pooling_folder / "config.json"),
        is_normalised="normalize" in kinds,
        max_tokens=int(declared.get("max_seq_length") or limit or 512),
        is_lowercased=declared.get("do_lower_case") is True,
    )


def _is_pooling(module: dict[str, Any]) -> bool:
    return MODULES.get(str(module.get("type"))) == "pooling"


def _pooling(path: Path) -> str:
    if not path.is_file():
        raise SpecError(f"{path}: no such file; modules.json names it", hint=CUSTOM_HINT)
    config = _read_json(path)
    # older files have a flag per mode, newer ones one word
    flags = {"pooling_mode_mean_tokens": "mean", "pooling_mode_cls_token": "cls"}
    chosen = [key for key, value in config.items() if key.startswith("pooling_mode_") and value is True]
    modes = [flags.get(key, key.removeprefix("pooling_mode_")) for key in chosen] or [str(config.get("pooling_mode"))]
    if len(modes) == 1 and modes[0] in POOLINGS:
        return modes[0]
    raise SpecError(
        f"{path}: pooling {' and '.join(modes)}", problems=[f"init knows: {', '.join(POOLINGS)}"], hint=CUSTOM_HINT
    )


def _refuse_prompts(folder: Path) -> None:
    path = folder / "config_sentence_transformers.json"
    name = _read_json(path).get("default_prompt_name") if path.is_file() else None
    if name:
        raise SpecError(
            f"{path}: default_prompt_name '{name}' puts a prompt before every text",
            problems=["init knows: models that embed a text as it is"],
            hint=CUSTOM_HINT,
        )


def _licence(folder: Path) -> str:
    """`license:` of the model card's front matter; empty where it has none."""
    path = folder / "README.md"
    if not path.is_file():
        return ""
    text = path.read_text(encoding="utf-8", errors="replace")
    front = re.match(r"---\n(.*?)\n---", text, flags=re.DOTALL)
    found = re.search(r"^license:\s*(\S+)\s*$", front.group(1), flags=re.MULTILINE) if front else None
    return found.group(1) if found else ""
