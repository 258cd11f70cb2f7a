"""The journal's record of what a manifest says: digests by field, written when the artifact is packaged."""

from __future__ import annotations

from typing import Any

from vibeserve.core.documents import digest_of, finite_data, to_data
from vibeserve.core.manifest import Manifest

CLAIMED = "claimed"
"""kind of the journal's event"""
PACKAGED_NAMES = (
    "runtime", "rounds", "golden", "contract", "recording", "spec.yaml", "plan.json", "journal.jsonl",
    "checkpoints.bundle",
)  # fmt: skip
"""digests that packaging adds after the record was written"""


def claimed_fields(manifest: Manifest) -> dict[str, str]:
    """Digest of every field of the manifest, of `digests` those that packaging does not make."""
    fields: dict[str, Any] = to_data(manifest)
    fields["digests"] = {name: value for name, value in fields["digests"].items() if name not in PACKAGED_NAMES}
    return {name: digest_of(finite_data(value)) for name, value in fields.items()}
