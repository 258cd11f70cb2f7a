"""Candidates as git commits outside the workspace: git's plumbing on a store that the workspace cannot reach.

Blobs are hashed without filters and written back byte for byte, so attributes, ignore files, hooks and configuration
that a candidate plants have no effect. Identity and dates are fixed: the same tree, parent and message give the same
commit.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from vibeserve.core.storage import said_storage
from vibeserve.errors import InfraError, RefusedError, StorageError

IGNORED = ("build", "__pycache__", ".pytest_cache")
"""Names that are never part of a checkpoint, at any depth"""

REF_ROOT = "refs/vibeserve/"
_EXECUTABLE = 0o100
_SETTINGS = (
    "core.hooksPath=/dev/null", "core.attributesFile=/dev/null", "core.excludesFile=/dev/null", "core.autocrlf=false",
    "core.fsmonitor=false", "core.quotePath=false", "core.fsync=loose-object,reference", "gc.auto=0", "pack.threads=1",
)  # fmt: skip


class CheckpointStore:
    """Store of checkpoints in the bare repository `git_dir`, created when it is first written."""

    def __init__(self, git_dir: Path) -> None:
        self.git_dir = git_dir

    def commit(self, workspace: Path, *, parent: str | None, message: str, ref: str) -> str:
        """Snapshot `workspace` and point `ref` (`<run>/<candidate>`) at it; returns the commit's id.

        Raises `RefusedError` for what a tree cannot hold honestly: a repository inside the workspace, a link, a device.
        """
        full_ref = self._full_ref(ref)
        self._initialise()
        files = list_files(workspace)
        blobs = self._hash_files(workspace, files)
        entries = "".join(
            f"{_mode(workspace / name)} {blob}\t{name}\0" for name, blob in zip(files, blobs, strict=True)
        )
        with tempfile.TemporaryDirectory(dir=self.git_dir) as scratch:
            index = {"GIT_INDEX_FILE": str(Path(scratch) / "index")}
            self._git("update-index", "--add", "-z", "--index-info", data=entries.encode(), env=index)
            tree = self._git("write-tree", env=index).decode().strip()
        parents = ["-p", parent] if parent else []
        sha = self._git("commit-tree", tree, *parents, data=message.encode()).decode().strip()
        self._git("update-ref", full_ref, sha)
        return sha

    def checkout(self, sha: str, destination: Path) -> None:
        """Write the files of commit `sha` into `destination`, which must be empty or absent.

        RefusedError for a tree that this store did not make: names that lead out of it, links.
        """
        if destination.exists() and any(destination.iterdir()):
            raise InfraError(f"checkpoint {sha[:12]} cannot be written: {destination} is not empty")
        destination.mkdir(parents=True, exist_ok=True)
        entries = [_tree_entry(line) for line in self._git("ls-tree", "-r", "-z", sha).decode().split("\0") if line]
        _refuse_foreign(entries, sha=sha)
        content = self._git("cat-file", "--batch", data="".join(f"{blob}\n" for _, blob, _ in entries).encode())
        offset = 0
        for mode, _, name in entries:
            header_end = content.index(b"\n", offset) + 1
            size = int(content[offset:header_end].split()[2])
            path = destination / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content[header_end : header_end + size])
            path.chmod(0o755 if mode == "100755" else 0o644)
            offset = header_end + size + 1

    def diff(self, a: str | None, b: str) -> str:
        """Patch from commit `a` (None: from nothing) to commit `b`; `git apply` takes it."""
        base = a or self._git("hash-object", "-t", "tree", "/dev/null").decode().strip()
        options = ("--no-color", "--no-ext-diff", "--no-textconv", "--no-renames", "--full-index", "--binary")
        return self._git("diff", *options, base, b).decode(errors="replace")

    def format_patches(self, base: str, tip: str, folder: Path) -> list[Path]:
        """A mail for every commit behind `base` up to `tip`, as `git am` takes them: numbered files in `folder`."""
        options = ("--no-signature", "--full-index", "--binary", "--no-renames", "--no-color", "--quiet")
        self._git("format-patch", *options, "-o", str(folder.resolve()), f"{base}..{tip}")
        return sorted(folder.glob("*.patch"))

    def refs(self, run: str = "") -> dict[str, str]:
        """`<run>/<candidate>` -> commit, of one run or of all."""
        if not self._exists():
            return {}
        lines = self._git("for-each-ref", "--format=%(refname) %(objectname)", REF_ROOT + run).decode().splitlines()
        pairs = (line.split(" ") for line in lines)
        return {name.removeprefix(REF_ROOT): sha for name, sha in pairs}

    def bundle(self, path: Path, *, run: str = "") -> None:
        """Write every checkpoint (of one run) into a git bundle at `path`; `git fetch` reads it anywhere."""
        names = [REF_ROOT + name for name in self.refs(run)]
        if not names:
            raise InfraError(f"no checkpoint to bundle in {self.git_dir}" + (f" for run '{run}'" if run else ""))
        path.parent.mkdir(parents=True, exist_ok=True)
        self._git("bundle", "create", "--quiet", str(path.resolve()), *names)

    def restore(self, bundle: Path) -> None:
        """Take in every checkpoint of a bundle that `bundle` wrote. InfraError when it is none."""
        self._initialise()
        every = f"{REF_ROOT}*:{REF_ROOT}*"
        self._git("fetch", "--quiet", "--no-tags", str(bundle.resolve()), every)

    def _exists(self) -> bool:
        return (self.git_dir / "HEAD").is_file()

    def _initialise(self) -> None:
        if not self._exists():
            self.git_dir.mkdir(parents=True, exist_ok=True)
            self._git("init", "--quiet", "--bare", "--template=", "--initial-branch=none")

    def _hash_files(self, workspace: Path, files: Sequence[str]) -> list[str]:
        if not files:
            raise RefusedError(f"workspace {workspace} holds no file: there is nothing to keep")
        paths = "".join(f"{(workspace / name).resolve()}\n" for name in files).encode()
        return self._git("hash-object", "-w", "--no-filters", "--stdin-paths", data=paths).decode().split()

    def _full_ref(self, ref: str) -> str:
        full_ref = ref if ref.startswith(REF_ROOT) else REF_ROOT + ref
        parts = full_ref.removeprefix(REF_ROOT).split("/")
        if len(parts) != 2 or not all(_is_ref_part(part) for part in parts):
            raise ValueError(f"ref '{ref}' is not <run>/<candidate> in letters, digits, '.', '_' and '-'")
        return full_ref

    def _git(self, *arguments: str, data: bytes = b"", env: dict[str, str] | None = None) -> bytes:
        settings = [word for setting in _SETTINGS for word in ("-c", setting)]
        argv = ["git", *settings, *arguments]
        try:
            done = subprocess.run(
                argv, input=data, capture_output=True, env=self._environment() | (env or {}), check=False,
                process_group=0,  # Ctrl-C in the terminal is for the controller
            )  # fmt: skip
        except FileNotFoundError:
            raise InfraError("git was not found; checkpoints need it\nnext: install git") from None
        if done.returncode != 0:
            said = done.stderr.decode(errors="replace").strip()
            kind = StorageError if said_storage(said) else InfraError
            raise kind(f"git {arguments[0]} failed in {self.git_dir}: {said}")
        return done.stdout

    def _environment(self) -> dict[str, str]:
        """Nothing of the user's git reaches the store, so commits are the same for everyone."""
        identity = {"NAME": "vibeserve", "EMAIL": "vibeserve@localhost", "DATE": "1700000000 +0000"}
        roles = {f"GIT_{role}_{key}": value for role in ("AUTHOR", "COMMITTER") for key, value in identity.items()}
        return roles | {
            "PATH": os.environ.get("PATH", os.defpath), "HOME": str(self.git_dir), "LC_ALL": "C",
            "GIT_DIR": str(self.git_dir.resolve()), "GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_GLOBAL": "/dev/null",
            "GIT_TERMINAL_PROMPT": "0",
        }  # fmt: skip


def _refuse_foreign(entries: Sequence[tuple[str, str, str]], *, sha: str) -> None:
    """A restored bundle may be anybody's, and git does not check the trees of one."""
    for mode, _, name in entries:
        parts = name.split("/")
        if mode not in ("100644", "100755") or {"", ".", "..", ".git"} & set(parts):
            raise RefusedError(f"checkpoint {sha[:12]} holds '{name}' (mode {mode}), which is no file of a workspace")


def list_files(workspace: Path) -> list[str]:
    """Relative posix paths of every file that a checkpoint of `workspace` holds, sorted.

    A `.git` at the top (an agent's own) is left out; anything else that is not a plain file raises `RefusedError`.
    """
    files: list[str] = []
    for folder, folders, names in os.walk(workspace):
        here = Path(folder)
        is_top = here == workspace
        folders[:] = sorted(name for name in folders if name not in IGNORED and not (is_top and name == ".git"))
        for name in [*folders, *names]:
            if name in IGNORED or (is_top and name == ".git"):
                continue
            _refuse_odd(here / name, workspace)
        files += [(here / name).relative_to(workspace).as_posix() for name in names if not (is_top and name == ".git")]
    return sorted(files)


def _refuse_odd(path: Path, workspace: Path) -> None:
    name = path.relative_to(workspace).as_posix()
    if path.name == ".git":
        raise RefusedError(f"{name} is a repository inside the workspace: its files would be lost\nnext: remove {name}")
    if path.is_symlink():
        raise RefusedError(f"{name} is a symbolic link to {path.readlink()}: a checkpoint holds plain files only")
    if not path.is_file() and not path.is_dir():
        raise RefusedError(f"{name} is neither a file nor a folder: a checkpoint holds plain files only")
    if "\n" in name:
        raise RefusedError(f"{name!r} has a line break in its name")


def _mode(path: Path) -> str:
    return "100755" if path.stat().st_mode & _EXECUTABLE else "100644"


def _tree_entry(line: str) -> tuple[str, str, str]:
    facts, name = line.split("\t", 1)
    mode, _, blob = facts.split(" ")
    return mode, blob, name


def _is_ref_part(part: str) -> bool:
    return (
        bool(part)
        and part.isascii()
        and part.replace("-", "").replace("_", "").replace(".", "").isalnum()
        and (not part.startswith((".", "-")) and not part.endswith((".", ".lock")) and ".." not in part)
    )
