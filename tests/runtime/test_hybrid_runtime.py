"""OlmoHybrid and Qwen3-Next by our own forward: the logits and the text of transformers."""

from __future__ import annotations

import json
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

SIZES: dict[str, Any] = {
    "hidden_size": 64, "vocab_size": 1024, "intermediate_size": 128, "num_attention_heads": 4, "num_key_value_heads": 2,
    "max_position_embeddings": 512, "num_hidden_layers": 4,
    "layer_types": ["linear_attention", "full_attention", "linear_attention", "linear_attention"],
}  # fmt: skip
CONFIGS: dict[str, tuple[str, dict[str, Any]]] = {
    "olmo": ("olmo_hybrid", SIZES),
    "olmo_rotary": ("olmo_hybrid", {**SIZES, "rope_theta": 10000.0, "linear_allow_neg_eigval": False}),
    "olmo_grouped": ("olmo_hybrid", {**SIZES, "linear_num_key_heads": 2, "linear_num_value_heads": 4}),
    "qwen": (
        "qwen3_next",
        {
            **SIZES, "head_dim": 16, "linear_num_key_heads": 2, "linear_num_value_heads": 4, "linear_key_head_dim": 16,
            "linear_value_head_dim": 16, "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32,
            "shared_expert_intermediate_size": 32, "mlp_only_layers": [2],
        },
    ),
}  # fmt: skip
COMPONENTS = {"scaffold": (), "batched": ("batched-delta-rule", "hybrid-prefix-cache")}
MAX_ERROR = 2e-4
"""of a logit; their standard deviation is about 3. Both sides compute in f32, in another order"""
TEACHER_FORCED = """
import json, sys
import torch
from pathlib import Path
from runtime import weights
from runtime.interfaces import Batch, Segment
from runtime.kv_cache import KVCache
from runtime.model import Model
from runtime.parameters import Parameters

model_dir, job = Path(sys.argv[1]), json.loads(sys.argv[2])
config = weights.load_config(model_dir)
model = Model(config, weights.load_weights(model_dir), parameters=Parameters())
cache = KVCache(config, parameters=Parameters())
slot, rows, start = cache.allocate(len(job["ids"])), [], 0
for num_rows in job["steps"]:
    ids = job["ids"][start : start + num_rows]
    segment = Segment(slot=slot, start_row=0, num_rows=len(ids), start_position=start)
    batch = Batch(token_ids=torch.tensor(ids), positions=torch.arange(start, start + len(ids)), segments=(segment,),
                  logits_rows=tuple(range(len(ids))))
    rows.append(model.forward(batch, cache))
    start += len(ids)
torch.save(torch.cat(rows), sys.argv[3])
"""


def declared(name: str) -> Model:
    architecture, config = CONFIGS[name]
    return Model(id=f"tiny_{name}", architecture=architecture, source=ModelSource(config=config))


@cache
def model_dir_of(name: str) -> Path:
    return materialise(declared(name), cache=Path(tempfile.gettempdir()) / "vibeserve-tests").path


def workspace_of(name: str, folder: Path, *components: str) -> Path:
    scaffold = write_scaffold(compose_scaffold(declared(name)), folder / "scaffold")
    assemble(scaffold, resolve(components, load_skills(data_dir("skills"))), {}, folder / "workspace")
    return folder / "workspace"


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONDONTWRITEBYTECODE": "1", "OMP_NUM_THREADS": "1"}


def logits_of(workspace: Path, model_dir: Path, ids: list[int], steps: list[int], *, out: Path) -> Any:
    """Logits [len(ids), vocabulary] of the workspace's model, taken in steps of so many rows."""
    import torch

    job = json.dumps({"ids": ids, "steps": steps})
    command = [sys.executable, "-c", TEACHER_FORCED, str(model_dir), job, str(out)]
    done = subprocess.run(command, cwd=workspace, env=environment(), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    return torch.load(out, weights_only=True)


def reference_logits(model_dir: Path, ids: list[int]) -> Any:
    import torch
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(model_dir / "f32", dtype=torch.float32).eval()
    with torch.inference_mode():
        return model(input_ids=torch.tensor([ids]), use_cache=False).logits[0]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "components"),
    [("olmo", "scaffold"), ("qwen", "scaffold"), *((name, "batched") for name in CONFIGS)],
)
def test_logits_are_those_of_transformers_at_every_position(name: str, components: str, tmp_path: Path) -> None:
    import random

    ids = random.Random(5).choices(range(10, 1000), k=150)
    model_dir = model_dir_of(name)
    # one prompt beyond a chunk, one piece off every grid, then token by token
    steps = [81, 37, *[1] * 32]
    ours = logits_of(
        workspace_of(name, tmp_path, *COMPONENTS[components]), model_dir, ids, steps, out=tmp_path / "logits"
    )
    theirs = reference_logits(model_dir, ids)
    assert (ours - theirs).abs().max() < MAX_ERROR
    assert ours.argmax(-1).tolist() == theirs.argmax(-1).tolist()
    # the comparison can fail: the same tokens after another first one
    other = reference_logits(model_dir, [ids[1], *ids[1:]])
    assert (ours[100:] - other[100:]).abs().max() > 20 * MAX_ERROR


@pytest.mark.slow
@pytest.mark.parametrize("name", ["qwen"])
def test_the_scaffolds_own_tests_pass(name: str, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests"]
    variables = {**environment(), "VIBESERVE_MODEL_DIR": str(model_dir_of(name))}
    done = subprocess.run(command, cwd=workspace_of(name, tmp_path), env=variables, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-3000:]


@pytest.mark.slow
def test_served_text_is_the_models_own(tmp_path: Path) -> None:
    model_dir = model_dir_of("olmo")
    workspace = workspace_of("olmo", tmp_path, *COMPONENTS["batched"])
    with serving(workspace, model_dir, log=tmp_path / "log") as server:
        body = {"prompt": "Once upon a time", "max_tokens": 32, "temperature": 0, "ignore_eos": True}
        (choice,) = server.post("/v1/completions", {**body, "return_token_ids": True})["choices"]
    prompt, served = choice["prompt_token_ids"], choice["token_ids"]
    rows = reference_logits(model_dir, [*prompt, *served])[len(prompt) - 1 : -1]
    assert rows.argmax(-1).tolist() == served


REFUSED: dict[str, dict[str, Any]] = {
    "model_type 'llama' is not supported; supported: olmo_hybrid, qwen3_next": {"model_type": "llama"},
    "hidden_act 'gelu' is not supported; supported: silu": {"hidden_act": "gelu"},
    "attention_bias is not supported": {"attention_bias": True},
    "layer type 'sliding_attention' is not supported": {"layer_types": ["sliding_attention"]},
    "rope type 'yarn' is not supported; supported: default": {"rope_parameters": {"rope_type": "yarn"}},
    "linear_num_value_heads must be a multiple of linear_num_key_heads": {"linear_num_value_heads": 3},
}
READ_ALL = """
import sys
from pathlib import Path
from runtime import weights
for folder in sys.argv[1:]:
    try:
        weights.load_config(Path(folder))
    except ValueError as error:
        print(error)
"""


@pytest.mark.slow
def test_a_configuration_that_is_not_implemented_is_refused(tmp_path: Path) -> None:
    config = json.loads((model_dir_of("olmo") / "bf16/config.json").read_text())
    for number, changes in enumerate(REFUSED.values()):
        folder = tmp_path / f"{number}" / "bf16"
        folder.mkdir(parents=True)
        (folder / "config.json").write_text(json.dumps({**config, **changes}))
    command = [sys.executable, "-c", READ_ALL, *(str(tmp_path / f"{number}") for number in range(len(REFUSED)))]
    done = subprocess.run(
        command, cwd=workspace_of("olmo", tmp_path), env=environment(), capture_output=True, text=True
    )
    assert done.stdout.splitlines() == [f"config.json: {message}" for message in REFUSED]


@pytest.mark.slow
def test_the_hybrid_runtime_is_typed(tmp_path: Path) -> None:
    workspace = workspace_of("olmo", tmp_path, *COMPONENTS["batched"])
    options = ["--strict", "--ignore-missing-imports", "--config-file=", "--cache-dir", str(tmp_path)]
    done = subprocess.run(
        [sys.executable, "-m", "mypy", *options, "runtime"], cwd=workspace, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout
