"""What is sent to a host, by content: what of this package, how little, and what the receiving end refuses."""

from __future__ import annotations

import hashlib
import io
import json
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from vibeserve.errors import RefusedError
from vibeserve.hosts import receiver
from vibeserve.hosts.connection import shell_command
from vibeserve.hosts.trees import framework_tree, tree_of, write_objects
from vibeserve.hosts.ways import SshWay


def write(folder: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


def received(root: Path, first: str, stream: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    """The receiving program on this machine, as ssh runs it."""
    argv = [sys.executable, "-c", Path(receiver.__file__).read_text(), str(root)]
    return subprocess.run(argv, input=first.encode() + b"\n" + stream, capture_output=True, check=False, timeout=60)


def archive(objects: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w|") as stream:
        for name, content in objects.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            stream.addfile(info, io.BytesIO(content))
    return buffer.getvalue()


def test_nothing_that_says_what_is_right_is_sent() -> None:
    paths = sorted(framework_tree().files)
    assert "vibeserve/remote/agent.py" in paths and "vibeserve/client/generator.py" in paths
    modules = {path.split("/")[1] for path in paths}
    assert not modules & {"accuracy", "audit", "agents", "golden.py", "certification.py", "artifact", "planning"}
    names = {path.rsplit("/", 1)[-1] for path in paths if path.startswith("vibeserve/modalities/text/")}
    assert {"workload.py", "wire.py"} <= names
    assert not {name for name in names if name.startswith(("reference", "check", "faults", "probe_", "answer"))}


def test_a_tree_is_known_by_its_content_and_modes(tmp_path: Path) -> None:
    one, two = write(tmp_path / "one", {"a/b.py": "x\n"}), write(tmp_path / "two", {"a/b.py": "x\n"})
    assert tree_of(one).digest == tree_of(two).digest
    (two / "a/b.py").chmod(0o755)
    assert tree_of(one).digest != tree_of(two).digest
    write(two, {"__pycache__/c.pyc": "", "d.txt": "y"})
    assert set(tree_of(two).files) == {"a/b.py", "d.txt"} and set(tree_of(two, only=["d.txt"]).files) == {"d.txt"}


def test_a_link_to_a_folder_is_not_sent(tmp_path: Path) -> None:
    folder = write(tmp_path / "one", {"a.py": ""})
    (folder / "etc").symlink_to("/etc")
    with pytest.raises(RefusedError, match="etc is a link to a folder: it is not sent to a host"):
        tree_of(folder)


def test_only_what_is_missing_travels_and_a_second_time_nothing(tmp_path: Path) -> None:
    tree = tree_of(write(tmp_path / "one", {"a.py": "same\n", "b.py": "same\n", "c.py": "other\n"}))
    first = json.dumps({tree.digest: tree.document()})
    buffer = io.BytesIO()
    write_objects(buffer, [tree], wanted=sorted({digest for digest, _, _ in tree.files.values()}))
    done = received(tmp_path / "root", first, buffer.getvalue())
    told, placed = (json.loads(line) for line in done.stdout.splitlines())
    assert len(told["missing"]) == 2, "two files of one content are one object"
    assert placed == {"placed": [tree.digest]}
    assert tree_of(tmp_path / "root/trees" / tree.digest).digest == tree.digest
    again = received(tmp_path / "root", first)
    assert json.loads(again.stdout.splitlines()[0])["missing"] == []


@pytest.mark.parametrize(
    ("member", "content", "told"),
    [("right", b"wrong", "damaged on the way: "), ("0" * 64, b"right", "not asked for: 000000")],
)
def test_an_object_that_is_damaged_or_not_asked_for_is_refused(
    tmp_path: Path, member: str, content: bytes, told: str
) -> None:
    digest = hashlib.sha256(b"right").hexdigest()
    name = digest if member == "right" else member
    done = received(tmp_path / "root", json.dumps({"t": {"a": [digest, 0o644]}}), archive({name: content}))
    assert done.returncode != 0 and told in done.stderr.decode()
    assert not (tmp_path / "root/trees").exists() and not list((tmp_path / "root").rglob(digest))


@pytest.mark.parametrize("path", ["../outside", "/etc/x", "a/../../x"])
def test_a_path_that_leads_out_of_its_tree_is_refused(tmp_path: Path, path: str) -> None:
    digest = hashlib.sha256(b"right").hexdigest()
    done = received(tmp_path / "root", json.dumps({"t": {path: [digest, 0o644]}}), archive({digest: b"right"}))
    assert done.returncode != 0 and "leads out of its tree" in done.stderr.decode()
    assert not (tmp_path / "root/trees/t").exists()


@pytest.mark.parametrize(
    ("address", "words"),
    [("me@lab", ["--", "me@lab"]), ("me@lab:2222", ["-p", "2222", "--", "me@lab"]), ("-oProxy=x", ["--", "-oProxy=x"])],
)
def test_an_address_is_a_name_and_never_an_option(address: str, words: list[str]) -> None:
    argv = SshWay(address=address).argv("true")
    assert argv[-len(words) - 1 :] == [*words, "true"]
    assert "ForwardAgent=no" in argv and "SendEnv=-*" in argv and "BatchMode=yes" in argv


def test_words_reach_the_shell_as_they_are(tmp_path: Path) -> None:
    argv = ["printf", "%s|", "a b", "it's", "$HOME", "~/x"]
    command = ["sh", "-c", shell_command(argv, env={"A": "1 2"})]
    environment = {"HOME": str(tmp_path), "PATH": "/usr/bin:/bin"}
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    assert done.stdout == f"a b|it's|$HOME|{tmp_path}/x|"
