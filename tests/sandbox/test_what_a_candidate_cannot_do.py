"""The attacks on the wall, one line each, with what becomes of them on tier A and on tier B.

A candidate's server sees its workspace and its model, read-only, and one folder that it may write (a build's). It is
told where everything lies that it must not reach. An attack's result is the name of the exception, the name of the
error number of a bare system call, or the value that it got; `done` without a value. What is `done` without effect is
looked at from outside afterwards.
"""

from __future__ import annotations

import ctypes
import json
import os
import platform
import resource
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

import vibeserve
from vibeserve.hosts import LocalHost
from vibeserve.sandbox import Wall, probe_tiers, run
from vibeserve.sandbox.layout import site_folders
from vibeserve.spec import Tier

ABSENT, DENIED, REFUSED, GONE = "FileNotFoundError", "PermissionError", "ConnectionRefusedError", "ProcessLookupError"
DONE, OS_ERROR = "done", "OSError"

# -- name, one line of Python, tier A, tier B

READING = [
    ("golden replies", "open(outside + '/golden.json').read()", ABSENT, DENIED),
    ("references beside the weights", "open(model + '/golden/replies.json').read()", ABSENT, DENIED),
    ("the evaluator's seeds", "open(outside + '/run/seeds.json').read()", ABSENT, DENIED),
    ("the journal", "open(outside + '/run/journal.jsonl').read()", ABSENT, DENIED),
    ("the store of checkpoints", "open(outside + '/run/store.git/HEAD').read()", ABSENT, DENIED),
    ("another candidate's workspace", "open(outside + '/run/workspaces/r01a1/runtime.py').read()", ABSENT, DENIED),
    ("another run", "os.listdir(outside + '/other-run')", ABSENT, DENIED),
    ("the home folder", "os.listdir(outside + '/home')", ABSENT, DENIED),
    ("a key in the home folder", "open(outside + '/home/.ssh/id_ed25519').read()", ABSENT, DENIED),
    ("the framework's source", "open(framework).read()", ABSENT, DENIED),
    ("accounts", "open('/etc/passwd').read()", ABSENT, DENIED),
    ("the controller's environment", "open(f'/proc/{controller}/environ').read()", ABSENT, DENIED),
    ("the controller's memory", "open(f'/proc/{controller}/mem', 'rb').read(1)", ABSENT, DENIED),
    ("another process's command line", "open(f'/proc/{victim}/cmdline').read()", ABSENT, DENIED),
    ("a secret in its own environment", "[name for name in os.environ if 'SECRET' in name]", [], []),
    ("a list of processes", "len([name for name in os.listdir('/proc') if name.isdigit()]) < 4", True, DENIED),
    ("what runs in other control groups", "os.listdir('/sys/fs/cgroup')", ABSENT, DENIED),
    ("the kernel's log", "os.open('/dev/kmsg', os.O_RDONLY)", ABSENT, DENIED),
    ("the kernel's messages", "os.open('/proc/kmsg', os.O_RDONLY)", DENIED, DENIED),
    ("by a link in its own folder", "os.symlink(outside + '/golden.json', 'l'); open('l').read()", ABSENT, DENIED),
    ("whether a file is there", "os.stat(outside + '/golden.json').st_size", ABSENT, 6),  # Landlock hides no names
    ("watching a file be read", "call('inotify_init1', 0)", "EPERM", "EPERM"),
    ("a notice when a folder is read", "fcntl.fcntl(os.open('/usr/lib', os.O_RDONLY), 1026, 1)", DENIED, DENIED),
    ("a lease that makes openers wait", "fcntl.fcntl(os.open('/bin/sh', os.O_RDONLY), 1024, 0)", DENIED, DENIED),
]

PLANTING = [
    ("its own sources", "open(workspace + '/runtime.py', 'a')", OS_ERROR, DENIED),
    ("a file beside its sources", "open(workspace + '/sitecustomize.py', 'w')", OS_ERROR, DENIED),
    ("the weights", "open(model + '/bf16/weights', 'a')", OS_ERROR, DENIED),
    ("the weights' end", "os.truncate(model + '/bf16/weights', 0)", OS_ERROR, DENIED),
    ("the weights' name", "os.rename(model + '/bf16/weights', 'weights')", OS_ERROR, DENIED),
    ("a hard link to the weights", "os.link(model + '/bf16/weights', 'weights')", OS_ERROR, OS_ERROR),
    ("the weights' mode", "os.chmod(model + '/bf16/weights', 0o777)", OS_ERROR, DONE),
    ("the weights' times", "os.utime(model + '/bf16/weights', (1, 1))", OS_ERROR, DONE),
    ("notes in attributes of the weights", "os.setxattr(model + '/bf16/weights', 'user.x', b'1')", OS_ERROR, DENIED),
    ("the evaluator's file", "open(outside + '/golden.json', 'a')", ABSENT, DENIED),
    ("the evaluator's file's mode", "os.chmod(outside + '/golden.json', 0)", ABSENT, DONE),
    ("the evaluator's file's times", "os.utime(outside + '/golden.json', (1, 1))", ABSENT, DONE),
    ("the judge's result", "open(outside + '/run/verdict.json', 'w')", ABSENT, DENIED),
    ("sitecustomize for everybody", "open(site + '/sitecustomize.py', 'w')", OS_ERROR, DENIED),
    ("a .pth for everybody", "open(site + '/zz.pth', 'w')", OS_ERROR, DENIED),
    ("LD_PRELOAD for everybody", "open('/etc/ld.so.preload', 'w')", OS_ERROR, DENIED),
    ("a program beside the interpreter", "open(sys.prefix + '/bin/git', 'w')", OS_ERROR, DENIED),
    ("a program on the evaluator's PATH", "open(outside + '/bin/curl', 'w')", ABSENT, DENIED),
    ("the user's start-up file", "open(outside + '/home/.bashrc', 'a')", ABSENT, DENIED),
    ("a folder of its own in /dev/shm that stays", "open('/dev/shm/vibeserve-attack', 'w')", DONE, DENIED),
    ("a file in /tmp that stays", "open('/tmp/vibeserve-attack', 'w')", DONE, DENIED),
]

PROCESSES = [
    ("tracing", "call('ptrace', 16, victim, 0, 0)", "EPERM", "EPERM"),
    ("another's memory", "call('process_vm_readv', victim, None, 0, None, 0, 0)", "EPERM", "EPERM"),
    ("another's descriptors", "call('pidfd_getfd', 3, 0, 0)", "EPERM", "EPERM"),
    ("a signal to the controller", "os.kill(controller, 0)", GONE, DENIED),
    ("a signal to another process", "os.kill(victim, 9)", GONE, DENIED),
    ("a signal by descriptor", "signal.pidfd_send_signal(os.pidfd_open(victim), 9)", GONE, DENIED),
    ("another's priority", "os.setpriority(os.PRIO_PROCESS, victim, 19)", GONE, DENIED),
    ("another's limits", "resource.prlimit(victim, resource.RLIMIT_NOFILE, (1, 1))", DENIED, DENIED),
    ("the client's cores", "os.sched_setaffinity(victim, cpus[:1])", DONE, DONE),
    ("the client's core for itself", "os.sched_setaffinity(0, cpus); sorted(os.sched_getaffinity(0))", "cpu", "cpu"),
    ("a better priority", "os.nice(-5)", DENIED, DENIED),
    ("a real-time class",
     "os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(9)); os.sched_getscheduler(0)", 0, 0),
    ("more processes", "raise_limit(resource.RLIMIT_NPROC)", "ValueError", "ValueError"),
    ("larger files", "raise_limit(resource.RLIMIT_FSIZE)", "ValueError", "ValueError"),
    ("SIGCONT from a descriptor", "fcntl.fcntl(0, 10, 18)", DENIED, DENIED),
    ("a descriptor's signals for others", "fcntl.fcntl(0, 8, victim)", DENIED, DENIED),
    ("being spared when memory ends", "os.write(os.open('/proc/self/oom_score_adj', 1), b'-1000')", DENIED, DENIED),
]  # fmt: skip

NETWORK = [
    ("a machine outside", "socket.create_connection(('192.0.2.1', 80), 2)", OS_ERROR, DENIED),
    ("a name server", "udp().sendto(b'x', ('192.0.2.1', 53))", OS_ERROR, DENIED),
    ("a name", "socket.getaddrinfo('example.com', 80)", "gaierror", "gaierror"),
    ("a listener on the host's loopback", "socket.create_connection(('127.0.0.1', port), 2)", REFUSED, DENIED),
    ("the same, connecting by sendto", "socket.socket().sendto(b'x', FAST, ('127.0.0.1', port))", REFUSED, DENIED),
    ("the same, by sendmsg", "socket.socket().sendmsg([b'x'], [], FAST, ('127.0.0.1', port))", REFUSED, DENIED),
    ("the same, by IPv6", "socket.socket(socket.AF_INET6).connect(('::ffff:127.0.0.1', port))", REFUSED, DENIED),
    ("the same, by several paths", "stream(262).connect(('127.0.0.1', port))", REFUSED, DENIED),
    ("a socket file of the host", "unix().connect(outside + '/host.sock')", ABSENT, DENIED),
    ("a datagram socket of the host's from a pair", "pair().sendto(b'x', outside + '/host.datagrams')", ABSENT, DENIED),
    ("the same as a raw pair", "pair(socket.SOCK_RAW).sendto(b'x', outside + '/host.datagrams')", ABSENT, DENIED),
    ("an abstract socket of the host", "unix().connect(abstract)", REFUSED, DENIED),
    ("raw packets", "socket.socket(socket.AF_INET, socket.SOCK_RAW, 1)", DENIED, DENIED),
    ("the hypervisor", "socket.socket(socket.AF_VSOCK, socket.SOCK_STREAM)", DENIED, DENIED),
    ("a pair of another family", "socket.socketpair(30, socket.SOCK_STREAM)", DENIED, OS_ERROR),
    ("frames", "socket.socket(socket.AF_PACKET, socket.SOCK_RAW)", DENIED, DENIED),
    ("a port of somebody else's", "socket.socket().bind(('127.0.0.1', given - 1))", DONE, DENIED),
    ("the port that was given", "socket.create_server(('127.0.0.1', given)).close()", DONE, DONE),
    ("the host's System V memory", "call('shmat', segment, 0, 0)", "EINVAL", "EPERM"),
]

KERNEL = [
    (name, f"call('{name}', {arguments})", "EPERM", "EPERM")
    for name, arguments in (
        ("unshare", "0x10000000"), ("clone", "0x10000011, 0, 0, 0, 0"), ("setns", "0, 0"), ("mount", "0, 0, 0, 0, 0"),
        ("umount2", "0, 0"), ("pivot_root", "0, 0"), ("chroot", "0"), ("fsopen", "0, 0"), ("open_tree", "0, 0, 0"),
        ("keyctl", "0, 0, 0"), ("add_key", "0, 0, 0, 0, 0"), ("request_key", "0, 0, 0, 0"), ("bpf", "0, 0, 0"),
        ("io_uring_setup", "1, 0"), ("perf_event_open", "0, 0, 0, 0, 0"), ("userfaultfd", "0"),
        ("open_by_handle_at", "0, 0, 0"), ("init_module", "0, 0, 0"), ("kexec_load", "0, 0, 0, 0"),
        ("clock_settime", "0, 0"), ("sethostname", "0, 0"), ("swapon", "0, 0"), ("acct", "0"),
    )
]  # fmt: skip
ATTACKS = [*READING, *PLANTING, *PROCESSES, *NETWORK, *KERNEL]

NUMBERS = {  # name -> (x86_64, aarch64), of asm/unistd_64.h and asm-generic/unistd.h
    "unshare": (272, 97), "clone": (56, 220), "setns": (308, 268), "mount": (165, 40), "umount2": (166, 39),
    "pivot_root": (155, 41), "chroot": (161, 51), "fsopen": (430, 430), "open_tree": (428, 428), "keyctl": (250, 219),
    "add_key": (248, 217), "request_key": (249, 218), "bpf": (321, 280), "io_uring_setup": (425, 425),
    "perf_event_open": (298, 241), "userfaultfd": (323, 282), "open_by_handle_at": (304, 265),
    "init_module": (175, 105), "kexec_load": (246, 104), "clock_settime": (227, 112), "sethostname": (170, 161),
    "swapon": (167, 224), "acct": (163, 89), "ptrace": (101, 117), "process_vm_readv": (310, 270),
    "pidfd_getfd": (438, 438), "inotify_init1": (294, 26), "shmat": (30, 196),
}  # fmt: skip

PROGRAM = """
import ctypes, errno, fcntl, json, os, resource, signal, socket, sys
facts, attacks = json.load(open(sys.argv[1]))
globals().update(facts)
libc = ctypes.CDLL(None, use_errno=True)
FAST = 0x20000000  # MSG_FASTOPEN
golden = (outside + "/golden.json").encode()
abstract = "\\0" + abstract_name

def call(name, *arguments):
    result = libc.syscall(numbers[name], *arguments)
    if name == "clone" and result == 0:
        os._exit(0)
    return "done" if result >= 0 else errno.errorcode[ctypes.get_errno()]

def udp():
    return socket.socket(socket.AF_INET, socket.SOCK_DGRAM)

def pair(kind=socket.SOCK_DGRAM):
    return socket.socketpair(socket.AF_UNIX, kind)[0]

def unix():
    return socket.socket(socket.AF_UNIX)

def stream(protocol):
    return socket.socket(socket.AF_INET, socket.SOCK_STREAM, protocol)

def raise_limit(kind):
    hard = resource.getrlimit(kind)[1]
    resource.setrlimit(kind, (hard + 1, hard + 1))

def attempt(line):
    *before, last = line.split("; ")
    try:
        for part in before:
            exec(part, globals())
        value = eval(last, globals())
    except Exception as error:
        return type(error).__name__
    return value if isinstance(value, (bool, int, str, list)) else "done"

results = {name: attempt(line) for name, line in attacks}
print(json.dumps(results))
"""


@dataclass(frozen=True, kw_only=True)
class Scene:
    """What lies around the wall, and what became of it."""

    outside: Path
    victim: subprocess.Popen[bytes]
    results: dict[str, Any]
    cpu: int
    heard: list[str] = field(default_factory=list)
    """listeners of the host that somebody connected to"""
    changed: list[str] = field(default_factory=list)
    """files outside the one writable folder that are not as they were"""


@pytest.fixture(scope="module", params=["A", "B"])
def tier(request: pytest.FixtureRequest) -> Tier:
    state = probe_tiers()[request.param]
    if state != "available":
        pytest.skip(f"tier {request.param}: {state}")
    return Tier(request.param)


@pytest.fixture(scope="module")
def scene(tier: Tier) -> Iterator[Scene]:
    """All attacks of the table, tried by one walled program per tier."""
    os.environ["VIBESERVE_SECRET"] = "k"
    # outside /tmp too: tier A has a /tmp of its own anyway, and must not be saved by that alone
    with (
        tempfile.TemporaryDirectory(prefix="vibeserve-scene-", dir="/var/tmp") as name,
        subprocess.Popen(["/bin/sleep", "600"]) as victim,
        socket.create_server(("127.0.0.1", 0)) as listener,
        socket.socket(socket.AF_UNIX) as by_path,
        socket.socket(socket.AF_UNIX) as abstract,
    ):
        folder = Path(name)
        outside = _outside(folder)
        abstract_name = f"vibeserve-{os.getpid()}-{tier.value}"
        by_path.bind(str(outside / "host.sock"))
        abstract.bind("\0" + abstract_name)
        segment = ctypes.CDLL(None).shmget(0, 4096, 0o1600)
        try:
            given = LocalHost().lease_port()
            facts = _facts(folder, victim=victim.pid, port=listener.getsockname()[1], given=given)
            facts |= {"abstract_name": abstract_name, "segment": segment}
            sockets = {"TCP": listener, "a socket file": by_path, "an abstract socket": abstract}
            yield _tried(folder, victim, tier=tier, facts=facts, sockets=sockets)
        finally:
            ctypes.CDLL(None).shmctl(segment, 0, None)
            victim.kill()
            del os.environ["VIBESERVE_SECRET"]


def _outside(folder: Path) -> Path:
    """The evaluator's side: files that every user may read, so that nothing but the wall closes them."""
    outside = folder / "outside"
    for path in (
        "golden.json", "run/seeds.json", "run/journal.jsonl", "run/store.git/HEAD", "run/workspaces/r01a1/runtime.py",
        "other-run/journal.jsonl", "home/.ssh/id_ed25519", "home/.bashrc", "bin/curl", "../workspace/runtime.py",
        "../model/bf16/weights", "../model/golden/replies.json",
    ):  # fmt: skip
        (outside / path).parent.mkdir(parents=True, exist_ok=True)
        (outside / path).write_text("golden")
    return outside


def _facts(folder: Path, *, victim: int, port: int, given: int) -> dict[str, Any]:
    column = 0 if platform.machine() == "x86_64" else 1
    return {
        "outside": str(folder / "outside"), "workspace": str(folder / "workspace"), "model": str(folder / "model"),
        "framework": vibeserve.__file__,
        "site": str(site_folders(Path(sys.executable))[0]),
        "controller": os.getpid(), "victim": victim, "cpus": sorted(os.sched_getaffinity(0)), "port": port,
        "given": given, "numbers": {name: number[column] for name, number in NUMBERS.items()},
    }  # fmt: skip


def _tried(
    folder: Path, victim: subprocess.Popen[bytes], *, tier: Tier, facts: dict[str, Any], sockets: dict[str, Any]
) -> Scene:
    build, table = folder / "workspace" / "build", folder / "given.json"
    build.mkdir()
    cpu = max(os.sched_getaffinity(0))
    table.write_text(json.dumps([facts, [(name, line) for name, line, _, _ in ATTACKS]]))
    wall = Wall(
        tier=tier, workdir=build, writable=(build,), bind_port=facts["given"], cpus=(cpu,),
        read_only=(folder / "workspace", folder / "model/bf16", table), hidden_modules=("vibeserve",),
    )  # fmt: skip
    for server in sockets.values():
        server.listen()
        server.setblocking(False)
    before = _state(folder, but=build)
    done = run([sys.executable, "-c", PROGRAM, str(table)], wall=wall, log=folder / "log" / "x.log", timeout_s=60)
    assert done.returncode == 0, done.log_tail
    after = _state(folder, but=build)
    return Scene(
        outside=folder / "outside", victim=victim, results=json.loads(done.log_tail.splitlines()[-1]), cpu=cpu,
        heard=[name for name, server in sockets.items() if _has_heard(server)],
        changed=sorted(name for name in before.keys() | after.keys() if before.get(name) != after.get(name)),
    )  # fmt: skip


def _state(folder: Path, *, but: Path) -> dict[str, Any]:
    """Of every file: kind, mode, size, times of change, attributes."""
    found = {}
    for path in [*folder.rglob("*"), Path("/dev/shm/vibeserve-attack"), Path("/tmp/vibeserve-attack")]:
        if path.exists() and not path.is_relative_to(but) and "log" not in path.parts[-2:]:
            stat = path.stat()
            attributes = os.listxattr(path) if path.is_file() else []
            found[str(path)] = (stat.st_mode, stat.st_size, stat.st_mtime_ns, attributes)
    return found


def _has_heard(server: socket.socket) -> bool:
    try:
        server.accept()[0].close()
    except BlockingIOError:
        return False
    return True


@pytest.mark.parametrize(("name", "in_a", "in_b"), [pytest.param(n, a, b, id=n) for n, _, a, b in ATTACKS])
def test_it_fails(scene: Scene, tier: Tier, name: str, in_a: Any, in_b: Any) -> None:
    expected = in_a if tier is Tier.A else in_b
    assert scene.results[name] == ([scene.cpu] if expected == "cpu" else expected)


def test_nothing_outside_is_changed(scene: Scene) -> None:
    assert scene.changed == []


def test_nobody_was_reached(scene: Scene) -> None:
    assert scene.heard == []


def test_the_other_process_is_as_it_was(scene: Scene) -> None:
    pid = scene.victim.pid
    assert scene.victim.poll() is None
    assert os.sched_getaffinity(pid) == os.sched_getaffinity(0)
    assert os.getpriority(os.PRIO_PROCESS, pid) == os.getpriority(os.PRIO_PROCESS, 0)
    assert resource.prlimit(pid, resource.RLIMIT_NOFILE) == resource.getrlimit(resource.RLIMIT_NOFILE)
