"""The shell steps of the job files in `docs/ci/`, as the CI would run them."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "docs" / "ci"


@dataclass(frozen=True, kw_only=True)
class Job:
    """One job: its steps that install something, and the one that verifies."""

    name: str
    environment: dict[str, str]
    installs: tuple[str, ...]
    script: str

    def run(self, folder: Path, *, tree: Path = ROOT, **more: str) -> subprocess.CompletedProcess[str]:
        """The verifying step in `folder`, in the shell that both CIs use, with `vibeserve` out of `tree`."""
        shims = folder / ".shims"
        shims.mkdir(exist_ok=True)
        (shims / "vibeserve").write_text(f'#!/bin/sh\nexec {sys.executable} -m vibeserve.cli.main "$@"\n')
        (shims / "vibeserve").chmod(0o755)
        (folder / ".step.sh").write_text(self.script + "\n")
        environment = {
            **os.environ, "PYTHONPATH": str(tree), "PATH": f"{shims}:{os.environ['PATH']}", **self.environment,
            "GITHUB_STEP_SUMMARY": str(folder / "verify.md"), **more,
        }  # fmt: skip
        argv = ["bash", "--noprofile", "--norc", "-eo", "pipefail", ".step.sh"]
        return subprocess.run(argv, cwd=folder, env=environment, capture_output=True, text=True, check=False)


def github_jobs() -> dict[str, Job]:
    document: dict[str, Any] = yaml.safe_load((FOLDER / "github.yml").read_text(encoding="utf-8"))
    return {name: _github_job(name, job, environment=document["env"]) for name, job in document["jobs"].items()}


def gitlab_jobs() -> dict[str, Job]:
    document: dict[str, Any] = yaml.safe_load((FOLDER / "gitlab.yml").read_text(encoding="utf-8"))
    return {
        name: Job(
            name=name, environment=document["variables"], installs=tuple(document[job["extends"]]["before_script"]),
            script="\n".join(job["script"]),
        )
        for name, job in document.items() if isinstance(job, dict) and "script" in job
    }  # fmt: skip


def _github_job(name: str, job: dict[str, Any], *, environment: dict[str, str]) -> Job:
    steps = {step["id"]: step["run"] for step in job["steps"] if "run" in step}
    return Job(name=name, environment=environment, installs=(steps.pop("install"),), script="\n".join(steps.values()))
