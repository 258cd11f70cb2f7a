"""Memory, disk and processes: what takes too much is stopped, and how it ended is typed."""

from __future__ import annotations

import os
import re
import sys
import textwrap
import time
from pathlib import Path

import pytest

from vibeserve.config import compose_spec
from vibeserve.errors import SpecError
from vibeserve.sandbox import Exceeded, Resources, Wall, hierarchies, launch, resources_of, run
from vibeserve.sandbox.cgroups import Cgroup
from vibeserve.sandbox.guard import written_bytes
from vibeserve.sandbox.hierarchies import cgroup_of, make_cgroup
from vibeserve.sandbox.resources import AUTO_MEMORY_SHARE, machine_memory_gib
from vibeserve.spec import Hardware, Sandbox, Tier

MIB_IN_GIB = 1 / 1024

HOG = """
import os, time
blocks = []
for _ in range(32):
    blocks.append(os.urandom(1) * (32 << 20))
print("has it all", flush=True)
time.sleep(60)
"""
HOG_IN_A_CHILD = f"""
import os
if os.fork() == 0:
    exec({HOG!r})
os.wait()
print("goes on", flush=True)
import time
time.sleep(60)
"""
FILES = """
import time
for number in range(400):
    with open(f"{number}.bin", "wb") as stream:
        stream.write(bytes(1 << 20))
    time.sleep(0.005)
time.sleep(60)
"""
DELETED_FILES = """
import os, time
streams = []
for number in range(8):
    streams.append(open(f"{number}.bin", "wb"))
    os.remove(f"{number}.bin")
    streams[-1].write(bytes(50 << 20))
    streams[-1].flush()
    time.sleep(0.2)
time.sleep(60)
"""
LOG = """
import time
while True:
    print("x" * (1 << 20), flush=True)
    time.sleep(0.005)
"""
BOMB = """
import os, time
while True:
    try:
        os.fork()
    except OSError:
        time.sleep(0.01)
"""


@pytest.fixture(params=["kernel", "sampled"])
def memory_by(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """With a memory control group, where one can be made, and without."""
    if request.param == "sampled":
        monkeypatch.setattr(launch, "make_cgroup", lambda *_, **__: Cgroup(pids=None, memory=None))
    elif _has_no("memory"):
        pytest.skip("no memory control group can be made here")
    return str(request.param)


def _has_no(controller: str) -> bool:
    folder = getattr(cgroup_of("x"), controller)
    return folder is None or not os.access(folder.parent, os.W_OK)


def _ended(script: str, wall: Wall, tmp_path: Path):
    argv = [sys.executable, "-c", textwrap.dedent(script)]
    return run(argv, wall=wall, log=tmp_path / "log" / "x.log", timeout_s=40)


@pytest.mark.parametrize("script", [HOG, HOG_IN_A_CHILD], ids=["itself", "a child"])
def test_a_memory_hog_is_killed_with_its_whole_tree(make_wall, tmp_path: Path, memory_by: str, script: str) -> None:
    done = _ended(script, make_wall(resources=Resources(max_memory_gib=0.25)), tmp_path)
    assert (done.exceeded, done.timed_out) == (Exceeded.MEMORY, False)
    assert "has it all" not in done.log_tail


def test_what_stays_below_its_memory_goes_on(make_wall, tmp_path: Path, memory_by: str) -> None:
    script = "block = b'x' * (64 << 20); import time; time.sleep(0.6)"
    done = _ended(script, make_wall(resources=Resources(max_memory_gib=0.5)), tmp_path)
    assert (done.exceeded, done.returncode) == (None, 0)


def test_memory_files_are_memory(make_wall, tmp_path: Path, tier: Tier) -> None:
    if tier is not Tier.A:
        pytest.skip("tier B has no /dev/shm at all")
    script = """
        import errno, json
        codes = []
        for folder in ("/dev/shm", "/tmp"):
            try:
                with open(folder + "/x", "wb") as stream:
                    stream.write(bytes(8 << 20))
            except OSError as error:
                codes.append(errno.errorcode[error.errno])
        print(json.dumps(codes))
    """
    done = _ended(script, make_wall(resources=Resources(tmp_gib=4 * MIB_IN_GIB)), tmp_path)
    assert done.log_tail == '["ENOSPC", "ENOSPC"]'


@pytest.mark.parametrize("script", [FILES, DELETED_FILES, LOG], ids=["files", "deleted files", "the log"])
def test_a_disk_hog_is_killed(make_wall, tmp_path: Path, script: str) -> None:
    done = _ended(script, make_wall(resources=Resources(max_disk_gib=100 * MIB_IN_GIB)), tmp_path)
    assert (done.exceeded, done.timed_out) == (Exceeded.DISK, False)


def test_what_was_there_before_is_not_counted(make_wall, tmp_path: Path) -> None:
    wall = make_wall(resources=Resources(max_disk_gib=4 * MIB_IN_GIB))
    (tmp_path / "inside" / "old.bin").write_bytes(bytes(8 << 20))
    done = _ended("print('done')", wall, tmp_path)
    assert (done.exceeded, done.log_tail) == (None, "done")


def test_a_fork_bomb_is_contained_and_gone(make_wall, tmp_path: Path) -> None:
    if os.getuid() == 0 and _has_no("pids"):
        pytest.skip("root is bound by no rlimit, and no pids control group can be made here")
    argv = [sys.executable, "-c", BOMB]
    start = time.monotonic()
    done = run(argv, wall=make_wall(resources=Resources(max_processes=24)), log=tmp_path / "log", timeout_s=1.5)
    assert done.timed_out
    assert time.monotonic() - start < 30
    assert done.exceeded is (None if _has_no("pids") else Exceeded.PROCESSES)


def test_nothing_is_written_after_the_end(make_wall, tmp_path: Path) -> None:
    """The late background writer: a daemon in a session of its own, deaf to SIGTERM, still at it when time is up."""
    script = """
        import os, signal, time
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        if os.fork() == 0:
            os.setsid()
            if os.fork() != 0:
                os._exit(0)
            while True:
                with open("late", "a") as stream:
                    stream.write(".")
        time.sleep(60)
    """
    argv = [sys.executable, "-c", textwrap.dedent(script)]
    done = run(argv, wall=make_wall(), log=tmp_path / "log", timeout_s=1.0)
    late = tmp_path / "inside" / "late"
    size = late.stat().st_size
    assert done.timed_out and size > 0
    time.sleep(0.2)
    assert late.stat().st_size == size


def test_a_second_start_cannot_read_what_the_first_one_said(make_wall, tmp_path: Path) -> None:
    """The inside may open its own log for reading where there is a /proc/self: it must hold this start only."""
    script = """
        import os
        print("a note to the next start", flush=True)
        try:
            print(open("/proc/self/fd/1").read().count("note"), flush=True)
        except OSError as error:
            print(type(error).__name__, flush=True)
    """
    wall, log = make_wall(), tmp_path / "log" / "server.log"
    seen = []
    for _ in range(2):
        done = run([sys.executable, "-c", textwrap.dedent(script)], wall=wall, log=log, timeout_s=20)
        seen.append(done.log_tail.splitlines()[-1])
    assert set(seen) <= {"1", "PermissionError"}
    assert "note" in (tmp_path / "log" / "server.1.log").read_text()


# -- what a spec lets its servers use


def test_the_declared_memory_of_a_cpu_target_is_its_servers_limit() -> None:
    hardware = Hardware(name="small", memory_gib=0.5, count=2)
    assert resources_of(Sandbox(), hardware=hardware).max_memory_gib == 1.0
    assert resources_of(Sandbox(max_memory_gib=0.25), hardware=hardware).max_memory_gib == 0.25


@pytest.mark.parametrize(
    ("override", "text"),
    [
        ("sandbox.max_processes=0", "sandbox.max_processes: 0 is below 1"),
        ("sandbox.max_memory_gib=-1", "sandbox.max_memory_gib=-1: -1 is below 0"),
        ("sandbox.max_disk_gib=0", "sandbox.max_disk_gib: 0 is not above 0"),
    ],
)
def test_limits_that_are_none_are_refused(override: str, text: str) -> None:
    with pytest.raises(SpecError, match=re.escape(text)):
        compose_spec(["+target=tiny_cpu", override])


def test_nobody_may_use_the_whole_machine() -> None:
    most = AUTO_MEMORY_SHARE * machine_memory_gib()
    assert resources_of(Sandbox(), hardware=Hardware(name="large", memory_gib=1e6)).max_memory_gib == most
    undeclared = resources_of(Sandbox(), hardware=Hardware(name="any"))
    assert undeclared.memory_bytes == pytest.approx(most * 2**30, rel=1e-6)


# -- control groups of either version, in a hierarchy of plain files


@pytest.fixture
def hierarchy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Plain files: `mounted` holds (kind, options, folder below the root), `text` is our /proc/self/cgroup."""

    def lay(text: str, *mounted: tuple[str, str, str], shown: str = "/", **files: str) -> Path:
        root = tmp_path / "cgroup"
        (tmp_path / "self").write_text(text)
        lines = [f"30 25 0:26 {shown} {root / at} rw shared:9 - {kind} x rw,{words}" for kind, words, at in mounted]
        (tmp_path / "mounts").write_text("\n".join(["22 1 0:5 / /proc rw - proc proc rw", *lines]) + "\n")
        for path, content in files.items():
            file = root / path.replace("__", "/")
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(content)
        monkeypatch.setattr(hierarchies, "_MOUNTS", tmp_path / "mounts")
        monkeypatch.setattr(hierarchies, "_SELF", tmp_path / "self")
        return root

    return lay


V2_ALONE = ("cgroup2", "nsdelegate", "")


def test_version_2_has_one_group_for_both(hierarchy) -> None:
    root = hierarchy("0::/mine\n", V2_ALONE, **{"mine__cgroup.subtree_control": "cpu memory pids\n"})
    (folder,) = cgroup_of("feed").folders
    assert folder.parent == root / "mine"
    assert re.fullmatch(rf"vibeserve-\d+-{os.getpid()}-\d+-feed", folder.name)
    assert (cgroup_of("feed").pids, cgroup_of("feed").memory) == (folder, folder)


def test_version_1_has_one_for_each(hierarchy) -> None:
    mounted = [("cgroup", "pids", "pids"), ("cgroup", "memory", "memory"), ("cgroup2", "", "unified")]
    root = hierarchy("4:memory:/a\n3:pids:/b\n0::/\n", *mounted)
    assert [folder.parent for folder in cgroup_of("feed").folders] == [root / "pids/b", root / "memory/a"]


def test_a_container_sees_its_own_group_as_the_root(hierarchy) -> None:
    """The mount shows a part of the hierarchy, and our path is the whole one's."""
    root = hierarchy("4:memory:/docker/ab\n", ("cgroup", "memory", "memory"), shown="/docker/ab")
    assert [folder.parent for folder in cgroup_of("feed").folders] == [root / "memory"]
    hierarchy("4:memory:/elsewhere\n", ("cgroup", "memory", "memory"), shown="/docker/ab")
    assert cgroup_of("feed").folders == ()


def test_a_controller_that_is_not_passed_down_is_not_used(hierarchy) -> None:
    hierarchy("0::/mine\n", V2_ALONE, **{"mine__cgroup.subtree_control": "pids\n"})
    assert cgroup_of("feed").memory is None
    hierarchy("0::/mine\n", V2_ALONE, **{"mine__cgroup.subtree_control": "\n"})
    assert make_cgroup("feed", Resources()) == Cgroup(pids=None, memory=None)
    assert make_cgroup("feed", Resources()).stopped_by == "SIGSTOP"


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({"memory.events": "low 0\noom_kill 1\n"}, Exceeded.MEMORY),
        ({"memory.oom_control": "oom_kill_disable 0\nunder_oom 0\noom_kill 2\n"}, Exceeded.MEMORY),
        ({"pids.events": "max 7\n"}, Exceeded.PROCESSES),
        ({"memory.events": "oom_kill 1\n", "pids.events": "max 7\n"}, Exceeded.MEMORY),
        ({"memory.events": "oom 3\noom_kill 0\n", "pids.events": "max 0\n"}, None),
        ({}, None),
    ],
)
def test_the_kernels_counts_say_what_was_exceeded(tmp_path: Path, files: dict[str, str], expected) -> None:
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    assert Cgroup(pids=tmp_path, memory=tmp_path).exceeded() is expected


def test_written_bytes_follow_no_link_and_count_a_file_once(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a/one").write_bytes(bytes(1 << 20))
    os.link(tmp_path / "a/one", tmp_path / "a/same")
    (tmp_path / "big").write_bytes(bytes(4 << 20))
    (tmp_path / "a/link").symlink_to(tmp_path / "big")
    assert 1 << 20 <= written_bytes([tmp_path / "a"]) < 2 << 20
