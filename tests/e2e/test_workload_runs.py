"""Workloads beyond chat through the real command: round 0, certification and the artifact, on two random layers."""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
from e2e_project import COMMAND_TIMEOUT_S, Project

pytestmark = [pytest.mark.slow, pytest.mark.timeout(2 * COMMAND_TIMEOUT_S)]

HEAD = """\
defaults:
  - override /model: tiny_llama
  - override /hardware: cpu
  - override /workload: {group}
  - override /baseline: scaffold
  - override /budget: smoke
  - override /evaluation: fake_clock
budget: {{rounds: 0}}
goals:
  - {{metric: request_throughput, min_ratio: 0.1, against: naive}}
"""

PREFIX = """\
workload:
  shared_prefix_tokens: 128
  num_prefixes: 2
  prompt_tokens_min: 16
  prompt_tokens_max: 24
  output_tokens_min: 8
  output_tokens_max: 16
  loads: {o128: {output_tokens: 12}}
"""
EDIT = """\
workload:
  {prompt_tokens_min: 96, prompt_tokens_max: 200, output_tokens_min: 8, output_tokens_max: 16, predictions_ahead: 8}
"""
TRACE = """\
workload: {trace: traffic.jsonl, prompt_tokens_max: 64, output_tokens_max: 16}
"""


@pytest.fixture(scope="module")
def project(make_project: Callable[[str], Project]) -> Project:
    made = make_project("workloads")
    targets = made.root / "targets"
    targets.mkdir()
    (targets / "myprefix.yaml").write_text(HEAD.format(group="shared_prefix") + PREFIX)
    (targets / "myedit.yaml").write_text(HEAD.format(group="code_edit_predicted") + EDIT)
    (targets / "mytrace.yaml").write_text(HEAD.format(group="trace") + TRACE)
    rows = [
        {"arrival_s": 0.25 * number, "prompt_tokens": 16 + number, "output_tokens": 4 + number % 8}
        for number in range(40)
    ]
    rows[7] = {"arrival_s": 1.75, "prompt": "What does a with statement do when its body raises?", "output_tokens": 9}
    (targets / "traffic.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return made


def run(project: Project, name: str) -> list[dict[str, Any]]:
    """Build the target; the requests of its certified replies, in order."""
    done = project.command(f"+target={name}")
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"certified   {name}" in done.stdout
    artifact = project.root / "artifacts" / name / "latest"
    lines = (artifact / "golden" / "replies.jsonl").read_text().splitlines()
    return [json.loads(line)["request"] for line in lines]


def test_shared_prefixes_are_served_and_certified(project: Project) -> None:
    requests = run(project, "myprefix")
    assert len(requests) > 8
    assert len({request["prompt"][:100] for request in requests}) == 2
    assert len({request["prompt"] for request in requests}) == len(requests)
    assert {request["max_tokens"] for request in requests} == {12}, "the load fixes the output's length"


def test_predicted_code_edits_are_served_and_certified(project: Project) -> None:
    requests = run(project, "myedit")
    assert len(requests) > 4
    assert all(request["prompt"].endswith("\nThe edited file:\n\n") for request in requests)
    # headline load `edits`: clients predict the reference's answer, edited
    predictions = [request["payload"]["prediction"]["content"] for request in requests]
    assert len(set(predictions)) > 0.9 * len(requests), "two random layers may answer two prompts alike"
    audits = json.loads((project.root / "artifacts/myedit/latest/manifest.json").read_text())["audits"]
    assert [audit["passed"] for audit in audits if audit["name"] == "predicted_outputs"] == [True]


def test_a_trace_is_replayed_at_its_own_arrivals_and_shipped(project: Project) -> None:
    requests = run(project, "mytrace")
    assert len(requests) > 8
    arrivals = [request["arrival_s"] for request in requests]
    gaps = {round(later - earlier, 3) for earlier, later in pairwise(arrivals)}
    assert gaps == {0.25}, "four requests a second, in their order"
    artifact = project.root / "artifacts" / "mytrace" / "latest"
    assert (artifact / "traffic" / "traffic.jsonl").read_bytes() == (
        project.root / "targets" / "traffic.jsonl"
    ).read_bytes()
    verified = project.command("verify", str(artifact), "--level", "bytes")
    assert verified.returncode == 0, verified.stdout + verified.stderr


def test_what_does_not_run_yet_is_refused_before_anything_is_written(project: Project) -> None:
    done = project.command("+target=janus_cpu", "model=janus_pro_1b")
    assert done.returncode == 2
    assert "cannot be fetched from the hub yet: no published checkpoint has been read" in done.stderr
    assert not (project.root / "artifacts" / "janus_cpu").exists()
