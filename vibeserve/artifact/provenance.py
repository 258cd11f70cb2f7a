"""Provenance in the shape of SLSA v1 (https://slsa.dev/spec/v1.0/provenance): what was built, by what, from what."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

BUILD_TYPE = "urn:vibeserve:build:1"
BUILDER = "urn:vibeserve:builder:local"


def slsa_predicate(
    *,
    target: str,
    overrides: Mapping[str, Any],
    plan_id: str,
    versions: Mapping[str, str],
    materials: Mapping[str, str],
    started_at: str,
    finished_at: str,
) -> dict[str, Any]:
    """The provenance predicate.

    `overrides` is what the user declared, `versions` names the builder's parts, `materials` maps a name (weights,
    skills, framework ...) to its SHA-256. Times are UTC, ISO 8601.
    """
    return {
        "buildDefinition": {
            "buildType": BUILD_TYPE,
            "externalParameters": {"target": target, **overrides},
            "internalParameters": {"plan_id": plan_id},
            "resolvedDependencies": [
                {"name": name, "digest": {"sha256": digest}} for name, digest in sorted(materials.items())
            ],
        },
        "runDetails": {
            "builder": {"id": BUILDER, "version": dict(sorted(versions.items()))},
            "metadata": {"invocationId": plan_id, "startedOn": started_at, "finishedOn": finished_at},
        },
    }
