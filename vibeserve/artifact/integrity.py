"""The byte level of `verify`: is every file the one that was packaged? Reads and hashes, starts nothing."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from vibeserve.artifact.sums import SIGNATURE_NAME, SUMS_NAME, UNLISTED, SumsError, artifact_files, parse_sums
from vibeserve.core.documents import digest_file, digest_of, digest_tree
from vibeserve.core.nouns import Refusal

DIGESTED_FOLDERS = ("runtime", "rounds", "golden", "contract", "recording", "patches")
DIGESTED_FILES = ("spec.yaml", "plan.json", "journal.jsonl", "checkpoints.bundle")
_CRLF = (
    f"{SUMS_NAME} has line ends of Windows (CRLF): a transfer rewrote the artifact's text files (git with "
    "core.autocrlf, FTP in text mode, an editor), so that no digest fits; next: transfer it again as it is, such as in "
    "a tar file, or with `* -text` in .gitattributes"
)
_RUNTIME_LEFTOVERS = ("__pycache__", "build", ".pytest_cache")


def verify_bytes(artifact: Path, *, expect: str | None = None) -> list[Refusal]:
    """Every way in which the artifact differs from what was packaged; empty when it does not.

    `expect` is the SHA-256 of `SHA256SUMS` as its origin published it: without it a rewritten list passes.
    """
    sums_path = artifact / SUMS_NAME
    if sums_path.is_symlink() or not sums_path.is_file():
        return [_refusal(SUMS_NAME, f"{SUMS_NAME} is missing: nothing vouches for the other files")]
    refusals: list[Refusal] = []
    if (artifact / SIGNATURE_NAME).is_symlink():
        refusals.append(_refusal(SIGNATURE_NAME, f"{SIGNATURE_NAME} is a symbolic link, not a plain file"))
    found = digest_file(sums_path)
    if expect is not None and found != expect.lower().removeprefix("sha256:"):
        digests = f"digest {found}, expected {expect.lower().removeprefix('sha256:')}"
        text = f"{SUMS_NAME} has {digests}: this is not the artifact that its origin published"
        refusals.append(replace(_refusal(SUMS_NAME, text), reason_class="other_origin"))
    if b"\r" in sums_path.read_bytes():
        return [*refusals, _refusal(SUMS_NAME, _CRLF)]
    try:
        sums = parse_sums(sums_path.read_text(encoding="utf-8"))
    except (SumsError, UnicodeDecodeError) as error:
        return [*refusals, _refusal(SUMS_NAME, f"{SUMS_NAME} is malformed: {error}")]
    present = set(artifact_files(artifact)).difference(UNLISTED)
    for name in sorted(sums.keys() | present):
        text = _fault(artifact, name, recorded=sums.get(name), is_present=name in present)
        if text:
            refusals.append(_refusal(name, text))
    if not refusals:
        refusals += [_refusal(name, text) for name, text in _own_faults(artifact)]
    if "manifest.json" not in sums:
        refusals.append(
            _refusal("manifest.json", f"manifest.json is not listed in {SUMS_NAME}: its claims have no cover")
        )
    return refusals


def packaged_digests(root: Path) -> dict[str, str]:
    """Digest by name of an artifact's folders and documents, as its manifest keeps them."""
    folders = {
        name: digest_of(digest_tree(root / name, ignore=())) for name in DIGESTED_FOLDERS if (root / name).is_dir()
    }
    return folders | {name: digest_file(root / name) for name in DIGESTED_FILES if (root / name).is_file()}


def _own_faults(artifact: Path) -> Iterator[tuple[str, str]]:
    """Where the manifest contradicts the files beside it: a list of sums that was written again does not hide that."""
    try:
        document = json.loads((artifact / "manifest.json").read_text(encoding="utf-8"))
        recorded = document["digests"]
    except (OSError, ValueError, KeyError, TypeError):
        return  # what is no manifest is refused where it is read
    found = packaged_digests(artifact)
    for name in (*DIGESTED_FOLDERS, *DIGESTED_FILES):
        if isinstance(recorded, dict) and name in recorded and recorded[name] != found.get(name):
            digests = f"recorded {recorded[name]}, found {found.get(name, 'nothing')}"
            yield name, f"{name} is not what manifest.json says: one of them was changed after packaging ({digests})"


def _fault(artifact: Path, name: str, *, recorded: str | None, is_present: bool) -> str:
    path = artifact / name
    if not is_present:
        return f"{name} is missing"
    if path.is_symlink():
        return f"{name} is a symbolic link to {path.readlink()}: an artifact holds plain files only"
    if not path.is_file():
        return f"{name} is not a plain file"
    if recorded is None:
        return _extra_text(name)
    found = digest_file(path)
    return "" if found == recorded else _changed_text(name, recorded=recorded, found=found)


def _extra_text(name: str) -> str:
    parts = Path(name).parts
    if parts[0] == "runtime" and any(part in _RUNTIME_LEFTOVERS for part in parts):
        return f"{name} is not part of the artifact: running the runtime in place leaves such files; delete them"
    return f"{name} is not part of the artifact: {SUMS_NAME} does not list it"


def _changed_text(name: str, *, recorded: str, found: str) -> str:
    digests = f"recorded sha256 {recorded}, found {found}"
    if name == "manifest.json":
        return f"manifest.json does not match {SUMS_NAME}: its claims were edited after packaging ({digests})"
    if name.startswith("runtime/"):
        return f"{name} was changed: this is not the runtime that was certified ({digests})"
    if name.startswith("golden/"):
        return f"{name} does not hold the recorded golden data: requests, outputs or distances were altered ({digests})"
    if name.startswith("contract/"):
        return f"{name} was changed: these are not the rules that the runtime was certified by ({digests})"
    if name.startswith("rounds/") or name == "journal.jsonl":
        return f"{name} was changed: the record of the search is not the one that was packaged ({digests})"
    return f"{name} was changed after packaging ({digests})"


def _refusal(file: str, text: str) -> Refusal:
    return Refusal(gate="integrity", reason_class="digest_mismatch", text=text, file=file)
