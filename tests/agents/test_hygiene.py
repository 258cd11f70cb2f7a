"""What an agent leaves in a workspace: stripped, refused, or kept; on hostile trees too."""

from __future__ import annotations

import json
import os
import socket
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from vibeserve.agents.hygiene import (
    Tidied,
    changed_files,
    copy_files,
    inspect_workspace,
    remove_tree,
    rules,
    tidy_workspace,
)
from vibeserve.audit import scan_workspace
from vibeserve.checkpoint import CheckpointStore, list_files
from vibeserve.core.documents import digest_file, digest_tree


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    root = tmp_path / "ws"
    (root / "runtime").mkdir(parents=True)
    (root / "service.yaml").write_text("argv: []\n")
    (root / "runtime" / "model.py").write_text("HIDDEN = 64\n")
    return root


def put(root: Path, name: str, content: str | bytes = "x\n") -> Path:
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def told(tidied: Tidied) -> list[tuple[str, str | None]]:
    assert {refusal.gate for refusal in tidied.refusals} <= {"workspace"}
    return [(refusal.reason_class, refusal.file) for refusal in tidied.refusals]


def entries(root: Path) -> set[str]:
    return {path.relative_to(root).as_posix() for path in root.rglob("*")}


def test_a_clean_workspace_stays_as_it_is(workspace: Path) -> None:
    put(workspace, "runtime/kernels/gemm.cpp", "int main() {}\n")
    before = digest_tree(workspace)
    tidied = tidy_workspace(workspace, before={})
    assert (tidied.stripped, tidied.refusals, tidied.num_refused) == ((), (), 0)
    assert tidied.files == digest_tree(workspace) == before


LEFTOVERS = (
    ".git/config", "runtime/.git", "runtime/.GIT/x", ".hg/x", "runtime/__pycache__/model.cpython-311.pyc", "a.pyc",
    ".pytest_cache/v/x", "node_modules/left-pad/index.js", ".codex/log", ".claude/settings.json", ".aider.chat.md",
    ".opencode/x", ".gemini/x", "runtime/model.py.orig", "runtime/model.py.rej", "runtime/model.py~", "build/kernel.so",
    ".venv/bin/python", ".vibeserve-trash-00/0/x",
)  # fmt: skip


@pytest.mark.parametrize("name", LEFTOVERS)
def test_what_tools_leave_behind_is_stripped_and_listed(workspace: Path, name: str) -> None:
    clean = entries(workspace)
    put(workspace, name, b"\0")
    looked = inspect_workspace(workspace, before={})
    assert entries(workspace) > clean
    tidied = tidy_workspace(workspace, before={})
    assert entries(workspace) == clean
    assert tidied.refusals == () and tidied == looked
    (stripped,) = tidied.stripped
    assert name.startswith(stripped.file)
    assert stripped.what == ("build output, which is made anew" if name.startswith("build/") else "leftover")


def test_what_was_there_before_is_neither_stripped_nor_refused(workspace: Path) -> None:
    """A seed may hold what an agent may not add."""
    names = ["vendored.orig", "node_modules/a.js", "blob.bin", "large.txt", "Makefile", "makefile", "n" * 200 + "/abc"]
    for name in names:
        put(workspace, name, b"\0\xff" if name == "blob.bin" else b"x" * (600_000 if name == "large.txt" else 9))
    before = digest_tree(workspace)
    assert tidy_workspace(workspace, before=before) == Tidied(files=dict(sorted(before.items())))
    put(workspace, "blob.bin", b"\0\xfe")
    put(workspace, "large.txt", b"y" * 600_000)
    put(workspace, "node_modules/b.pyc")
    changed = tidy_workspace(workspace, before=before)
    assert told(changed) == [("binary", "blob.bin"), ("too_large", "large.txt")]
    assert [item.file for item in changed.stripped] == ["node_modules/b.pyc"]
    assert (workspace / "node_modules" / "a.js").is_file()


def test_links_are_refused_by_where_they_lead_and_never_followed(workspace: Path, tmp_path: Path) -> None:
    outside = put(tmp_path, "outside/secret.py", "KEY = 1\n")
    (workspace / "a_in.py").symlink_to("runtime/model.py")
    (workspace / "b_out.py").symlink_to(outside)
    (workspace / "runtime" / "c_out").symlink_to("../../outside")
    (workspace / "d_loop").symlink_to("d_loop")
    (workspace / "node_modules").symlink_to(outside.parent)
    (workspace / "e.pyc").symlink_to(outside)
    tidied = tidy_workspace(workspace, before={})
    assert told(tidied) == [
        ("link", "a_in.py"), ("link_out", "b_out.py"), ("link", "d_loop"), ("link_out", "runtime/c_out")
    ]  # fmt: skip
    assert tidied.refusals[0].text == (
        "a_in.py: is a symbolic link to runtime/model.py. Valid: replace it by a copy of the file"
    )
    assert tidied.refusals[3].text == (
        "runtime/c_out: is a symbolic link to ../../outside, out of the workspace. "
        "Valid: copy what it points to into the workspace as a plain file"
    )
    assert [item.file for item in tidied.stripped] == ["e.pyc", "node_modules"]
    assert outside.read_text() == "KEY = 1\n" and not (workspace / "node_modules").is_symlink()


def test_pipes_sockets_and_devices_are_refused_without_waiting_for_them(workspace: Path) -> None:
    os.mkfifo(workspace / "pipe.py")
    with socket.socket(socket.AF_UNIX) as listener:
        # the address of a socket is short, the temporary folder's may be long
        listener.bind(os.path.relpath(workspace / "socket"))
    tidied = tidy_workspace(workspace, before={})
    assert told(tidied) == [("special_file", "pipe.py"), ("special_file", "socket")]
    valid = "Valid: remove it; a workspace holds plain files and folders that its owner can read"
    assert [refusal.text for refusal in tidied.refusals] == [
        f"pipe.py: is a named pipe. {valid}", f"socket: is a socket. {valid}"
    ]  # fmt: skip


def test_large_files_are_refused_one_by_one_and_in_all(workspace: Path) -> None:
    put(workspace, "just_right.py", "#" * rules.MAX_FILE_BYTES)
    put(workspace, "one_more.py", "#" * (rules.MAX_FILE_BYTES + 1))
    with (workspace / "sparse.py").open("wb") as stream:
        stream.truncate(1 << 40)
    tidied = tidy_workspace(workspace, before={})
    assert told(tidied) == [("too_large", "one_more.py"), ("too_large", "sparse.py")]
    text = "one_more.py: has 524289 bytes or more (at most 524288 in a file). Valid: "
    assert tidied.refusals[0].text.startswith(text)
    for number in range(16):
        put(workspace, f"part{number:02d}.py", "#" * rules.MAX_FILE_BYTES)
    assert ("too_large", ".") in told(tidy_workspace(workspace, before={}))
    before = {f"part{number:02d}.py": digest_file(workspace / "part00.py") for number in range(16)}
    assert ("too_large", ".") not in told(tidy_workspace(workspace, before=before))


def test_what_was_there_before_is_hashed_within_limits(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("a.bin", "b.bin", "c.bin"):
        put(workspace, name, b"\0" * (3000 if name == "b.bin" else 1000))
    before = digest_tree(workspace)
    monkeypatch.setattr(rules, "MAX_KNOWN_FILE_BYTES", 2000)
    assert told(tidy_workspace(workspace, before=before)) == [("too_large", "b.bin")]
    monkeypatch.setattr(rules, "MAX_READ_BYTES", 999)
    tidied = tidy_workspace(workspace, before=before)
    assert told(tidied)[:2] == [("too_large", "b.bin"), ("too_large", "c.bin")]
    assert tidied.refusals[1].text.startswith("c.bin: is left unread: the workspace has more than 999 bytes. Valid: ")


@pytest.mark.parametrize(
    ("content", "why"), [(b"a\0b", "it holds NUL bytes"), (b"abc\xff", "it is not UTF-8 at byte 3")]
)
def test_binary_files_are_refused(workspace: Path, content: bytes, why: str) -> None:
    put(workspace, "runtime/table.txt", content)
    tidied = tidy_workspace(workspace, before={})
    assert told(tidied) == [("binary", "runtime/table.txt")]
    assert tidied.refusals[0].text.startswith(f"runtime/table.txt: is a binary file: {why}. Valid: ship the source")
    assert "runtime/table.txt" not in tidied.files


INVISIBLE = "has a control character or an invisible one in its name"
BAD_NAMES = (
    ("line\nbreak.py", INVISIBLE),
    ("escape\x1b[31m.py", INVISIBLE),
    ("separator\u2028.py", INVISIBLE),
    ("n" * 201, "has a name of 201 bytes with its folders (at most 200)"),
    ("ä" * 100 + "b", "has a name of 201 bytes with its folders (at most 200)"),
    (os.fsdecode(b"latin\xe4.py"), "has a name that is not UTF-8"),
    (".git .", "has a name that is taken for .git"),
    ("git~1", "has a name that is taken for .git"),
    (".g\u200cit", INVISIBLE),
    ("model\u202eyp.cat", INVISIBLE),
    (".git::$INDEX_ALLOCATION", "has a name that is taken for .git"),
    ("runtime/build/x.py", "is taken for build output, which no checkpoint holds"),
    ("build", "is taken for build output, which no checkpoint holds"),
)


@pytest.mark.parametrize(("name", "why"), BAD_NAMES, ids=lambda value: ascii(value)[:30])
def test_bad_names_are_refused(workspace: Path, name: str, why: str) -> None:
    put(workspace, name)
    tidied = tidy_workspace(workspace, before={})
    (refusal,) = tidied.refusals
    assert refusal.reason_class == "bad_name"
    assert f": {why}. Valid: rename it" in refusal.text
    # it may stand in any document and on any terminal
    assert refusal.text.isprintable() and json.dumps(refusal.text).encode() and refusal.text.encode()


def test_names_that_differ_by_case_alone_are_refused(workspace: Path) -> None:
    put(workspace, "runtime/Model.py")
    put(workspace, "Runtime/x.py")
    tidied = tidy_workspace(workspace, before=digest_tree(workspace) | {"Runtime/x.py": "", "runtime/Model.py": ""})
    assert tidied.refusals == ()
    texts = [refusal.text for refusal in tidy_workspace(workspace, before={}).refusals]
    assert texts == [
        "runtime: has the name of Runtime but for upper and lower case. Valid: rename it",
    ]
    (workspace / "Runtime").rename(workspace / "other")
    put(workspace, "stra\u00dfe.py")
    put(workspace, "STRASSE.py")
    put(workspace, "caf\u00e9.py")
    put(workspace, "cafe\u0301.py")
    refused = {refusal.file for refusal in tidy_workspace(workspace, before={}).refusals}
    assert refused == {"runtime/model.py", "stra\u00dfe.py", "caf\u00e9.py"}


def test_too_many_files_are_refused_and_the_walk_ends(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rules, "MAX_NEW_FILES", 10)
    for number in range(9):
        put(workspace, f"f{number}.py")
    text = "the workspace has 11 new files (at most 10). Valid: remove what the runtime does not need"
    assert [refusal.text for refusal in tidy_workspace(workspace, before={}).refusals] == [text]
    assert tidy_workspace(workspace, before={"service.yaml": ""}).refusals == ()
    monkeypatch.setattr(rules, "MAX_ENTRIES", 5)
    over = tidy_workspace(workspace, before={})
    assert [refusal.text for refusal in over.refusals] == [
        "the workspace holds more than 5 new entries. Valid: remove what the runtime does not need"
    ]
    monkeypatch.setattr(rules, "MAX_STRIPPED_ENTRIES", 3)
    for number in range(9):
        put(workspace, f"node_modules/f{number}.js")
    monkeypatch.setattr(rules, "MAX_ENTRIES", 50)
    monkeypatch.setattr(rules, "MAX_NEW_FILES", 50)
    assert told(tidy_workspace(workspace, before={})) == [("too_many_files", "node_modules")]


def test_refusals_of_one_class_are_counted_not_all_told(workspace: Path) -> None:
    for number in range(30):
        os.mkfifo(workspace / f"pipe{number:02d}")
    tidied = tidy_workspace(workspace, before={})
    assert (len(tidied.refusals), tidied.num_refused) == (20, 30)


def test_odd_mode_bits_go_and_the_executable_bit_stays(workspace: Path) -> None:
    (workspace / "service.yaml").chmod(0o4646)
    put(workspace, "tool.sh").chmod(0o2757)
    (workspace / "runtime").chmod(0o1777)
    tidied = tidy_workspace(workspace, before=digest_tree(workspace))
    assert tidied.refusals == ()
    assert [(item.file, item.what) for item in tidied.stripped] == [
        ("runtime", "sticky bit, writable by all"), ("service.yaml", "setuid bit, writable by all"),
        ("tool.sh", "setgid bit, writable by all"),
    ]  # fmt: skip
    modes = [stat.S_IMODE((workspace / name).stat().st_mode) for name in ("runtime", "service.yaml", "tool.sh")]
    assert modes == [0o775, 0o644, 0o755]


def test_extended_attributes_go(workspace: Path) -> None:
    path = workspace / "service.yaml"
    try:
        os.setxattr(path, "user.note", b"x")
    except OSError as error:
        pytest.skip(f"no extended attributes here: {error}")
    assert [item.what for item in inspect_workspace(workspace, before={}).stripped] == ["extended attribute user.note"]
    assert os.listxattr(path) == ["user.note"]
    assert [item.what for item in tidy_workspace(workspace, before={}).stripped] == ["extended attribute user.note"]
    assert os.listxattr(path) == []


def test_a_hard_link_becomes_a_file_of_its_own(workspace: Path, tmp_path: Path) -> None:
    outside = put(tmp_path, "outside.py", "A = 1\n")
    outside.chmod(0o4755)
    os.link(outside, workspace / "inside.py")
    tidied = tidy_workspace(workspace, before={})
    assert [(item.file, item.what) for item in tidied.stripped] == [("inside.py", "hard link")]
    (workspace / "inside.py").write_text("A = 2\n")
    assert (outside.read_text(), stat.S_IMODE(outside.stat().st_mode)) == ("A = 1\n", 0o4755)
    assert stat.S_IMODE((workspace / "inside.py").stat().st_mode) == 0o755


def nested(root: Path, part: str, *, depth: int) -> None:
    """Folders below each other, deeper than any path may be long."""
    descriptor = os.open(root, os.O_RDONLY)
    for _ in range(depth):
        os.mkdir(part, dir_fd=descriptor)
        inner = os.open(part, os.O_RDONLY, dir_fd=descriptor)
        os.close(descriptor)
        descriptor = inner
    os.close(descriptor)


def test_deep_nesting_is_refused_or_removed(workspace: Path) -> None:
    nested(workspace, "deep", depth=1200)
    tidied = tidy_workspace(workspace, before={})
    assert [refusal.reason_class for refusal in tidied.refusals] == ["bad_name"]
    (workspace / "deep").rename(workspace / "node_modules")
    tidied = tidy_workspace(workspace, before={})
    assert tidied.refusals == () and not (workspace / "node_modules").exists()


def test_a_tree_of_any_depth_is_removed_and_what_links_lead_to_stays(tmp_path: Path) -> None:
    kept = put(tmp_path, "kept/x.py")
    folder = tmp_path / "folder"
    folder.mkdir()
    nested(folder, "d", depth=1200)
    (folder / "link").symlink_to(kept.parent)
    remove_tree(folder)
    assert entries(tmp_path) == {"kept", "kept/x.py"}
    (tmp_path / "link").symlink_to(kept.parent)
    remove_tree(tmp_path / "link")
    remove_tree(tmp_path / "absent")
    assert entries(tmp_path) == {"kept", "kept/x.py"}


def test_copies_go_through_no_link(workspace: Path, tmp_path: Path) -> None:
    put(tmp_path, "secret/key.py")
    put(workspace, "tool.sh").chmod(0o4755)
    (workspace / "linked").symlink_to("../secret")
    copy_files(workspace, tmp_path / "copy", names=["tool.sh", "runtime/model.py"])
    assert digest_tree(tmp_path / "copy") == {
        name: digest for name, digest in digest_tree(workspace).items() if name in ("tool.sh", "runtime/model.py")
    }
    assert stat.S_IMODE((tmp_path / "copy" / "tool.sh").stat().st_mode) == 0o755
    with pytest.raises(OSError, match=r"Not a directory|symbolic links"):
        copy_files(workspace, tmp_path / "copy", names=["linked/key.py"])
    (tmp_path / "copy" / "linked").symlink_to(tmp_path / "secret")
    put(workspace, "other/linked/key.py", "CHANGED\n")
    with pytest.raises(OSError, match=r"Not a directory|symbolic links"):
        copy_files(workspace / "other", tmp_path / "copy", names=["linked/key.py"])
    assert (tmp_path / "secret" / "key.py").read_text() == "x\n"


CLOSED = """
for name, mode in (("closed/inner", 0o000), ("closed", 0o000), ("node_modules/a", 0o000), ("file.py", 0o000)):
    path = root / name
    if name.endswith(".py"):
        path.write_text("A = 1\\n")
    else:
        path.mkdir(parents=True, exist_ok=True)
        (path / "x.py").write_text("B = 1\\n")
for name in ("closed/inner", "closed", "node_modules/a", "node_modules", "file.py"):
    (root / name).chmod(0o000)
"""
AS_NOBODY = """
import json, os, sys
from pathlib import Path
from vibeserve.agents.hygiene import inspect_workspace, tidy_workspace
root = Path(sys.argv[1])
if os.getuid() == 0:
    os.chown(root, 65534, 65534)
    os.setgroups([])
    os.setgid(65534)
    os.setuid(65534)
"""
REPORT = """
looked, tidied = inspect_workspace(root, before={}), tidy_workspace(root, before={})
print(json.dumps({
    "looked": [each.text for each in looked.refusals], "refused": [each.text for each in tidied.refusals],
    "stripped": [each.file for each in tidied.stripped], "files": sorted(tidied.files),
}))
"""
VALID = "Valid: remove it; a workspace holds plain files and folders that its owner can read"


def as_nobody(workspace: Path, program: str) -> dict[str, list[str]]:
    """The report after `program`, by a user without privileges who owns `workspace`."""
    argv = [sys.executable, "-c", AS_NOBODY + program + REPORT, str(workspace)]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    result: dict[str, list[str]] = json.loads(done.stdout)
    return result


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A workspace whose parents any user may pass."""
    with tempfile.TemporaryDirectory(prefix="hygiene-") as folder:
        Path(folder).chmod(0o755)
        root = Path(folder) / "ws"
        root.mkdir()
        yield root


def test_folders_and_files_without_permissions_are_opened(open_folder: Path) -> None:
    assert as_nobody(open_folder, CLOSED) == {
        "looked": [f"{name}: cannot be read or cleaned: Permission denied. {VALID}" for name in ("closed", "file.py")],
        "refused": [], "stripped": ["node_modules"], "files": ["closed/inner/x.py", "closed/x.py", "file.py"],
    }  # fmt: skip


@pytest.mark.skipif(os.getuid() != 0, reason="makes a folder of another user")
def test_a_folder_of_another_user_is_refused(open_folder: Path) -> None:
    for name in ("theirs", "node_modules"):
        (open_folder / name).mkdir()
        (open_folder / name).chmod(0o700)
    found = as_nobody(open_folder, "")
    assert found["refused"] == [
        f"node_modules: cannot be read or cleaned: Permission denied. {VALID}",
        f"theirs: cannot be read or cleaned: Permission denied. {VALID}",
    ]
    assert entries(open_folder) == {"theirs", "node_modules"}


MOUNTING = """
import json, subprocess, sys
from pathlib import Path
from vibeserve.agents.hygiene import tidy_workspace
root, source = Path(sys.argv[1]), Path(sys.argv[2])
(root / "file.py").write_text("")
for name in ("memory", "node_modules/bound", "with space"):
    (root / name).mkdir(parents=True)
subprocess.run(["mount", "-t", "tmpfs", "none", str(root / "memory")], check=True)
for name in ("node_modules/bound", "with space"):
    subprocess.run(["mount", "--bind", str(source), str(root / name)], check=True)
subprocess.run(["mount", "--bind", str(source / "kept.py"), str(root / "file.py")], check=True)
tidied = tidy_workspace(root, before={})
print(json.dumps([[each.reason_class, each.file, each.text] for each in tidied.refusals]))
"""


def test_a_mount_point_is_refused_and_what_is_mounted_stays(workspace: Path, tmp_path: Path) -> None:
    source = tmp_path / "source"
    kept = put(source, "kept.py")
    private = ["unshare", "--user", "--map-root-user", "--mount"]
    try:
        subprocess.run([*private, "true"], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("this machine lets nobody mount in a namespace of their own")
    argv = [*private, sys.executable, "-c", MOUNTING, str(workspace), str(source)]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    refused = json.loads(done.stdout)
    assert [(reason_class, file) for reason_class, file, _ in refused] == [
        ("special_file", "file.py"), ("special_file", "memory"), ("special_file", "node_modules"),
        ("special_file", "with space"),
    ]  # fmt: skip
    assert refused[0][2].startswith("file.py: is a mount point. Valid: ")
    assert refused[2][2].startswith("node_modules: is a mount point, or holds one. Valid: ")
    assert kept.is_file()


NAMES = st.sampled_from([
    "a.py", "A.py", "b", "runtime", "tests", "build", ".git", ".GIT", "git~1", "node_modules", "x.pyc", ".claude",
    "é.py", "e\u0301.py", "tab\t.py", "long" * 30, ".gitattributes", ".gitignore", '"quoted".py', "back\\slash.py",
    "-n", " ", "a b.py", ".vibeserve-trash-1", "\u200f.py", "CON", "service.yaml", ".git.", "\udcff",
])  # fmt: skip
CONTENTS = st.sampled_from([b"", b"A = 1\n", b"\0", b"\xff", "ä\r\n".encode(), b"x" * 600_000])
TREES = st.recursive(
    st.one_of(CONTENTS, st.sampled_from(["link:a.py", "link:/etc/passwd", "link:../..", "fifo"])),
    lambda inner: st.dictionaries(NAMES, inner, max_size=6), max_leaves=25,
)  # fmt: skip
MODES = st.sampled_from([0o644, 0o755, 0o4755, 0o666, 0o000, 0o2777])


def build(root: Path, tree: object, mode: int) -> None:
    if isinstance(tree, dict):
        root.mkdir()
        for name, inner in tree.items():
            build(root / name, inner, mode)
        root.chmod(mode | 0o700)
    elif isinstance(tree, bytes):
        root.write_bytes(tree)
        root.chmod(mode)
    elif tree == "fifo":
        os.mkfifo(root)
    else:
        root.symlink_to(str(tree).removeprefix("link:"))


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(tree=st.dictionaries(NAMES, TREES, max_size=8), mode=MODES)
def test_whatever_it_lets_through_can_be_kept_and_judged(tree: dict[str, object], mode: int) -> None:
    with tempfile.TemporaryDirectory(prefix="hygiene-") as folder:
        workspace = Path(folder) / "ws"
        outside = put(Path(folder), "outside.txt")
        build(workspace, {"kept.py": b"A = 1\n", **tree}, mode)
        looked = inspect_workspace(workspace, before={})
        tidied = tidy_workspace(workspace, before={})
        assert tidied == looked
        assert outside.read_text() == "x\n"
        again = tidy_workspace(workspace, before={})
        assert (again.stripped, again.refusals) == ((), tidied.refusals), "once is enough"
        if tidied.refusals:
            return
        assert tidied.files == digest_tree(workspace)
        assert sorted(tidied.files) == list_files(workspace)
        store = CheckpointStore(Path(folder) / "store.git")
        sha = store.commit(workspace, parent=None, message="m", ref="r/c")
        store.checkout(sha, Path(folder) / "out")
        assert digest_tree(Path(folder) / "out") == tidied.files
        assert not {"symlink"} & {refusal.reason_class for refusal in scan_workspace(workspace, allow_engines=[])}


def test_changes_between_two_trees_by_name_and_by_line(workspace: Path, tmp_path: Path) -> None:
    after = tmp_path / "after"
    put(workspace, "gone.py", "a\nb\n")
    put(workspace, "tool.sh", "#!/bin/sh\n")
    put(workspace, "moved.py", "one\ntwo\nthree\n")
    put(after, "service.yaml", "argv: []\n")
    put(after, "runtime/model.py", "HIDDEN = 64\nLAYERS = 2\n")
    put(after, "runtime/new.py", "x\ny\nz\n")
    put(after, "tool.sh", "#!/bin/sh\n").chmod(0o755)
    put(after, "moved.py", "three\none\ntwo\n")
    put(after, "runtime/__pycache__/new.pyc")
    changes = changed_files(workspace, after)
    assert changes.added == ("runtime/new.py",)
    assert changes.changed == ("moved.py", "runtime/model.py", "tool.sh")
    assert changes.deleted == ("gone.py",)
    assert (changes.num_added_lines, changes.num_deleted_lines) == (4, 2)
    assert str(changes) == "files: 1 added, 3 changed, 1 deleted; lines: +4 -2"
    same = changed_files(after, after)
    assert same.is_empty and str(same) == "files: none; lines: +0 -0"
