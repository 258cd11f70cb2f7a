"""Whole next-token distributions of real assemblies beside the f32 reference: KL and NLL on a fixed text.

The bounds come from the noise of an admissible precision of the same model (`limits_from_noise`): what computes on the
stored bf16 weights may be as far off as bf16 arithmetic, what stores 8 bits as 8 bits.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from functools import lru_cache
from pathlib import Path
from typing import Any

import pytest

from vibeserve.accuracy.distributions import compare_distributions, distribution_problems, limits_from_noise

NUM_TOKENS = 96
TEXT = [3 + (37 * place + 11 * (place // 7)) % 900 for place in range(NUM_TOKENS + 1)]
SERVE = """
import json, sys
import torch
from runtime import weights
from runtime.interfaces import Batch, Segment
from runtime.kv_cache import KVCache
from runtime.model import Model
from runtime.parameters import Parameters

model_dir, out, text, is_damaged = sys.argv[1], sys.argv[2], json.loads(sys.argv[3]), sys.argv[4] == "damaged"
from pathlib import Path
config, tensors = weights.load_config(Path(model_dir)), weights.load_weights(Path(model_dir))
if is_damaged:
    for name, tensor in tensors.items():
        if tensor.dim() == 2 and "layers" in name:
            blocks = tensor.float().reshape(-1, 32)
            scale = blocks.abs().amax(-1, keepdim=True) / 7
            tensors[name] = ((blocks / scale).round() * scale).view_as(tensor).to(tensor.dtype)
model, cache = Model(config, tensors, parameters=Parameters()), KVCache(config, parameters=Parameters())
slot, rows = cache.allocate(len(text)), []
# a prompt of several rows, then token by token: both ways through the kernels
for start, num in [(0, 64), *((place, 1) for place in range(64, len(text)))]:
    batch = Batch(
        token_ids=torch.tensor(text[start : start + num]), positions=torch.arange(start, start + num),
        segments=(Segment(slot=slot, start_row=0, num_rows=num, start_position=start),),
        logits_rows=tuple(range(num)),
    )
    rows.append(model.forward(batch, cache).clone())
torch.save(torch.cat(rows), out)
"""
ASSEMBLIES = {
    "scaffold": ((), "bf16"),
    "native": (("batched-sampling", "continuous-batching", "native-forward"), "bf16"),
    "packed": (("chunked-prefill", "packed-linears"), "bf16"),
    "int8": (("continuous-batching", "int8-groupwise-linears", "native-forward"), "int8_group32"),
    "device": (("cuda-decoder",), "bf16"),
    "graphs and pages": (("cuda-graph-decode", "cuda-paged-kv"), "bf16"),
}
"""name -> components, and the plant whose noise is allowed"""


def served_logits(workspace: Path, model_dir: Path, out: Path, *, damaged: bool = False) -> Any:
    import torch

    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1", "OMP_NUM_THREADS": "1"}
    words = [str(model_dir), str(out), json.dumps(TEXT[:-1]), "damaged" if damaged else ""]
    done = subprocess.run(
        [sys.executable, "-c", SERVE, *words], cwd=workspace, env=environment, capture_output=True, text=True,
        timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    return torch.load(out, weights_only=True)


@lru_cache(maxsize=1)
def reference_and_noise(model_dir: Path) -> tuple[Any, dict[str, dict[str, float]]]:
    """Logits of the f32 reference, and figures of the admissible precisions beside them."""
    import torch
    from transformers import AutoModelForCausalLM

    from vibeserve.modalities.text.faults_planted import planted, plants

    model = AutoModelForCausalLM.from_pretrained(model_dir / "f32", dtype=torch.float32).eval()
    ids = torch.tensor([TEXT[:-1]])
    noise = {}
    with torch.inference_mode():
        right = model(input_ids=ids).logits[0]
    for plant in plants(num_layers=2, has_packed_q4_1=False):
        if plant.name in ("bf16", "int8_group32"):
            with planted(model, plant, seed=0), torch.inference_mode():
                noise[plant.name] = compare_distributions(right, model(input_ids=ids).logits[0], TEXT[1:])
    return right, noise


@pytest.mark.parametrize(("names", "precision"), ASSEMBLIES.values(), ids=ASSEMBLIES.keys())
def test_an_assembly_has_the_references_distributions(
    built_workspace, tiny_model_dir: Path, tmp_path: Path, names: tuple[str, ...], precision: str
) -> None:
    right, noise = reference_and_noise(tiny_model_dir)
    logits = served_logits(built_workspace(*names), tiny_model_dir, tmp_path / "logits.pt")
    figures = compare_distributions(right, logits, TEXT[1:])
    assert list(distribution_problems(figures, limits=limits_from_noise(noise[precision]))) == [], figures


def test_four_symmetric_bits_are_refused_by_the_same_bounds(
    built_workspace, tiny_model_dir: Path, tmp_path: Path
) -> None:
    right, noise = reference_and_noise(tiny_model_dir)
    logits = served_logits(built_workspace(), tiny_model_dir, tmp_path / "logits.pt", damaged=True)
    figures = compare_distributions(right, logits, TEXT[1:])
    problems = list(distribution_problems(figures, limits=limits_from_noise(noise["int8_group32"])))
    assert [problem.split(" ")[0] for problem in problems][:2] == ["kl_mean", "kl_p99"], figures
