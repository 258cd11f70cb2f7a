"""The real command on what is there already: an artifact whose model changed, and an engine at a pinned commit."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from e2e_project import Project
from engine_repository import git, make_engine

pytestmark = [pytest.mark.audit, pytest.mark.timeout(1200)]


def manifest_of(project: Project, artifact: str) -> dict[str, Any]:
    document: dict[str, Any] = json.loads((project.root / artifact / "manifest.json").read_text())
    return document


def test_a_changed_model_is_certified_with_the_old_runtime_and_no_agent_is_asked(
    finished: Project, make_project: Callable[[str], Project]
) -> None:
    project = make_project("upgraded")
    old = project.root / "artifacts/tiny_cpu" / finished.artifact.name
    shutil.copytree(finished.artifact, old)
    done = project.command("upgrade", str(old), "model.source.seed=1", "--json")
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert (document["outcome"], document["agent_calls"], document["rounds"]) == ("reused", 0, 0)
    assert [change["name"] for change in document["changes"]] == ["model.source.seed", "inputs.model"]
    assert "changed     model.source.seed: 0 -> 1" in done.stderr
    new = manifest_of(project, document["result"]["artifact"])
    before = json.loads((old / "manifest.json").read_text())
    assert new["status"] == "certified" and new["plan_id"] == document["plan_after"] != before["plan_id"]
    lines = {row["origin"]: row["lines"] for row in before["authorship"]}
    assert {row["origin"]: row["lines"] for row in new["authorship"]} == lines, "whose lines they are has not changed"
    assert [entry["outcome"] for entry in new["rounds"]] == ["baseline"]
    again = project.command("verify", document["result"]["artifact"], "--level", "bytes")
    assert again.returncode == 0, again.stdout


def test_a_pinned_engine_ends_certified_with_a_patch_series_that_applies(
    make_project: Callable[[str], Project], tmp_path: Path
) -> None:
    engine, commit, overlay = make_engine(tmp_path)
    project = make_project("engine")
    words = ["seed=git", f"seed.url={engine}", f"seed.commit={commit}", f"seed.overlay={overlay}"]
    done = project.command("+target=tiny_cpu", *words)
    assert done.returncode == 0, done.stdout + done.stderr
    manifest = project.manifest()
    assert manifest["status"] == "certified"
    headline = next(metric for metric in manifest["metrics"] if metric["role"] == "headline")
    rows = {row["name"]: row for row in headline["baselines"]}
    assert rows["seed"]["class"] == "competent" and rows["seed"]["version"] == commit[:12]
    assert rows["seed"]["ci_low"] is not None, "the pinned engine was interleaved with the winner"
    assert [row["origin"] for row in manifest["authorship"]] == [f"seed:engine@{commit[:12]}"]
    runtime = project.artifact / "runtime"
    assert f"{engine} at {commit}, MIT; its text is LICENSE" in (runtime / "NOTICE").read_text()
    series = json.loads((project.artifact / "patches/series.json").read_text())
    assert len(series["patches"]) == 1 and series["commit"] == commit
    git(engine, "am", "--quiet", "--keep-cr", *(str(project.artifact / "patches" / each) for each in series["patches"]))
    assert git(engine, "rev-parse", "HEAD^{tree}") == series["tree"]
    for name in git(engine, "ls-files").splitlines():
        if name != "LICENSE":
            assert (runtime / name).read_bytes() == (engine / name).read_bytes(), name
