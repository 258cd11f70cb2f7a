"""The bill of materials of a packaged runtime: CycloneDX 1.6 as JSON, by the project's own library."""

from __future__ import annotations

import json
import re
import uuid
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vibeserve.core.documents import digest_of, digest_tree
from vibeserve.core.manifest import Manifest
from vibeserve.errors import RefusedError

if TYPE_CHECKING:
    from cyclonedx.model.component import Component

_PINNED = re.compile(r"([A-Za-z0-9][A-Za-z0-9._-]*)\s*==\s*([^\s;#]+)")


def bill_of_materials(runtime: Path, *, manifest: Manifest, licences: tuple[str, ...]) -> dict[str, Any]:
    """What the lock pins, with the licence that an installed distribution of just that version states, and the origins
    of the runtime's own lines. `licences` are SPDX expressions of the runtime itself. Its serial number follows from
    the content.
    """
    from cyclonedx.model.bom import Bom
    from cyclonedx.model.component import Component, ComponentType
    from cyclonedx.output.json import JsonV1Dot6

    pinned = parse_lock((runtime / "requirements.lock").read_text(encoding="utf-8"))
    digest = digest_of(digest_tree(runtime))
    root = Component(
        name=f"{manifest.target}-runtime", version=manifest.plan_id, type=ComponentType.APPLICATION,
        bom_ref="runtime", licenses=_licences(licences), properties=_origins(manifest),
    )  # fmt: skip
    libraries = [_library(name, version) for name, version in pinned]
    bom = Bom(components=libraries, serial_number=uuid.uuid5(uuid.NAMESPACE_URL, f"urn:vibeserve:{digest}"))
    bom.metadata.component = root
    bom.metadata.timestamp = datetime.fromisoformat(manifest.created_at.replace("Z", "+00:00"))
    bom.register_dependency(root, libraries)
    document: dict[str, Any] = json.loads(JsonV1Dot6(bom).output_as_string())
    return document


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


def stated_licence(name: str, version: str) -> str:
    """SPDX expression that the installed distribution states; empty where it states none, or is of another version."""
    from importlib.metadata import PackageNotFoundError, metadata

    try:
        facts = metadata(name)
    except PackageNotFoundError:
        return ""
    is_this = facts["Version"].split("+")[0] == version.split("+")[0]
    return facts["License-Expression"] if is_this and "License-Expression" in facts else ""


def _library(name: str, version: str) -> Component:
    from cyclonedx.model.component import Component, ComponentType
    from packageurl import PackageURL

    purl = PackageURL(type="pypi", name=name, version=version)
    licence = stated_licence(name, version)
    return Component(
        name=name, version=version, type=ComponentType.LIBRARY, purl=purl, bom_ref=purl.to_string(),
        licenses=_licences((licence,) if licence else ()),
    )  # fmt: skip


def _licences(expressions: tuple[str, ...]) -> list[Any]:
    from cyclonedx.contrib.license.factories import LicenseFactory

    return [LicenseFactory().make_from_string(" AND ".join(expressions))] if expressions else []


def _origins(manifest: Manifest) -> list[Any]:
    from cyclonedx.model import Property

    return [Property(name=f"vibeserve:lines:{each.origin}", value=str(each.lines)) for each in manifest.authorship]
