"""What a packaged runtime carries beside its own files: container file, licence, notice, bill of materials."""

from __future__ import annotations

import json
import re
import sys
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from vibeserve.core.documents import digest_of, digest_tree, write_document, write_text_atomic
from vibeserve.core.manifest import Manifest
from vibeserve.core.paths import data_dir
from vibeserve.errors import InfraError, RefusedError

CONTAINER_PORT = 8000
_PINNED = re.compile(r"([A-Za-z0-9][A-Za-z0-9._-]*)\s*==\s*([^\s;#]+)")


def add_supplements(runtime: Path, *, manifest: Manifest, threads: int) -> None:
    """Add `Dockerfile`, `LICENSE`, `NOTICE` and `sbom.cdx.json` to the packaged workspace `runtime`.

    Raises `RefusedError` when the workspace lacks a file that a packaged runtime must have.
    """
    missing = [name for name in ("service.yaml", "README.md", "requirements.lock") if not (runtime / name).is_file()]
    if missing:
        raise RefusedError(f"the workspace has no {', '.join(missing)}: a packaged runtime needs each of them")
    sbom = bill_of_materials(runtime, manifest=manifest)
    write_document(runtime / "sbom.cdx.json", sbom)
    if not (runtime / "Dockerfile").exists():
        write_text_atomic(runtime / "Dockerfile", container_file(runtime, threads=threads))
    for name in ("LICENSE", "NOTICE"):
        if not (runtime / name).exists():
            write_text_atomic(runtime / name, licence_text(name))


def container_file(runtime: Path, *, threads: int) -> str:
    """A Dockerfile that installs the lock, builds the workspace and serves a model mounted at /model."""
    import yaml

    service = yaml.safe_load((runtime / "service.yaml").read_text(encoding="utf-8"))
    words = {
        "python": "python",
        "model_dir": "/model",
        "host": "0.0.0.0",
        "port": str(CONTAINER_PORT),
        "threads": str(threads),
    }
    build = _fill(service.get("build") or [], words)
    compiler = ["RUN apt-get update && apt-get install -y --no-install-recommends g++ && rm -rf /var/lib/apt/lists/*"]
    lines = [
        f"FROM python:{sys.version_info.major}.{sys.version_info.minor}-slim",
        *(compiler if build else []),
        "WORKDIR /srv",
        "COPY requirements.lock .",
        "RUN pip install --no-cache-dir -r requirements.lock",
        "COPY . .",
        *([f"RUN {json.dumps(build)}"] if build else []),
        *[f"ENV {key}={json.dumps(str(value))}" for key, value in sorted((service.get("env") or {}).items())],
        "RUN useradd --system --no-create-home runtime",
        "USER runtime",
        f"EXPOSE {CONTAINER_PORT}",
        'VOLUME ["/model"]',
        f"CMD {json.dumps(_fill(service['argv'], words))}",
    ]
    return "\n".join(lines) + "\n"


def licence_text(name: str) -> str:
    """`LICENSE` or `NOTICE` of this installation: beside the package in a checkout, in its metadata when installed."""
    from importlib.metadata import PackageNotFoundError, distribution

    beside = data_dir("templates").parent / name
    if beside.is_file():
        return beside.read_text(encoding="utf-8")
    try:
        text = distribution("vibeserve").read_text(f"licenses/{name}")
    except PackageNotFoundError:
        text = None
    if text is None:
        raise InfraError(
            f"this installation lacks its {name}; a packaged runtime must carry it\nnext: reinstall vibeserve"
        )
    return text


def bill_of_materials(runtime: Path, *, manifest: Manifest) -> dict[str, Any]:
    """CycloneDX 1.6 of what the lock pins. Its serial number follows from the runtime's content."""
    pinned = parse_lock((runtime / "requirements.lock").read_text(encoding="utf-8"))
    digest = digest_of(digest_tree(runtime))
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, 'urn:vibeserve:' + digest)}",
        "version": 1,
        "metadata": {
            "timestamp": manifest.created_at,
            "component": {
                "type": "application", "bom-ref": "runtime", "name": f"{manifest.target}-runtime",
                "version": manifest.plan_id, "licenses": [{"license": {"id": "Apache-2.0"}}],
            },
        },
        "components": [_component(name, version) for name, version in pinned],
        "dependencies": [{"ref": "runtime", "dependsOn": [_purl(name, version) for name, version in pinned]}],
    }  # fmt: skip


def parse_lock(text: str) -> list[tuple[str, str]]:
    """(name, version) of each `name==version` line, sorted by normalised name. Another kind of line is refused."""
    pinned: list[tuple[str, str]] = []
    for number, line in enumerate(text.splitlines(), start=1):
        requirement = line.split("#", 1)[0].strip()
        if not requirement or requirement.startswith("--"):
            continue
        match = _PINNED.match(requirement)
        if match is None:
            raise RefusedError(f"requirements.lock line {number}: '{requirement}' is not pinned as name==version")
        pinned.append((re.sub(r"[-_.]+", "-", match.group(1)).lower(), match.group(2)))
    return sorted(pinned)


def _component(name: str, version: str) -> dict[str, str]:
    return {
        "type": "library",
        "bom-ref": _purl(name, version),
        "name": name,
        "version": version,
        "purl": _purl(name, version),
    }


def _purl(name: str, version: str) -> str:
    return f"pkg:pypi/{name}@{version.replace('+', '%2B')}"


def _fill(argv: Sequence[str], words: dict[str, str]) -> list[str]:
    filled = list(argv)
    for key, value in words.items():
        filled = [word.replace("{" + key + "}", value) for word in filled]
    return filled
