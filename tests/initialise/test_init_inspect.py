"""What init reads from a model's own files, and what it refuses."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import pytest
from init_samples import BERT, MAMBA2, MODULES, ModelFolder, pooling_flags

from vibeserve.errors import SpecError
from vibeserve.initialise.inspect_model import Embedding, ModelKind, inspect_folder
from vibeserve.initialise.origin import seeded_origin
from vibeserve.spec import LinearState
from vibeserve.weights.headers import read_headers

LLAMA: dict[str, Any] = {
    "model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 64, "intermediate_size": 128,
    "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 1000,
    "max_position_embeddings": 512,
}  # fmt: skip


def write_safetensors(path: Path, *entries: tuple[str, str, list[int]]) -> None:
    """(name, dtype, shape) each; a header whose data is not there: nobody reads it."""
    sizes = {"F32": 4, "BF16": 2, "I64": 8, "U8": 1}
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    end = 0
    for name, dtype, shape in entries:
        start = end
        count = 1
        for size in shape:
            count *= size
        end += count * sizes[dtype]
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [start, end]}
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text)


def test_a_llama(model_folder: ModelFolder) -> None:
    facts = inspect_folder(model_folder(LLAMA))
    assert (facts.kind, facts.architecture, facts.class_name) == (ModelKind.causal_lm, "llama", "LlamaForCausalLM")
    assert facts.sizes == {
        "num_layers": 2, "hidden_size": 64, "intermediate_size": 128, "num_heads": 4, "num_kv_heads": 2,
        "head_dim": 16, "vocab_size": 1000, "max_context_tokens": 512,
    }  # fmt: skip
    assert facts.weights is None and facts.embedding is None and facts.linear_state == LinearState()


def test_other_names_of_the_same_sizes(model_folder: ModelFolder) -> None:
    sizes = inspect_folder(model_folder({"model_type": "gpt2", "n_layer": 3, "n_embd": 48, "n_head": 4})).sizes
    assert (sizes["num_layers"], sizes["hidden_size"], sizes["num_heads"], sizes["head_dim"]) == (3, 48, 4, 12)


def test_sizes_of_the_text_part(model_folder: ModelFolder) -> None:
    text = {"model_type": "gemma3_text", "num_hidden_layers": 5, "hidden_size": 96}
    config = {"model_type": "gemma3", "architectures": ["Gemma3ForConditionalGeneration"], "text_config": text}
    assert inspect_folder(model_folder(config)).sizes["num_layers"] == 5


def test_state_of_a_mamba2(model_folder: ModelFolder) -> None:
    facts = inspect_folder(model_folder(MAMBA2))
    # the convolution runs over the inner channels (8 heads of 16) and over B and C (one group of 16 each)
    assert facts.linear_state == LinearState(
        num_layers=2, num_key_heads=1, num_value_heads=8, key_head_dim=16, value_head_dim=16, conv_kernel=4,
        conv_channels=8 * 16 + 2 * 16,
    )  # fmt: skip
    assert facts.sizes["num_heads"] == 0 and facts.sizes["head_dim"] == 0


def test_state_of_gated_delta_layers_beside_attention(model_folder: ModelFolder) -> None:
    kinds = ["linear_attention", "linear_attention", "full_attention", "linear_attention"]
    config = {"model_type": "qwen3_next", "num_hidden_layers": 4, "layer_types": kinds}
    facts = inspect_folder(model_folder(config))
    assert facts.linear_state.num_layers == 3 and facts.sizes["num_attention_layers"] == 1


def test_state_of_unknown_shape_is_said(model_folder: ModelFolder) -> None:
    (note,) = inspect_folder(model_folder({"model_type": "falcon_h1"})).notes
    assert note.startswith("the state of its recurrent layers is not known to init")


@pytest.mark.parametrize("mode", ["mean_tokens", "cls_token"])
def test_a_sentence_embedding_model(mode: str, model_folder: ModelFolder) -> None:
    documents = {
        "modules": MODULES, "1_Pooling__config": pooling_flags(mode),
        "sentence_bert_config": {"max_seq_length": 48, "do_lower_case": mode == "cls_token"},
    }  # fmt: skip
    facts = inspect_folder(model_folder(BERT, **documents))
    assert facts.kind is ModelKind.sentence_embedding and facts.class_name == "BertModel"
    pooling = mode.split("_")[0]
    expected = Embedding(pooling=pooling, is_normalised=True, max_tokens=48, is_lowercased=pooling == "cls")
    assert facts.embedding == expected


def test_newer_files_name_the_pooling_in_one_word(model_folder: ModelFolder) -> None:
    folder = model_folder(BERT, modules=MODULES[:2], **{"1_Pooling__config": {"pooling_mode": "mean"}})
    # without a length of its own the model's counts
    assert inspect_folder(folder).embedding == Embedding(pooling="mean", is_normalised=False, max_tokens=64)


def test_licence_and_headers(encoder_folder: Path) -> None:
    facts = inspect_folder(encoder_folder)
    assert facts.licence == "apache-2.0" and facts.has_tokenizer
    assert facts.weights is not None
    assert (facts.weights.dtype, facts.weights.files) == ("float32", ("model.safetensors",))
    assert facts.weights.num_bytes == 4 * facts.weights.num_parameters


def test_headers_of_several_files(tmp_path: Path) -> None:
    write_safetensors(tmp_path / "a.safetensors", ("w", "BF16", [10, 20]), ("ids", "I64", [1, 5]))
    write_safetensors(tmp_path / "b.safetensors", ("v", "F32", [7]))
    header = read_headers(tmp_path)
    assert header is not None
    # position ids are no parameters
    assert (header.num_parameters, header.dtype, header.num_bytes) == (207, "bfloat16", 400 + 40 + 28)


def test_weights_that_are_refused(tmp_path: Path) -> None:
    assert read_headers(tmp_path) is None
    (tmp_path / "pytorch_model.bin").write_bytes(b"x")
    with pytest.raises(SpecError, match=r"weights only as pytorch_model\.bin\n  weights that are pickles are not read"):
        read_headers(tmp_path)
    pointer = tmp_path / "model.safetensors"
    pointer.write_text("version https://git-lfs.github.com/spec/v1\n")
    with pytest.raises(SpecError, match=r"not a safetensors file \(43 bytes\)\nnext: .*Git LFS pointer"):
        read_headers(tmp_path)
    pointer.write_bytes(struct.pack("<Q", 4) + b"{]]}")
    with pytest.raises(SpecError, match="its header is not JSON"):
        read_headers(tmp_path)
    pointer.write_bytes(struct.pack("<Q", 2) + b"[]")
    with pytest.raises(SpecError, match="its header is not a JSON object"):
        read_headers(tmp_path)
    write_safetensors(pointer, ("w", "U8", [100]))
    with pytest.raises(SpecError, match="most weights are U8\n  init reads: F32, BF16, F16"):
        read_headers(tmp_path)


KNOWN = "  init knows: a causal language model in transformers' layout (config.json with ...ForCausalLM)\n"
CUSTOM = "next: vibeserve init NAME --template custom writes the four files as a small example that runs; edit it"

WRONG_CONFIGS: dict[str, tuple[dict[str, Any], str]] = {
    "an encoder without pooling": (BERT, f": BertModel is no model that init can write a target for\n{KNOWN}"),
    "an encoder-decoder": (
        {"model_type": "whisper"}, f": WhisperForCausalLM is no model that init can write a target for\n{KNOWN}"
    ),
    "an unknown architecture": (
        {"model_type": "llamma"}, "config.json: model_type 'llamma' is unknown to transformers "
    ),
    "no architecture": ({"hidden_size": 4}, f"config.json: states no model_type\n{KNOWN}"),
    "a quantised checkpoint": (
        {**LLAMA, "quantization_config": {"bits": 4}},
        "config.json: the checkpoint is quantised (quantization_config)\n  the reference runs in float32",
    ),
    "a size of the wrong type": (
        {**LLAMA, "hidden_size": "big"},
        "config.json: transformers refuses it as a llama configuration\n"
        "  Validation error for field 'hidden_size':\n  TypeError: Field 'hidden_size' expected int, got str",
    ),
    "sizes that do not divide": (
        {**LLAMA, "hidden_size": 66},
        "config.json: transformers refuses it as a llama configuration\n  Class validation error for",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("config", "text"), WRONG_CONFIGS.values(), ids=WRONG_CONFIGS.keys())
def test_configurations_that_are_refused(config: dict[str, Any], text: str, model_folder: ModelFolder) -> None:
    folder = model_folder(config)
    with pytest.raises(SpecError) as raised:
        inspect_folder(folder)
    said = str(raised.value)
    assert said.startswith(str(folder)) and text in said
    assert "\nnext: " in said


def test_a_folder_that_is_no_model(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("x")
    with pytest.raises(SpecError) as raised:
        inspect_folder(tmp_path)
    assert str(raised.value).startswith(
        f"{tmp_path}: no config.json, so not a model folder\n  found: notes.txt\n{KNOWN}"
    )
    assert str(raised.value).endswith(CUSTOM)
    (tmp_path / "config.json").write_text("{,}")
    with pytest.raises(SpecError, match=r"config\.json: not JSON: Expecting property name"):
        inspect_folder(tmp_path)
    (tmp_path / "config.json").write_text("[]")
    with pytest.raises(SpecError, match=r"config\.json: expected a JSON object"):
        inspect_folder(tmp_path)


DENSE = {"idx": 2, "name": "2", "path": "2_Dense", "type": "sentence_transformers.models.Dense"}
WRONG_MODULES: dict[str, tuple[dict[str, Any], str]] = {
    "a module that is not known": (
        {"modules": [*MODULES[:2], DENSE]},
        "modules.json: modules transformer, pooling, sentence_transformers.models.Dense\n"
        "  init knows: transformer, pooling, and normalize behind them\n",
    ),
    "no list": ({"modules": {"a": 1}}, "modules.json: not a list of modules with type and path\n"),
    "no pooling file": ({"modules": MODULES}, "1_Pooling/config.json: no such file; modules.json names it\n"),
    "another pooling": (
        {"modules": MODULES, "1_Pooling__config": {"pooling_mode_max_tokens": True}},
        "1_Pooling/config.json: pooling max_tokens\n  init knows: mean, cls\n",
    ),
    "two poolings": (
        {"modules": MODULES, "1_Pooling__config": {"pooling_mode_mean_tokens": True, "pooling_mode_cls_token": True}},
        "1_Pooling/config.json: pooling mean and cls\n",
    ),
    "a prompt before every text": (
        {
            "modules": MODULES, "1_Pooling__config": pooling_flags("mean_tokens"),
            "config_sentence_transformers": {"default_prompt_name": "query"},
        },
        "config_sentence_transformers.json: default_prompt_name 'query' puts a prompt before every text\n",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("documents", "text"), WRONG_MODULES.values(), ids=WRONG_MODULES.keys())
def test_modules_that_are_refused(documents: dict[str, Any], text: str, model_folder: ModelFolder) -> None:
    with pytest.raises(SpecError) as raised:
        inspect_folder(model_folder(BERT, **documents))
    assert text in str(raised.value) and str(raised.value).endswith(CUSTOM)


def test_sizes_that_do_not_fit_are_told_by_the_options_that_state_them(tmp_path: Path) -> None:
    stated: dict[str, float] = {"hidden_size": 256, "num_hidden_layers": 4}
    with pytest.raises(SpecError) as caught:
        seeded_origin("mamba2", config=stated, scratch=tmp_path)
    lines = str(caught.value).splitlines()
    assert lines[0] == (
        "--architecture mamba2 --config hidden_size=256 num_hidden_layers=4: transformers refuses it as a mamba2 "
        "configuration"
    )
    assert "hidden_size * expand (512) must equal num_heads * head_dim (8192)" in lines[-2]
    assert lines[-1] == "next: state sizes that fit each other, as --config KEY=NUMBER ..."
    # as docs/first-target.md has it
    found = seeded_origin("mamba2", config={**stated, "num_heads": 8, "head_dim": 64}, scratch=tmp_path)
    assert found.facts.architecture == "mamba2"
