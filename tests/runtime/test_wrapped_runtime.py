"""Architectures that the text scaffold does not implement: wrapped, served, and their own tests passed."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from runtime_process import serving

from vibeserve.core.paths import data_dir
from vibeserve.skills import assemble, compose_scaffold, load_skills, resolve, write_scaffold
from vibeserve.spec import Model, ModelSource
from vibeserve.weights import materialise

CONFIGS: dict[str, dict[str, Any]] = {
    "mamba2": {
        "hidden_size": 64, "vocab_size": 1024, "num_hidden_layers": 2, "num_heads": 8, "head_dim": 16, "state_size": 16,
        "n_groups": 2, "chunk_size": 32,
    },
    "qwen3": {
        "hidden_size": 64, "vocab_size": 1024, "intermediate_size": 128, "num_attention_heads": 4, "head_dim": 16,
        "num_key_value_heads": 2, "max_position_embeddings": 512, "num_hidden_layers": 2,
    },
}  # fmt: skip
OWN_TESTS = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests"]


def declared(architecture: str) -> Model:
    return Model(
        id=f"tiny_{architecture}", architecture=architecture, source=ModelSource(config=CONFIGS[architecture])
    )


@cache
def model_dir_of(architecture: str) -> Path:
    return materialise(declared(architecture), cache=Path(tempfile.gettempdir()) / "vibeserve-tests").path


def workspace_of(architecture: str, folder: Path, *components: str) -> Path:
    scaffold = write_scaffold(compose_scaffold(declared(architecture)), folder / "scaffold")
    chosen = resolve(components, load_skills(data_dir("skills")))
    assemble(scaffold, chosen, {}, folder / "workspace")
    return folder / "workspace"


def run_own_tests(workspace: Path, model_dir: Path, *more: str) -> str:
    environment = {**os.environ, "VIBESERVE_MODEL_DIR": str(model_dir), "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run([*OWN_TESTS, *more], cwd=workspace, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-3000:]
    return done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("architecture", CONFIGS)
def test_the_scaffolds_tests_pass_on_the_wrapped_model(architecture: str, tmp_path: Path) -> None:
    run_own_tests(workspace_of(architecture, tmp_path), model_dir_of(architecture))


@pytest.mark.slow
def test_several_sequences_in_a_step_do_not_see_each_other(tmp_path: Path) -> None:
    """With the batching scheduler, although no card proposes it here."""
    workspace = workspace_of("mamba2", tmp_path, "continuous-batching")
    chosen = ("-k", "sequences_in_one_batch or slots_run_out or side_by_side or whole_reply")
    assert "skipped" not in run_own_tests(workspace, model_dir_of("mamba2"), *chosen)


@pytest.mark.slow
def test_served_text_is_the_models_own(tmp_path: Path) -> None:
    import torch
    from transformers import AutoModelForCausalLM

    model_dir = model_dir_of("mamba2")
    with serving(workspace_of("mamba2", tmp_path), model_dir, log=tmp_path / "log") as server:
        body = {"prompt": "Once upon a time", "max_tokens": 32, "temperature": 0, "ignore_eos": True}
        (choice,) = server.post("/v1/completions", {**body, "return_token_ids": True})["choices"]
    model = AutoModelForCausalLM.from_pretrained(model_dir / "f32", dtype=torch.float32).eval()
    ids = list(choice["prompt_token_ids"])
    with torch.inference_mode():
        for _ in range(32):
            ids.append(int(model(input_ids=torch.tensor([ids]), use_cache=False).logits[0, -1].argmax()))
    assert choice["token_ids"] == ids[-32:]


@pytest.mark.slow
def test_a_model_without_a_causal_form_ends_the_process(tmp_path: Path) -> None:
    import json
    import shutil

    model_dir = tmp_path / "model"
    shutil.copytree(model_dir_of("mamba2"), model_dir)
    sizes = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "vocab_size": 1024}
    (model_dir / "bf16/config.json").write_text(json.dumps({"model_type": "vit", **sizes}))
    workspace = workspace_of("mamba2", tmp_path)
    with pytest.raises(AssertionError, match="has no causal language model 'vit'"):
        with serving(workspace, model_dir, log=tmp_path / "log"):
            pass


@pytest.mark.slow
def test_the_wrapped_runtime_is_typed(tmp_path: Path) -> None:
    workspace = workspace_of("mamba2", tmp_path)
    # all of transformers would be read for two names
    settings = tmp_path / "mypy.ini"
    settings.write_text("[mypy]\n[mypy-transformers.*]\nfollow_imports = skip\nignore_missing_imports = True\n")
    options = ["--strict", "--ignore-missing-imports", "--config-file", str(settings), "--cache-dir", str(tmp_path)]
    done = subprocess.run(
        [sys.executable, "-m", "mypy", *options, "runtime"], cwd=workspace, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout
