"""Checkpoints: the same commit everywhere, byte-exact, out of the candidate's reach."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from vibeserve.checkpoint import CheckpointStore, list_files
from vibeserve.core.documents import digest_tree
from vibeserve.errors import InfraError, RefusedError


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    root = tmp_path / "ws"
    (root / "runtime").mkdir(parents=True)
    (root / "service.yaml").write_text("argv: []\n")
    (root / "runtime" / "model with space.py").write_text("HIDDEN = 64\n")
    (root / "runtime" / "grammar.bin").write_bytes(bytes(range(256)))
    (root / "run.sh").write_text("#!/bin/sh\n")
    (root / "run.sh").chmod(0o755)
    return root


def test_the_same_tree_gives_the_same_commit_in_another_store(workspace: Path, tmp_path: Path) -> None:
    shas = []
    for name in ("a.git", "b.git"):
        store = CheckpointStore(tmp_path / name)
        first = store.commit(workspace, parent=None, message="round 0", ref="run-1/r0")
        shas.append((first, store.commit(workspace, parent=first, message="round 1", ref="run-1/r1")))
    assert shas[0] == shas[1]


def test_users_git_settings_have_no_effect(workspace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = CheckpointStore(tmp_path / "a.git").commit(workspace, parent=None, message="m", ref="r/c")
    home = tmp_path / "home"
    home.mkdir()
    (home / ".gitconfig").write_text(
        "[core]\n\tautocrlf = true\n[commit]\n\tgpgsign = true\n[user]\n\tname = someone\n"
    )
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("GIT_AUTHOR_NAME", "someone")
    monkeypatch.setenv("GIT_INDEX_FILE", str(tmp_path / "elsewhere"))
    assert CheckpointStore(tmp_path / "b.git").commit(workspace, parent=None, message="m", ref="r/c") == plain


def test_checkout_gives_back_every_byte_whatever_attributes_say(workspace: Path, tmp_path: Path) -> None:
    (workspace / ".gitattributes").write_text("* text=auto eol=crlf ident export-ignore\n")
    (workspace / ".gitignore").write_text("*\n")
    (workspace / "crlf.txt").write_bytes(b"a\r\nb\n$Id$\n")
    store = CheckpointStore(tmp_path / "store.git")
    sha = store.commit(workspace, parent=None, message="m", ref="r/c")
    store.checkout(sha, tmp_path / "out")
    assert digest_tree(tmp_path / "out") == digest_tree(workspace)
    assert os.access(tmp_path / "out" / "run.sh", os.X_OK)
    with pytest.raises(InfraError, match="is not empty"):
        store.checkout(sha, tmp_path / "out")


def test_build_outputs_and_caches_are_left_out(workspace: Path) -> None:
    before = list_files(workspace)
    for name in ("build/kernel.so", "runtime/__pycache__/model.pyc", ".pytest_cache/x", ".git/config"):
        (workspace / name).parent.mkdir(parents=True, exist_ok=True)
        (workspace / name).write_text("x")
    assert list_files(workspace) == before


def test_refs_stand_under_their_run(workspace: Path, tmp_path: Path) -> None:
    store = CheckpointStore(tmp_path / "store.git")
    assert store.refs() == {}
    sha = store.commit(workspace, parent=None, message="m", ref="run-1/r0-a1")
    other = store.commit(workspace, parent=sha, message="n", ref="refs/vibeserve/run-2/r0-a1")
    assert store.refs() == {"run-1/r0-a1": sha, "run-2/r0-a1": other}
    assert store.refs("run-2") == {"run-2/r0-a1": other}


@pytest.mark.parametrize("ref", ["main", "a/b/c", "a/../b", "a/-x", "a/b.lock", "a/b c", "/a", ""])
def test_a_bad_ref_is_refused(workspace: Path, tmp_path: Path, ref: str) -> None:
    with pytest.raises(ValueError, match="is not <run>/<candidate>"):
        CheckpointStore(tmp_path / "store.git").commit(workspace, parent=None, message="m", ref=ref)


def test_the_patch_applies(workspace: Path, tmp_path: Path) -> None:
    store = CheckpointStore(tmp_path / "store.git")
    first = store.commit(workspace, parent=None, message="m", ref="r/a")
    store.checkout(first, tmp_path / "out")
    (workspace / "service.yaml").write_text("argv: [x]\n")
    (workspace / "runtime" / "grammar.bin").write_bytes(b"\0\1\2")
    second = store.commit(workspace, parent=first, message="n", ref="r/b")
    patch = store.diff(first, second)
    assert "-argv: []\n+argv: [x]\n" in patch
    subprocess.run(["git", "apply", "-"], input=patch.encode(), cwd=tmp_path / "out", check=True)
    assert digest_tree(tmp_path / "out") == digest_tree(workspace)
    assert "+HIDDEN = 64" in store.diff(None, first)
    assert store.diff(second, second) == ""


def test_a_bundle_can_be_fetched_anywhere(workspace: Path, tmp_path: Path) -> None:
    store = CheckpointStore(tmp_path / "store.git")
    sha = store.commit(workspace, parent=None, message="m", ref="run-1/r0")
    store.commit(workspace, parent=None, message="other run", ref="run-2/r0")
    store.bundle(tmp_path / "deep" / "c.bundle", run="run-1")
    other = tmp_path / "other.git"
    subprocess.run(["git", "init", "-q", "--bare", str(other)], check=True)
    fetch = ["git", "--git-dir", str(other), "fetch", "-q", str(tmp_path / "deep" / "c.bundle"), "refs/*:refs/*"]
    subprocess.run(fetch, check=True)
    assert CheckpointStore(other).refs() == {"run-1/r0": sha}
    with pytest.raises(InfraError, match=r"no checkpoint to bundle in .* for run 'run-9'"):
        store.bundle(tmp_path / "x.bundle", run="run-9")


def test_a_bundle_is_taken_in_again(workspace: Path, tmp_path: Path) -> None:
    store = CheckpointStore(tmp_path / "store.git")
    sha = store.commit(workspace, parent=None, message="m", ref="run-1/r0")
    store.bundle(tmp_path / "c.bundle")
    other = CheckpointStore(tmp_path / "other.git")
    other.restore(tmp_path / "c.bundle")
    assert other.refs() == {"run-1/r0": sha}
    other.checkout(sha, tmp_path / "out")
    assert digest_tree(tmp_path / "out") == digest_tree(workspace)


def git(folder: Path, *arguments: str, data: bytes = b"") -> str:
    who = [word for key in ("user.name=x", "user.email=x@x") for word in ("-c", key)]
    done = subprocess.run(["git", *who, "-C", str(folder), *arguments], input=data, capture_output=True, check=True)
    return done.stdout.decode().strip()


@pytest.mark.parametrize(("mode", "place"), [("100644", b".."), ("120000", b"runtime"), ("100644", b".git")])
def test_a_forged_tree_is_not_checked_out(tmp_path: Path, mode: str, place: bytes) -> None:
    forged = tmp_path / "forged"
    subprocess.run(["git", "init", "-q", str(forged)], check=True)
    blob = git(forged, "hash-object", "-w", "--stdin", data=b"print()\n")
    inner = git(forged, "mktree", data=f"{mode} blob {blob}\tevil.py\n".encode())
    raw = b"40000 " + place + b"\0" + bytes.fromhex(inner)
    tree = git(forged, "hash-object", "-t", "tree", "-w", "--stdin", "--literally", data=raw)
    commit = git(forged, "commit-tree", tree, data=b"m")
    git(forged, "update-ref", "refs/vibeserve/run-1/r0", commit)
    git(forged, "bundle", "create", str(tmp_path / "c.bundle"), "refs/vibeserve/run-1/r0")
    store = CheckpointStore(tmp_path / "store.git")
    store.restore(tmp_path / "c.bundle")
    with pytest.raises(RefusedError, match=r"evil\.py' \(mode \d+\), which is no file of a workspace"):
        store.checkout(commit, tmp_path / "deep/out")
    assert not list(tmp_path.rglob("evil.py"))


def test_planted_hooks_and_configuration_do_not_run(workspace: Path, tmp_path: Path) -> None:
    mark = tmp_path / "PWNED"
    subprocess.run(["git", "init", "-q", str(workspace)], check=True)
    hooks = workspace / ".git" / "hooks"
    hooks.mkdir(exist_ok=True)
    for name in ("pre-commit", "post-commit", "post-checkout", "reference-transaction", "post-index-change"):
        (hooks / name).write_text(f"#!/bin/sh\ntouch {mark}\n")
        (hooks / name).chmod(0o755)
    with (workspace / ".git" / "config").open("a") as stream:
        stream.write(f'[core]\n\tfsmonitor = "touch {mark}"\n[filter "x"]\n\tclean = touch {mark}\n')
    (workspace / ".gitattributes").write_text("* filter=x diff=x\n")
    store = CheckpointStore(tmp_path / "store.git")
    first = store.commit(workspace, parent=None, message="m", ref="r/a")
    (workspace / "service.yaml").write_text("argv: [x]\n")
    store.diff(first, store.commit(workspace, parent=first, message="n", ref="r/b"))
    store.checkout(first, tmp_path / "out")
    assert not mark.exists()
    assert not (tmp_path / "out" / ".git").exists()


def test_a_repository_inside_the_workspace_is_refused(workspace: Path, tmp_path: Path) -> None:
    subprocess.run(["git", "init", "-q", str(workspace / "runtime" / "vendored")], check=True)
    with pytest.raises(RefusedError, match=r"runtime/vendored/\.git is a repository inside the workspace"):
        CheckpointStore(tmp_path / "store.git").commit(workspace, parent=None, message="m", ref="r/c")
    (workspace / "runtime" / "vendored" / ".git").rename(workspace / "kept")
    (workspace / "runtime" / ".git").write_text("gitdir: /elsewhere\n")
    with pytest.raises(RefusedError, match=r"runtime/\.git is a repository"):
        list_files(workspace)


def test_links_and_devices_are_refused(workspace: Path) -> None:
    (workspace / "link").symlink_to("/etc/passwd")
    with pytest.raises(RefusedError, match="link is a symbolic link to /etc/passwd"):
        list_files(workspace)
    (workspace / "link").unlink()
    (workspace / "folder").symlink_to("/etc")
    with pytest.raises(RefusedError, match="folder is a symbolic link to /etc"):
        list_files(workspace)
    (workspace / "folder").unlink()
    os.mkfifo(workspace / "pipe")
    with pytest.raises(RefusedError, match="pipe is neither a file nor a folder"):
        list_files(workspace)


def test_an_empty_workspace_and_an_unknown_commit_say_so(tmp_path: Path, workspace: Path) -> None:
    store = CheckpointStore(tmp_path / "store.git")
    (tmp_path / "empty").mkdir()
    with pytest.raises(RefusedError, match="holds no file"):
        store.commit(tmp_path / "empty", parent=None, message="m", ref="r/c")
    with pytest.raises(InfraError, match="git ls-tree failed in"):
        store.checkout("0" * 40, tmp_path / "out")


def test_a_missing_git_says_what_to_do(tmp_path: Path, workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(InfraError, match="git was not found; checkpoints need it\nnext: install git"):
        CheckpointStore(tmp_path / "store.git").commit(workspace, parent=None, message="m", ref="r/c")
