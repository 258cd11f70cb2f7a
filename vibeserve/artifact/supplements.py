"""What a packaged runtime carries beside its own files: container file, unit, manifest for Kubernetes, licence, notice,
bill of materials."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from vibeserve.artifact.bill import bill_of_materials
from vibeserve.artifact.deployment import DEPLOY_DIR, PORT, USER_ID, add_deployment
from vibeserve.artifact.notices import add_notices
from vibeserve.core.documents import write_document, write_text_atomic
from vibeserve.core.manifest import Manifest
from vibeserve.errors import RefusedError
from vibeserve.service.launch import fill
from vibeserve.spec import Seed


def add_supplements(runtime: Path, *, manifest: Manifest, threads: int, seed: Seed | None = None) -> None:
    """Add `Dockerfile`, `deploy/`, `LICENSE`, `NOTICE` and `sbom.cdx.json` to the packaged workspace `runtime`.

    Raises `RefusedError` when the workspace lacks a file that a packaged runtime must have.
    """
    missing = [name for name in ("service.yaml", "README.md", "requirements.lock") if not (runtime / name).is_file()]
    if missing:
        raise RefusedError(f"the workspace has no {', '.join(missing)}: a packaged runtime needs each of them")
    licences = add_notices(runtime, manifest=manifest, seed=seed or Seed())
    write_document(runtime / "sbom.cdx.json", bill_of_materials(runtime, manifest=manifest, licences=licences))
    add_deployment(runtime, manifest=manifest, threads=threads)
    # a pinned engine may have one of its own, which knows nothing of the service file
    place = runtime / DEPLOY_DIR if (runtime / "Dockerfile").exists() else runtime
    write_text_atomic(place / "Dockerfile", container_file(runtime, threads=threads))


def container_file(runtime: Path, *, threads: int) -> str:
    """A Dockerfile that installs the lock, builds the workspace and serves a model mounted at /model."""
    import yaml

    service = yaml.safe_load((runtime / "service.yaml").read_text(encoding="utf-8"))
    words = {
        "python": "python",
        "model_dir": "/model",
        "host": "0.0.0.0",
        "port": str(PORT),
        "threads": str(threads),
    }
    build = fill(service.get("build") or [], words)
    compiler = [
        "# Debian drops superseded versions from its mirrors: a pinned compiler could not be had next month",
        "# hadolint ignore=DL3008",
        "RUN apt-get update && apt-get install -y --no-install-recommends g++ && rm -rf /var/lib/apt/lists/*",
    ]
    lines = [
        f"FROM python:{sys.version_info.major}.{sys.version_info.minor}-slim",
        *(compiler if build else []),
        "WORKDIR /srv",
        "COPY requirements.lock .",
        "RUN pip install --no-cache-dir -r requirements.lock",
        "COPY . .",
        *([f"RUN {json.dumps(build)}"] if build else []),
        *[f"ENV {key}={json.dumps(str(value))}" for key, value in sorted((service.get("env") or {}).items())],
        f"RUN useradd --system --no-create-home --uid {USER_ID} runtime",
        f"USER {USER_ID}",
        f"EXPOSE {PORT}",
        'VOLUME ["/model"]',
        f"CMD {json.dumps(fill(service['argv'], words))}",
    ]
    return "\n".join(lines) + "\n"
