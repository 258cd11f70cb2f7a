"""One run of the product in a process of its own, and what it left."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from vibeserve.artifact.manifest import read_manifest
from vibeserve.core.manifest import Manifest

FOLDER = "artifacts/ablation"
CERTIFIED = "certified"
MAX_TAIL_LINES = 4


@dataclass(frozen=True, kw_only=True)
class Finished:
    """A run that ended. `manifest` is None where it left no certified artifact, and `why` says why."""

    artifact: Path
    manifest: Manifest | None
    components: tuple[str, ...] = ()
    """of the winner, in the order of its assembly"""
    why: str = ""


def build(target: str, overrides: Sequence[str], *, arm: str, project: Path) -> Finished:
    """Build `target` with `overrides`; its artifacts lie below a folder of the arm's own, so that the target's `latest`
    stays what it was. A run that was interrupted goes on, a finished one is read."""
    out = f"{FOLDER}/{re.sub('[^a-z0-9]+', '-', arm.lower())}"
    argv = [sys.executable, "-m", "vibeserve.cli.main", f"+target={target}", *overrides, f"out_dir={out}", "--json"]
    done = subprocess.run(argv, cwd=project, stdout=subprocess.PIPE, text=True, check=False)
    artifact = _artifact_of(done.stdout, project=project) or project / out / target / "latest"
    manifest = read_manifest(artifact) if done.returncode == 0 and (artifact / "manifest.json").is_file() else None
    if manifest is None or manifest.status != CERTIFIED:
        return Finished(artifact=artifact, manifest=None, why=_why(done.stdout, done.returncode))
    return Finished(artifact=artifact, manifest=manifest, components=_components(artifact))


def _artifact_of(output: str, *, project: Path) -> Path | None:
    """Where the last line of `--json` says that the artifact is."""
    for document in _documents(output):
        if document.get("kind") == "result" and document.get("artifact"):
            return project / str(document["artifact"])
    return None


def _documents(output: str) -> Iterator[dict[str, object]]:
    """JSON objects among the lines, the last one first."""
    for line in reversed(output.splitlines()):
        if line.startswith("{"):
            document = json.loads(line)
            yield document


def _why(output: str, returncode: int) -> str:
    for document in _documents(output):
        error = document.get("error")
        if isinstance(error, dict):
            return f"exit {returncode}: {' '.join(str(error.get('message', '')).split())[:300]}"
    tail = " | ".join(output.splitlines()[-MAX_TAIL_LINES:])
    return f"exit {returncode}: {tail[-300:]}"


def _components(artifact: Path) -> tuple[str, ...]:
    path = artifact / "runtime" / "runtime" / "assembly.json"
    if not path.is_file():
        return ()
    return tuple(str(row["name"]) for row in json.loads(path.read_text(encoding="utf-8"))["components"])
