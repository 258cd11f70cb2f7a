"""LICENSE and NOTICE of a packaged runtime: whose work it is, line by line as the manifest counts, and under which
terms."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

from vibeserve.core.documents import write_text_atomic
from vibeserve.core.manifest import Manifest
from vibeserve.core.paths import data_dir
from vibeserve.errors import InfraError
from vibeserve.seeds.engine import EngineSeed
from vibeserve.seeds.licences import licence_file, licence_of
from vibeserve.spec import Seed

OWN_LICENCE = "Apache-2.0"
"""of this framework, its scaffolds and components"""
LICENCES_DIR = "LICENSES"


def add_notices(runtime: Path, *, manifest: Manifest, seed: Seed) -> tuple[str, ...]:
    """Write `LICENSE` and `NOTICE`; returns the SPDX expressions that hold for the runtime's own files.

    A pinned engine's licence is the runtime's; this framework's is beside it in `LICENSES/`. RefusedError where an
    engine's is not known any more.
    """
    licences: tuple[str, ...] = (OWN_LICENCE,)
    if seed.kind == "git":
        engine = licence_of(runtime, declared=seed.licence, what=EngineSeed(seed).what)
        licences = tuple(dict.fromkeys((engine, OWN_LICENCE)))
        own = licence_file(runtime)
        if own is not None and own.name != "LICENSE":
            shutil.copyfile(own, runtime / "LICENSE")
        write_text_atomic(runtime / LICENCES_DIR / f"{OWN_LICENCE}.txt", licence_text("LICENSE"))
    elif not (runtime / "LICENSE").exists():
        write_text_atomic(runtime / "LICENSE", licence_text("LICENSE"))
    write_text_atomic(runtime / "NOTICE", _notice(runtime, manifest=manifest, seed=seed, licences=licences))
    return licences


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


def _notice(runtime: Path, *, manifest: Manifest, seed: Seed, licences: tuple[str, ...]) -> str:
    earlier = runtime / "NOTICE"
    parts = [
        f"Runtime of target {manifest.target}, plan {manifest.plan_id}\n",
        "Whose work its lines are:\n",
        *(f"  {line}" for line in _origins(manifest, seed=seed, licences=licences)),
        "\nScaffold and components are of VibeServe, whose notice is:\n",
        *(f"  {line}".rstrip() for line in licence_text("NOTICE").splitlines()),
    ]
    if earlier.is_file():
        told = earlier.read_text(encoding="utf-8").splitlines()
        parts += ["\nNotice of what it was made from:\n", *(f"  {line}".rstrip() for line in told)]
    return "\n".join(parts) + "\n"


def _origins(manifest: Manifest, *, seed: Seed, licences: tuple[str, ...]) -> Iterator[str]:
    rows = [row for row in manifest.authorship if row.lines]
    width = max((len(row.origin) for row in rows), default=0)
    for row in rows:
        yield f"{row.origin:<{width}}  {row.lines:>6} lines  {_terms(row.origin, seed=seed, licences=licences)}"
    if not rows:
        yield "unknown: no line was counted"


def _terms(origin: str, *, seed: Seed, licences: tuple[str, ...]) -> str:
    if origin == "scaffold" or origin.startswith("component:") or origin == "tuning":
        return f"VibeServe, {OWN_LICENCE}"
    if origin.startswith("seed:") and seed.kind == "git":
        return f"{seed.url} at {seed.commit}, {licences[0]}; its text is LICENSE"
    if origin.startswith("seed:"):
        return f"given by whoever ran the search, {seed.licence or 'no licence stated'}"
    if origin.startswith("agent:"):
        return "written in the search by that model for whoever ran it, who decides about its terms"
    return "written by whoever ran the search, who decides about its terms"
