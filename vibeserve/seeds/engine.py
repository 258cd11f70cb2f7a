"""A git repository at a pinned commit as a seed: somebody's engine, with what a target's folder adds to it."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

from vibeserve import spec
from vibeserve.checkpoint import IGNORED, CheckpointStore
from vibeserve.core.documents import digest_of
from vibeserve.core.paths import cache_dir
from vibeserve.errors import InfraError, RefusedError
from vibeserve.seeds.folder import copy_workspace, refuse_incomplete
from vibeserve.seeds.licences import licence_of

PROTOCOLS = "file:git:http:https:ssh"
CLONE_TIMEOUT_S = 1800.0


class EngineSeed:
    """The commit's files, those of the overlay over them. See `port.Seed`."""

    def __init__(self, declared: spec.Seed) -> None:
        self._declared = declared
        self.origin = f"seed:{repository_name(declared.url)}@{declared.commit[:12]}"

    @property
    def what(self) -> str:
        return f"{self._declared.url} at {self._declared.commit[:12]}"

    def repository(self) -> CheckpointStore:
        """The clone that holds the pinned commit; not to be written to."""
        return fetch(self._declared.url, commit=self._declared.commit)

    def materialise(self, destination: Path) -> None:
        """RefusedError for a working tree with changes that no commit holds, a commit that is not there, a licence that
        nobody states, and what is no runtime; InfraError where the repository cannot be had."""
        declared = self._declared
        refuse_dirty(declared.url)
        store = self.repository()
        store.checkout(declared.commit, destination)
        _refuse_reserved(destination, what=self.what)
        if declared.overlay:
            _lay_over(Path(declared.overlay), destination)
        licence_of(destination, declared=declared.licence, what=self.what)
        refuse_incomplete(destination, what=self.what)


def repository_name(url: str) -> str:
    """Last part of the address, without `.git`."""
    return re.split(r"[/:]", url.rstrip("/"))[-1].removesuffix(".git") or "repository"


def refuse_dirty(url: str) -> None:
    """RefusedError for a working tree on this machine with changes that no commit holds, which would be left out."""
    folder = Path(url.removeprefix("file://")).expanduser()
    if not (folder / ".git").exists():
        return
    changed = _git("-C", str(folder), "status", "--porcelain", "--untracked-files=no").splitlines()
    if changed:
        raise RefusedError(
            f"{folder} has changes that no commit holds ({len(changed)} files, such as {changed[0][3:]})\n"
            "next: commit or stash them, and name the commit in seed.commit"
        )


def fetch(url: str, *, commit: str) -> CheckpointStore:
    """A bare clone in the cache that holds `commit`. RefusedError where the repository has no such commit."""
    store = cache_dir() / "seeds" / f"{digest_of(url)[:24]}.git"
    if not (store / "HEAD").is_file():
        draft = store.with_name(f".{store.name}.{os.getpid()}")
        shutil.rmtree(draft, ignore_errors=True)
        draft.parent.mkdir(parents=True, exist_ok=True)
        _git("clone", "--quiet", "--bare", "--template=", "--", url, str(draft))
        if not store.exists():
            draft.rename(store)
        shutil.rmtree(draft, ignore_errors=True)
    if not _has(store, commit):
        _git("-C", str(store), "fetch", "--quiet", "--", url, "+refs/*:refs/*")
    if not _has(store, commit):
        raise RefusedError(f"{url} has no commit {commit}\nnext: git ls-remote {url}, and correct seed.commit")
    return CheckpointStore(store)


def _has(store: Path, commit: str) -> bool:
    done = subprocess.run(
        ["git", "-C", str(store), "cat-file", "-e", f"{commit}^{{commit}}"], capture_output=True, check=False,
        process_group=0,
    )  # fmt: skip
    return done.returncode == 0


def _refuse_reserved(folder: Path, *, what: str) -> None:
    """RefusedError for names that no checkpoint keeps: they would be lost, and the patch series would delete them."""
    found = sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.name in IGNORED)
    if found:
        text = f"{what} holds {', '.join(found[:3])}: {', '.join(IGNORED)} are names of what a build leaves"
        raise RefusedError(f"{text}\nnext: rename them upstream, or pin a fork without them")


def _lay_over(overlay: Path, destination: Path) -> None:
    draft = destination.with_name(f".{destination.name}.overlay")
    shutil.rmtree(draft, ignore_errors=True)
    copy_workspace(overlay, draft)
    shutil.copytree(draft, destination, dirs_exist_ok=True)
    shutil.rmtree(draft)


def _git(*arguments: str) -> str:
    """The user's own git, so that their ways to a private repository work; it asks nobody anything."""
    environment = {**os.environ, "GIT_TERMINAL_PROMPT": "0", "GIT_ALLOW_PROTOCOL": PROTOCOLS, "LC_ALL": "C"}
    argv = ["git", "-c", "core.hooksPath=/dev/null", *arguments]
    try:
        done = subprocess.run(
            argv, capture_output=True, text=True, errors="replace", check=False, env=environment,
            timeout=CLONE_TIMEOUT_S, process_group=0,
        )  # fmt: skip
    except FileNotFoundError:
        raise InfraError("git was not found; a seed of kind git needs it\nnext: install git") from None
    except subprocess.TimeoutExpired:
        raise InfraError(f"git {arguments[0]} did not end in {CLONE_TIMEOUT_S:g} s: {' '.join(argv[-2:])}") from None
    if done.returncode != 0:
        raise InfraError(f"git {' '.join(arguments[:2])} failed: {done.stderr.strip()}\nnext: check seed.url")
    return done.stdout
