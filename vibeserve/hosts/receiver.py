"""`python3 -c THIS ROOT`: take files on a host that has nothing of ours yet. Standard library only; sent as text.

stdin: a line of JSON, `{tree digest: {path: [sha256, mode]}}`; then, once the digests that are missing here were told
on stdout as a line of JSON, a tar stream with one member for each of them, named by its digest. Every object is checked
against its name. Trees lie under ROOT/trees/DIGEST, whole or not at all; large files are links to the objects.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import sys
import tarfile
import tempfile
from pathlib import Path

LARGE_BYTES = 1 << 20


def object_path(root: Path, digest: str) -> Path:
    return root / "objects" / digest[:2] / digest


def receive(root: Path, missing: set[str]) -> None:
    with tarfile.open(fileobj=sys.stdin.buffer, mode="r|") as stream:
        for member in stream:
            source = stream.extractfile(member)
            if member.name not in missing or source is None:
                raise SystemExit(f"not asked for: {member.name}")
            target = object_path(root, member.name)
            target.parent.mkdir(parents=True, exist_ok=True)
            handle, name = tempfile.mkstemp(dir=target.parent)
            draft, hasher = Path(name), hashlib.sha256()
            with os.fdopen(handle, "wb") as out:
                while block := source.read(LARGE_BYTES):
                    hasher.update(block)
                    out.write(block)
            if hasher.hexdigest() != member.name:
                draft.unlink()
                raise SystemExit(f"damaged on the way: {member.name}")
            draft.chmod(0o644)
            draft.replace(target)


def place(root: Path, name: str, files: dict[str, tuple[str, int]]) -> None:
    final = root / "trees" / name
    if final.is_dir():
        return
    final.parent.mkdir(parents=True, exist_ok=True)
    draft = Path(tempfile.mkdtemp(dir=final.parent, prefix=".draft-"))
    draft.chmod(0o755)
    for path, (digest, mode) in files.items():
        if Path(path).is_absolute() or ".." in Path(path).parts:
            raise SystemExit(f"leads out of its tree: {path}")
        target, source = draft / path, object_path(root, digest)
        target.parent.mkdir(parents=True, exist_ok=True)
        if mode == 0o644 and source.stat().st_size >= LARGE_BYTES:
            target.hardlink_to(source)
        else:
            shutil.copyfile(source, target)
            target.chmod(mode)
    try:
        draft.rename(final)
    except OSError:
        shutil.rmtree(draft)  # somebody else was first


def say(document: object) -> None:
    sys.stdout.write(json.dumps(document) + "\n")
    sys.stdout.flush()


def main(root_text: str) -> None:
    root = Path(root_text).expanduser().resolve()
    trees = json.loads(sys.stdin.buffer.readline())
    wanted = {digest for files in trees.values() for digest, _ in files.values()}
    missing = sorted(digest for digest in wanted if not object_path(root, digest).is_file())
    say({"root": str(root), "missing": missing})
    if missing:
        receive(root, set(missing))
    for name, files in trees.items():
        place(root, name, files)
    say({"placed": sorted(trees)})


if __name__ == "__main__":
    main(sys.argv[1])
