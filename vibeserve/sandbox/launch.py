"""Start a process behind its wall: tier A through bubblewrap, tiers B and C through our supervisor."""

from __future__ import annotations

import json
import os
import resource
import secrets
import select
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path
from typing import TypeVar

from vibeserve.errors import InfraError
from vibeserve.sandbox import seccomp
from vibeserve.sandbox.bubblewrap import TMP, bwrap_argv, find_bwrap
from vibeserve.sandbox.cgroups import Cgroup
from vibeserve.sandbox.confine import Confinement, default_signals, kill_me_first
from vibeserve.sandbox.guard import Guard
from vibeserve.sandbox.hierarchies import make_cgroup
from vibeserve.sandbox.process import Finished, Process, finish, open_log, read_tail, start_ticks_of
from vibeserve.sandbox.records import forget_tree, record_process, record_start
from vibeserve.sandbox.shadow import landlock_paths, make_shadow
from vibeserve.sandbox.wall import Wall, wall_environment
from vibeserve.spec import Tier

T = TypeVar("T")
_START_TIMEOUT_S = 20.0
_MAX_OPEN_FILES = 65536
_lock = threading.Lock()
_starter: ThreadPoolExecutor | None = None


def spawn(argv: Sequence[str], *, wall: Wall, log: Path, record_dir: Path | None = None) -> Process:
    """Start `argv` behind `wall`; its output goes to `log`. Raises InfraError when the wall cannot be built.

    A command that cannot be executed is a process that ends at once with its reason in the log. With `record_dir`
    the process is recorded there, from before it exists, for `sweep_orphans`.
    """
    if wall.tier not in (Tier.A, Tier.B, Tier.C):
        raise InfraError("a wall needs a resolved tier (A, B or C)\nnext: resolve_tier(Tier.auto, allow_none=...)")
    _check_paths(wall)
    tree_id = secrets.token_hex(8)
    start = _spawn_bubblewrap if wall.tier is Tier.A else _spawn_supervised
    if record_dir is None:
        return _in_starter(lambda: start(argv, wall=wall, log=log, tree_id=tree_id))
    record_start(tree_id, record_dir)
    try:
        process = _in_starter(lambda: start(argv, wall=wall, log=log, tree_id=tree_id))
    except InfraError:
        forget_tree(tree_id, record_dir)
        raise
    record_process(process, record_dir)
    return process


def run(argv: Sequence[str], *, wall: Wall, log: Path, timeout_s: float) -> Finished:
    """Run a bounded command behind `wall`; after `timeout_s` seconds its whole tree is killed."""
    return finish(spawn(argv, wall=wall, log=log), timeout_s=timeout_s)


def _check_paths(wall: Wall) -> None:
    named = (wall.workdir, *wall.read_only, *wall.writable, *wall.sockets, *wall.resources.devices)
    missing = [str(path) for path in named if not path.exists()]
    if missing:
        raise InfraError(f"the wall names paths that do not exist: {', '.join(missing)}")


def _in_starter(start: Callable[[], T]) -> T:
    """Run `start` in the one thread that starts all walled processes.

    The parent-death signal fires when the *thread* that forked ends (prctl(2)), so a short-lived caller's thread
    would take its servers with it. This thread lives as long as the interpreter.
    """
    global _starter
    with _lock:
        if _starter is None:
            _starter = ThreadPoolExecutor(max_workers=1, thread_name_prefix="vibeserve-starter")
            os.register_at_fork(after_in_child=_forget_starter)
    return _starter.submit(start).result()


def _forget_starter() -> None:
    global _starter
    _starter = None


def _limits(wall: Wall) -> dict[str, int]:
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    files = _MAX_OPEN_FILES if hard == resource.RLIM_INFINITY else min(hard, _MAX_OPEN_FILES)
    return {"NPROC": wall.resources.max_processes, "FSIZE": wall.resources.disk_bytes, "NOFILE": files, "CORE": 0}


def _spawn_bubblewrap(argv: Sequence[str], *, wall: Wall, log: Path, tree_id: str) -> Process:
    popen, info, go = _start_bwrap(argv, wall=wall, tree_id=tree_id, log_fd=open_log(log))
    cgroup = make_cgroup(tree_id, wall.resources, num_outer=1)
    try:
        inner = _read_child_pid(info)
        _hold(inner, wall)
        cgroup.enter(inner)
        process = _held(popen, wall=wall, log=log, tree_id=tree_id, cgroup=cgroup, inner=inner)
        os.write(go, b"\n")
    except (InfraError, OSError) as error:
        raise _not_built(popen, argv, log=log, cgroup=cgroup, error=error) from error
    finally:
        os.close(go)
        os.close(info)
    return process


def _held(
    popen: subprocess.Popen[bytes],
    *,
    wall: Wall,
    log: Path,
    tree_id: str,
    cgroup: Cgroup,
    inner: int | None = None,
    scratch: Path | None = None,
) -> Process:
    """The tree as the controller holds it, watched from now on."""
    keepers = frozenset() if inner is None else frozenset({inner})
    start_ticks = start_ticks_of(popen.pid)
    written = (*wall.writable, log, *(() if scratch is None else (scratch,)))
    guard = Guard(
        pid=popen.pid,
        start_ticks=start_ticks,
        keepers=keepers,
        cgroup=cgroup,
        resources=wall.resources,
        written=written,
    )
    guard.start()
    return Process(
        pid=popen.pid,
        network_pid=inner if wall.isolate_network else None,
        tier=wall.tier,
        log=log,
        start_ticks=start_ticks,
        tree_id=tree_id,
        popen=popen,
        keepers=keepers,
        cgroup=cgroup,
        guard=guard,
        scratch=scratch,
    )


def _not_built(
    popen: subprocess.Popen[bytes], argv: Sequence[str], *, log: Path, cgroup: Cgroup, error: Exception
) -> InfraError:
    """End what was started of a wall that could not be built; the error to raise."""
    popen.kill()
    popen.wait()
    cgroup.remove()
    return InfraError(f"cannot build the wall around {argv[0]}: {error}\n{read_tail(log)}")


def _start_bwrap(
    argv: Sequence[str], *, wall: Wall, tree_id: str, log_fd: int
) -> tuple[subprocess.Popen[bytes], int, int]:
    """(process, descriptor to read its description from, descriptor to write the go-ahead to). Takes `log_fd` over."""
    bwrap = find_bwrap()
    if bwrap is None:
        os.close(log_fd)
        raise InfraError("tier A needs bubblewrap\nnext: apt-get install bubblewrap (or dnf, pacman)")
    info_out, info_in = os.pipe()
    block_out, block_in = os.pipe()
    filter_fd = _filter_descriptor(wall)
    command = bwrap_argv(bwrap, argv, wall=wall, info_fd=info_in, block_fd=block_out, seccomp_fd=filter_fd)
    try:
        popen = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=log_fd,
            stderr=log_fd,
            pass_fds=(info_in, block_out, filter_fd),
            env=wall_environment(wall, tmp=TMP, tree_id=tree_id),
            cwd="/",
            start_new_session=True,  # Ctrl-C in the terminal is for the controller, which then stops its servers
            preexec_fn=default_signals,
        )
    finally:
        for descriptor in (info_in, block_out, filter_fd, log_fd):
            os.close(descriptor)
    return popen, info_out, block_in


def _filter_descriptor(wall: Wall) -> int:
    """An open temporary file that holds the seccomp program for bubblewrap."""
    descriptor = os.memfd_create("filter", os.MFD_CLOEXEC)
    program = seccomp.program(own_namespaces=True, own_network=wall.isolate_network, is_measured=wall.is_measured)
    os.write(descriptor, program)
    os.lseek(descriptor, 0, os.SEEK_SET)
    return descriptor


def _read_child_pid(info: int) -> int:
    """Host pid of the first process in the new namespaces, from bubblewrap's description (written in pieces)."""
    text = b""
    while not text.rstrip().endswith(b"}"):
        ready, _, _ = select.select([info], [], [], _START_TIMEOUT_S)
        piece = os.read(info, 4096) if ready else b""
        if not piece:
            raise InfraError("bubblewrap did not start")
        text += piece
    return int(json.loads(text)["child-pid"])


def _hold(inner: int, wall: Wall) -> None:
    """Affinity and limits of the first process inside, set from outside before it runs anything."""
    if wall.cpus:
        os.sched_setaffinity(inner, wall.cpus)
    for name, value in _limits(wall).items():
        resource.prlimit(inner, getattr(resource, f"RLIMIT_{name}"), (value, value))
    kill_me_first(inner)


def _spawn_supervised(argv: Sequence[str], *, wall: Wall, log: Path, tree_id: str) -> Process:
    scratch = Path(tempfile.mkdtemp(prefix=f"vibeserve-{tree_id}-"))
    cgroup = make_cgroup(tree_id, wall.resources)
    try:
        task = _confinement(argv, wall=wall, scratch=scratch, tree_id=tree_id, cgroup=cgroup)
        popen = _start_supervisor(tree_id, log_fd=open_log(log))
    except (InfraError, OSError):
        shutil.rmtree(scratch, ignore_errors=True)
        cgroup.remove()
        raise
    try:
        process = _held(popen, wall=wall, log=log, tree_id=tree_id, cgroup=cgroup, scratch=scratch)
        _send(popen, task)
    except (InfraError, OSError) as error:
        shutil.rmtree(scratch, ignore_errors=True)
        raise _not_built(popen, argv, log=log, cgroup=cgroup, error=error) from error
    return process


def _start_supervisor(tree_id: str, *, log_fd: int) -> subprocess.Popen[bytes]:
    """Start `confine.main`, which waits for its task on standard input. Takes `log_fd` over."""
    root = str(Path(__file__).resolve().parents[2])
    boot = f"import sys; sys.path.insert(0, {root!r}); from vibeserve.sandbox.confine import main; main()"
    try:
        return subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", boot],
            stdin=subprocess.PIPE,
            stdout=log_fd,
            stderr=log_fd,
            env={"VIBESERVE_TREE": tree_id},
            cwd="/",
            start_new_session=True,
        )
    finally:
        os.close(log_fd)


def _send(popen: subprocess.Popen[bytes], task: Confinement) -> None:
    assert popen.stdin is not None
    popen.stdin.write(json.dumps(asdict(task)).encode())
    popen.stdin.close()


def _confinement(
    argv: Sequence[str], *, wall: Wall, scratch: Path, tree_id: str, cgroup: Cgroup
) -> Confinement:  # fmt: skip
    tmp = scratch / "tmp"
    tmp.mkdir()
    is_walled = wall.tier is Tier.B
    shadow = make_shadow(wall, scratch / "python") if is_walled else None
    command = list(argv) if shadow is None else [shadow.translate(argument) for argument in argv]
    env = wall_environment(wall, tmp=tmp, tree_id=tree_id)
    read_only, list_only = landlock_paths(wall) if is_walled else ((), ())
    bindable = [port for port in (wall.bind_port, *wall.loopback_ports) if port]
    return Confinement(
        argv=command,
        env=env if shadow is None else shadow.environment(env),
        workdir=str(wall.workdir),
        parent=os.getpid(),
        cpus=list(wall.cpus),
        limits=_limits(wall) | {"NPROC": _user_threads() + wall.resources.max_processes},
        is_walled=is_walled,
        read_only=[*map(str, read_only), str(scratch / "python")],
        list_only=[str(path) for path in list_only],
        writable=[str(path) for path in (*wall.writable, *wall.resources.devices, tmp)] + list(_DEVICES),
        bind_ports=None if wall.local_sockets else bindable,
        local_sockets=wall.local_sockets,
        connect_ports=list(wall.loopback_ports),
        connect_sockets=[str(path) for path in wall.sockets],
        groups=[str(folder) for folder in cgroup.folders],
        is_measured=wall.is_measured,
    )


_DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")


def _user_threads() -> int:
    """Threads this user runs now: without namespaces RLIMIT_NPROC counts them all."""
    total = 0
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if folder.stat().st_uid == os.getuid():
                total += sum(1 for _ in (folder / "task").iterdir())
        except OSError:
            continue
    return total
