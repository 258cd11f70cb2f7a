"""What comes of a pinned engine: a series of patches upon its commit, one for what the target added and one for every
accepted round. `git am` takes it, and it was tried before it is shipped."""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from vibeserve.checkpoint import CheckpointStore
from vibeserve.core.documents import write_document
from vibeserve.core.nouns import Outcome
from vibeserve.errors import InfraError
from vibeserve.seeds.engine import EngineSeed
from vibeserve.spec import Seed
from vibeserve.synthesis import Entry

SERIES_NAME = "series.json"
RUN = "series"
AM_TIMEOUT_S = 600.0


@dataclass(frozen=True, kw_only=True)
class Series:
    """Document `patches/series.json`."""

    url: str
    commit: str
    """what the patches go upon"""
    patches: tuple[str, ...]
    """file names, in order; empty where the engine is certified as it is"""
    tree: str
    """git's id of the tree that they lead to: that of `runtime/` without what packaging adds"""
    apply: str = "git checkout COMMIT && git am --keep-cr patches/*.patch"
    schema_version: int = 1


def write_series(seed: Seed, entries: Sequence[Entry], *, store: CheckpointStore, folder: Path) -> Series:
    """Write the series of a run's kept candidates (`store` has their trees) into the new `folder`.

    InfraError where `git am` does not lead from the pinned commit to the winner's tree: then it is no deliverable.
    """
    folder.mkdir(parents=True)
    engine = EngineSeed(seed)
    with tempfile.TemporaryDirectory(prefix="vibeserve-series-") as scratch:
        chain = CheckpointStore(Path(scratch) / "chain.git")
        _git("clone", "--quiet", "--bare", "--template=", str(engine.repository().git_dir), str(chain.git_dir))
        tip = seed.commit
        for number, (message, commit) in enumerate(_kept(entries, what=engine.what)):
            tree = Path(scratch) / f"tree-{number}"
            store.checkout(commit, tree)
            if chain.diff(tip, made := chain.commit(tree, parent=tip, message=message, ref=f"{RUN}/p{number}")):
                tip = made
        names = tuple(path.name for path in chain.format_patches(seed.commit, tip, folder))
        wanted = _git("-C", str(chain.git_dir), "rev-parse", f"{tip}^{{tree}}").strip()
        found = _applied(chain.git_dir, seed.commit, folder, names, Path(scratch) / "applied")
    if found != wanted:
        text = f"the patch series leads to tree {found}, the winner's is {wanted}"
        raise InfraError(f"{text}\nnext: report this as a bug")
    series = Series(url=seed.url, commit=seed.commit, patches=names, tree=wanted)
    write_document(folder / SERIES_NAME, series)
    return series


def _kept(entries: Sequence[Entry], *, what: str) -> Iterator[tuple[str, str]]:
    """(message, commit) of round 0 and of every accepted round."""
    for entry in entries:
        record = entry.record
        if record.candidate is None or record.outcome not in (Outcome.BASELINE, Outcome.ACCEPTED):
            continue
        if record.proposal is None:
            yield f"Serve by a service file\n\nWhat the target adds to {what}.\n", record.candidate.commit
            continue
        headline = record.decision.headline if record.decision else None
        ratio = "" if headline is None else f"\n\nSteered the search by x{headline.ratio:.3f}; not a certified number."
        body = f"{record.proposal.hypothesis}\n\n{record.proposal.mechanism}{ratio}"
        yield f"{' '.join(record.proposal.title.split())}\n\n{body}\n", record.candidate.commit


def _applied(repository: Path, commit: str, folder: Path, names: Sequence[str], work: Path) -> str:
    """The tree that `git am` makes of `commit`, as somebody does it who was given the patches."""
    _git("clone", "--quiet", "--no-checkout", "--template=", str(repository), str(work))
    _git("-C", str(work), "checkout", "--quiet", "--detach", commit)
    if names:
        _git("-C", str(work), "am", "--quiet", "--keep-cr", *(str((folder / name).resolve()) for name in names))
    return _git("-C", str(work), "rev-parse", "HEAD^{tree}").strip()


def _git(*arguments: str) -> str:
    """Nothing of the user's git reaches it."""
    environment = {
        "PATH": os.environ.get("PATH", os.defpath), "HOME": tempfile.gettempdir(), "LC_ALL": "C",
        "GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_GLOBAL": os.devnull, "GIT_TERMINAL_PROMPT": "0",
        **{f"GIT_COMMITTER_{key}": "vibeserve@localhost" for key in ("NAME", "EMAIL")},
    }  # fmt: skip
    argv = ["git", "-c", "core.hooksPath=/dev/null", "-c", "core.autocrlf=false", *arguments]
    done = subprocess.run(
        argv, capture_output=True, text=True, errors="replace", check=False, env=environment, timeout=AM_TIMEOUT_S,
        process_group=0,
    )  # fmt: skip
    if done.returncode != 0:
        raise InfraError(f"git {' '.join(arguments[:3])} failed: {(done.stderr or done.stdout).strip()}")
    return done.stdout
