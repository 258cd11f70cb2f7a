"""What an agent changed, kept so that it can be made again without it: changed files whole, and their digests."""

from __future__ import annotations

import errno
import json
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from vibeserve.agents.hygiene.changes import changed_files
from vibeserve.agents.hygiene.files import read_below, remove_below, remove_tree, write_below
from vibeserve.agents.hygiene.rules import shown
from vibeserve.core.documents import BUILD_OUTPUT, CACHES, digest_of, digest_tree, read_document, write_document
from vibeserve.core.nouns import Refusal
from vibeserve.errors import RefusedError

DOCUMENT, FILES = "edits.json", "files"
GATE = "workspace"
MODES = {True: "0755", False: "0644"}
"""by executable bit: what a checkpoint keeps of a mode"""


@dataclass(frozen=True, kw_only=True)
class EditedFile:
    """A file that is new or other than before; its content lies below `files/`."""

    name: str
    sha256: str
    mode: str
    """0644 or 0755"""


@dataclass(frozen=True, kw_only=True)
class Edits:
    """Document `edits.json`: from one tree to another."""

    base_digest: str
    """`digest_of(digest_tree(...))` of the tree that was edited"""
    result_digest: str
    """the same of what came of it"""
    files: tuple[EditedFile, ...] = ()
    deleted: tuple[str, ...] = ()
    schema_version: int = 1


def record_edits(before: Path, after: Path, folder: Path) -> Edits:
    """Write what leads from the tree `before` to the tree `after` into `folder`, which is there whole or not at all.

    An earlier recording there is replaced. RefusedError for a changed file that is no plain file, or whose name no
    document can hold.
    """
    changes = changed_files(before, after)
    draft = folder.with_name(f".{folder.name}.draft")
    remove_tree(draft)
    (draft / FILES).mkdir(parents=True)
    files = []
    for name in (*changes.added, *changes.changed):
        if not name.isprintable():
            raise _refused(name, "bad_name", "it has a character in its name that cannot be printed")
        if (after / name).is_symlink():
            raise _refused(name, "link", "it is a symbolic link; edits hold plain files")
        data, is_executable = read_below(after, name)
        write_below(draft / FILES, name, data, is_executable=is_executable)
        files.append(EditedFile(name=name, sha256=sha256(data).hexdigest(), mode=MODES[is_executable]))
    edits = Edits(
        base_digest=digest_of(digest_tree(before)), result_digest=digest_of(digest_tree(after)),
        files=tuple(sorted(files, key=lambda file: file.name)), deleted=changes.deleted,
    )  # fmt: skip
    write_document(draft / DOCUMENT, edits)
    remove_tree(folder)
    draft.rename(folder)
    return edits


def read_edits(folder: Path) -> Edits:
    """The document of a recording. RefusedError where it is none."""
    from dacite import DaciteError

    path = folder / DOCUMENT
    try:
        return read_document(path, Edits)
    except (OSError, json.JSONDecodeError, UnicodeDecodeError, DaciteError, TypeError) as error:
        raise RefusedError(f"{path}: no recorded edits: {error}") from None


def apply_edits(folder: Path, workspace: Path) -> Edits:
    """Make the edits that `record_edits` wrote into `folder` in `workspace`, which holds the tree they began from.

    RefusedError with the file named, and nothing changed, where a file does not match its digest, a name leads
    elsewhere, or the workspace holds another tree; also where the result's digest is another, which ends half-way.
    """
    edits = read_edits(folder)
    has_build = (workspace / "service.yaml").exists() or any(file.name == "service.yaml" for file in edits.files)
    for name in (*(file.name for file in edits.files), *edits.deleted):
        _refuse_name(name, has_build=has_build)
    contents = [_content(folder, file) for file in edits.files]
    _refuse_unlisted(folder, (file.name for file in edits.files))
    if digest_of(digest_tree(workspace)) != edits.base_digest:
        text = f"{workspace} is not the tree that was edited: the edits in {folder} do not apply to it"
        raise _refused("", "digest_mismatch", text)
    for name in edits.deleted:
        with _named(name):
            remove_below(workspace, name)
    for file, data in zip(edits.files, contents, strict=True):
        with _named(file.name):
            if not (workspace / file.name).is_symlink() and (workspace / file.name).is_dir():
                # caches or nothing is in it, or the tree's digest were another
                remove_tree(workspace / file.name)
            write_below(workspace, file.name, data, is_executable=file.mode == MODES[True])
    if digest_of(digest_tree(workspace)) != edits.result_digest:
        text = f"the edits in {folder}, made in {workspace}, give another tree than was recorded"
        raise _refused("", "digest_mismatch", text)
    return edits


def _content(folder: Path, file: EditedFile) -> bytes:
    if file.mode not in MODES.values():
        raise _refused(file.name, "bad_mode", f"mode '{file.mode}' is not valid; valid: {', '.join(MODES.values())}")
    with _named(file.name):
        data, _ = read_below(folder / FILES, file.name)
    if sha256(data).hexdigest() != file.sha256:
        raise _refused(file.name, "digest_mismatch", "its recorded content does not match its digest")
    return data


def _refuse_name(name: str, *, has_build: bool) -> None:
    """A name that leads out of the tree, or to where no digest looks."""
    parts = name.split("/")
    is_output = has_build and parts[0] == BUILD_OUTPUT
    is_hidden = is_output or any(part in CACHES or part.lower() == ".git" for part in parts)
    if is_hidden or {"", ".", ".."} & set(parts) or not name.isprintable():
        raise _refused(name, "bad_name", "no name of a file that edits may hold")


def _refuse_unlisted(folder: Path, names: Iterable[str]) -> None:
    unlisted = sorted(set(digest_tree(folder / FILES, ignore=())) - set(names))
    if unlisted:
        raise _refused(unlisted[0], "unlisted_file", f"it lies in {folder / FILES} and {DOCUMENT} does not list it")


@contextmanager
def _named(name: str) -> Iterator[None]:
    """What a file is in the way of becomes a refusal of that file; a full disk stays what it is."""
    try:
        yield
    except OSError as error:
        if error.errno not in (errno.ENOENT, errno.ELOOP, errno.ENOTDIR, errno.EISDIR, errno.EACCES):
            raise
        raise _refused(name, "unreadable", f"it cannot be read or replaced: {error.strerror or error}") from None


def _refused(name: str, reason_class: str, text: str) -> RefusedError:
    told = f"recorded edits: {shown(name)}: {text}" if name else text
    reason = Refusal(gate=GATE, reason_class=reason_class, text=told, file=shown(name) if name else None)
    return RefusedError(told, reasons=[reason])
