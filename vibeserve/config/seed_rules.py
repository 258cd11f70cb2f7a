"""What each kind of seed needs, and where its folders are."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from vibeserve.config.targets import project_root
from vibeserve.core.engines import ENGINES
from vibeserve.spec import Seed, SeedSearch, Spec

NEEDS = {"artifact": ("path",), "path": ("path",), "git": ("url", "commit")}
FIELDS = {
    "scaffold": (),
    "artifact": ("path", "search"),
    "path": ("path", "licence"),
    "git": ("url", "commit", "overlay", "engine", "licence"),
}
"""fields that a kind reads"""
WHOLE_COMMIT = re.compile(r"[0-9a-f]{40}([0-9a-f]{24})?")


def seed_problems(seed: Seed) -> Iterator[str]:
    """One line for every rule that `seed` breaks, each starting with the key. An unknown kind is another rule's."""
    if seed.kind not in FIELDS:
        return
    for name in NEEDS.get(seed.kind, ()):
        if not getattr(seed, name):
            yield f"seed.{name}: needed when seed.kind is {seed.kind}"
    for name in ("path", "url", "commit", "overlay", "engine", "licence"):
        if getattr(seed, name) and name not in FIELDS[seed.kind]:
            yield f"seed.{name}: a seed of kind {seed.kind} would ignore it"
    if seed.search is SeedSearch.if_refused and seed.kind != "artifact":
        yield f"seed.search: if_refused is for seed.kind artifact, not {seed.kind}"
    if seed.engine and seed.engine not in ENGINES:
        yield f"seed.engine: '{seed.engine}' is no engine that a runtime would have to be allowed; leave it empty"
    if seed.kind == "git" and seed.commit and not WHOLE_COMMIT.fullmatch(seed.commit):
        yield (
            f"seed.commit: '{seed.commit}' is no whole commit id (40 or 64 hex digits); a branch, a tag or a short id "
            "may mean something else tomorrow: git rev-parse NAME"
        )


def missing_seed(spec: Spec) -> Iterator[str]:
    """`key: what` where a declared folder of the seed is not there. Its paths are absolute (`resolve_seed`)."""
    for name in ("path", "overlay"):
        value = getattr(spec.seed, name)
        if value and name in FIELDS.get(spec.seed.kind, ()) and not Path(value).is_dir():
            yield f"seed.{name}: there is no folder {value}"


def resolve_seed(spec: Spec) -> None:
    """Make the paths of `seed` absolute, links such as an artifact's `latest` followed: it moves once this run ends."""
    for name in ("path", "overlay"):
        value = getattr(spec.seed, name)
        if value:
            setattr(spec.seed, name, str(_found(spec, Path(value).expanduser())))


def _found(spec: Spec, path: Path) -> Path:
    start = spec.target.folder_of(str(path))
    places = [start / path] if start is not None else []
    places += [Path.cwd() / path, project_root() / path]
    return next((place for place in places if place.exists()), places[-1]).resolve()
