"""A model that no scaffold implements, declared in a user's repository: seeded, wrapped, certified."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from e2e_project import COMMAND_TIMEOUT_S, Project

pytestmark = [pytest.mark.slow, pytest.mark.timeout(2 * COMMAND_TIMEOUT_S)]

TARGET = """
defaults:
  - override /hardware: cpu
  - override /workload: chat_short
  - override /baseline: scaffold
  - override /budget: smoke
  - override /evaluation: fake_clock
model:
  id: tiny_mamba2
  architecture: mamba2
  max_context_tokens: 512
  source:
    config: {hidden_size: 64, vocab_size: 1024, num_hidden_layers: 2, num_heads: 8, head_dim: 16, state_size: 16,
      n_groups: 2, chunk_size: 32}
goals:
  - {metric: output_throughput, load: c4, min_ratio: 1.1, against: naive}
"""
LINE = "allow_engines: [transformers]\n"


def declare(project: Project, text: str) -> None:
    (project.root / "targets").mkdir(exist_ok=True)
    (project.root / "targets/mine.yaml").write_text(text)


def test_without_the_engine_it_ends_before_anything_is_spent(make_project: Callable[[str], Project]) -> None:
    project = make_project("refused")
    declare(project, TARGET)
    done = project.command("+target=mine")
    assert done.returncode == 2
    assert f"add `{LINE.strip()}` to the target" in done.stderr
    assert not (project.root / ".vibeserve").exists()


def test_with_it_the_wrapped_model_is_certified(make_project: Callable[[str], Project]) -> None:
    project = make_project("wrapped")
    declare(project, TARGET + LINE)
    done = project.command("+target=mine")
    assert done.returncode == 0, done.stdout + done.stderr
    artifact: Path = (project.root / "artifacts/mine/latest").resolve()
    manifest = json.loads((artifact / "manifest.json").read_text())
    assert (manifest["status"], manifest["reasons"], manifest["level"]) == ("certified", [], "quick")
    assert manifest["rounds"][0]["outcome"] == "baseline"
    assert manifest["accuracy"]["top1_agreement"] == 1.0
    origins = {row["origin"] for row in manifest["authorship"]}
    assert origins <= {"scaffold", "component:batched-sampling"}
    assert "import transformers" in (artifact / "runtime/runtime/model.py").read_text()
    assert not (artifact / "runtime/runtime/attention.py").exists()
