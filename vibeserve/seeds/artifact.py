"""An artifact as a seed: the winner's commit in its bundle of checkpoints, and those that it grew from."""

from __future__ import annotations

import json
import tempfile
from dataclasses import dataclass
from pathlib import Path

from vibeserve.checkpoint import CheckpointStore
from vibeserve.errors import RefusedError, SpecError

BUNDLE = "checkpoints.bundle"
KEPT = ("baseline", "accepted")
"""outcomes of rounds whose candidate was the incumbent once"""


@dataclass(frozen=True, kw_only=True)
class CheckpointSeed:
    """One incumbent of the artifact's search. See `port.Seed`."""

    artifact: Path
    commit: str
    number: int
    """of the round that made it"""
    name: str
    """target and plan of the artifact"""

    @property
    def origin(self) -> str:
        return f"seed:{self.name}@{self.commit[:12]}"

    def materialise(self, destination: Path) -> None:
        with tempfile.TemporaryDirectory(prefix="vibeserve-seed-") as folder:
            store = CheckpointStore(Path(folder) / "store.git")
            store.restore(self.artifact / BUNDLE)
            if self.commit not in store.refs().values():
                raise RefusedError(f"{self.artifact / BUNDLE} does not hold {self.commit}, which manifest.json names")
            store.checkout(self.commit, destination)


def artifact_seeds(artifact: Path) -> tuple[CheckpointSeed, ...]:
    """The artifact's incumbents, the last one, which it ships as `runtime/`, first. SpecError where it has none."""
    path = artifact / "manifest.json"
    try:
        manifest = json.loads(path.read_text(encoding="utf-8"))
        name = f"{manifest['target']}/{manifest['plan_id']}"
        kept = [row for row in manifest["rounds"] if row["outcome"] in KEPT and row["commit"]]
        seeds = [
            CheckpointSeed(artifact=artifact, commit=str(row["commit"]), number=int(row["number"]), name=name)
            for row in kept
        ]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise SpecError(
            "the seed is no artifact that can be read", problems=[f"seed.path: {path}: {error}"],
            hint="name a folder such as artifacts/NAME/latest",
        ) from error  # fmt: skip
    if not seeds:
        raise SpecError(
            "the seed holds no runtime", problems=[f"seed.path: no round of {artifact} left a checkpoint"],
            hint="seed=scaffold",
        )  # fmt: skip
    return tuple(reversed(seeds))
