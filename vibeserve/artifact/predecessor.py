"""The runtime that the packaged one replaced, out of the artifact's own checkpoints."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from vibeserve.core.manifest import Manifest
from vibeserve.core.nouns import Outcome

if TYPE_CHECKING:
    from vibeserve.reverification import Predecessor

BUNDLE = "checkpoints.bundle"


def check_out_predecessor(artifact: Path, manifest: Manifest, *, destination: Path) -> Predecessor | None:
    """The incumbent before the last accepted round, checked out into `destination`; None where no round was accepted.

    InfraError where the bundle does not hold the commit that the manifest names.
    """
    from vibeserve.checkpoint import CheckpointStore
    from vibeserve.reverification import Predecessor

    kept = [entry for entry in manifest.rounds if entry.outcome in (Outcome.BASELINE, Outcome.ACCEPTED)]
    if len(kept) < 2 or not kept[-2].commit:
        return None
    before, winner = kept[-2:]
    with tempfile.TemporaryDirectory() as folder:
        store = CheckpointStore(Path(folder) / "store.git")
        store.restore(artifact / BUNDLE)
        store.checkout(before.commit, destination)
    return Predecessor(
        workspace=destination, commit=before.commit, round_number=before.number, recorded=winner.headline
    )
