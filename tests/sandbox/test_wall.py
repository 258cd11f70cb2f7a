"""What a walled process cannot reach, in every tier that this machine can build."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from vibeserve.errors import InfraError
from vibeserve.sandbox import Resources, Wall, run, spawn
from vibeserve.spec import Tier

ATTEMPT = """
import json, os, socket, sys
def attempt(action):
    try:
        action()
    except OSError as error:
        return type(error).__name__
    return "done"
"""


def test_writing_is_possible_only_where_it_is_named(make_wall, answer, tmp_path: Path) -> None:
    denied = ["/x", "/etc/x", "/usr/x", "/dev/x", "/proc/sys/vm/drop_caches", sys.prefix + "/x"]
    targets = ["inside/x", *denied, "../outside"]
    script = f"{ATTEMPT}\nprint(json.dumps([attempt(lambda p=p: open(p, 'w')) for p in {targets!r}]))"
    (tmp_path / "inside" / "inside").mkdir()
    first, *others, _ = answer(script, wall=make_wall())
    assert first == "done"
    assert all(result in ("PermissionError", "OSError", "FileNotFoundError") for result in others), others
    assert (tmp_path / "inside" / "inside" / "x").exists()
    # tier A has a private /tmp, where this test's folder lies: it may write beside the wall's paths, and nobody sees it
    assert not (tmp_path / "outside").exists()


def test_read_only_paths_can_be_read_and_not_changed(make_wall, answer, tmp_path: Path) -> None:
    given = tmp_path / "given"
    given.mkdir()
    (given / "weights").write_text("w")
    script = f"""{ATTEMPT}
print(json.dumps([open('{given}/weights').read(), attempt(lambda: open('{given}/weights', 'w')),
                  attempt(lambda: os.remove('{given}/weights'))]))"""
    text, write, remove = answer(script, wall=make_wall(read_only=(given,)))
    assert text == "w"
    assert write != "done" and remove != "done"


def test_evaluators_files_are_not_readable(make_wall, answer, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("golden")
    files = [str(tmp_path / "secret"), __file__, "/etc/shadow", "/etc/passwd", f"/proc/{os.getpid()}/environ"]
    script = f"{ATTEMPT}\nprint(json.dumps([attempt(lambda p=p: open(p)) for p in {files!r}]))"
    results = answer(script, wall=make_wall())
    # tier A has accounts of no kind; what is not there is not found, what is there is not allowed
    assert all(result in ("FileNotFoundError", "PermissionError") for result in results), results


def test_environment_is_clean(make_wall, answer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET_API_KEY", "k")
    seen = answer("import json, os; print(json.dumps(dict(os.environ)))", wall=make_wall(env={"GIVEN": "1"}))
    assert set(seen) <= {
        "PATH",
        "HOME",
        "TMPDIR",
        "LANG",
        "USER",
        "LOGNAME",
        "VIBESERVE_TREE",
        "GIVEN",
        "PWD",
        "LC_CTYPE",
    }
    assert seen["GIVEN"] == "1"


def test_no_descriptor_of_ours_is_inherited(make_wall, answer) -> None:
    script = """
        import json, os
        held = []
        for fd in range(3, 256):
            try:
                os.fstat(fd)
            except OSError:
                continue
            held.append(fd)
        print(json.dumps(held))
    """
    with Path(__file__).open() as kept:
        os.set_inheritable(kept.fileno(), True)
        assert answer(script, wall=make_wall()) == []


def test_the_outside_is_unreachable(make_wall, answer) -> None:
    with socket.create_server(("127.0.0.1", 0)) as ours:
        script = f"""{ATTEMPT}
port = {ours.getsockname()[1]}
udp = lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b"x", ("192.0.2.1", 53))
print(json.dumps([attempt(lambda: socket.create_connection(("127.0.0.1", port), 2)),
                  attempt(lambda: socket.create_connection(("192.0.2.1", 80), 2)), attempt(udp)]))"""
        assert "done" not in answer(script, wall=make_wall())


def test_tier_b_binds_the_leased_port_only(make_wall, answer, tier: Tier, free_port: int) -> None:
    if tier is not Tier.B:
        pytest.skip("tier A has a network of its own")
    script = f"""{ATTEMPT}
bind = lambda port: socket.socket().bind(("127.0.0.1", port))
families = (socket.AF_UNIX, socket.AF_NETLINK, socket.AF_PACKET)
print(json.dumps([attempt(lambda: bind({free_port})), attempt(lambda: bind(0)), attempt(lambda: bind({free_port} - 1)),
                  *(attempt(lambda f=f: socket.socket(f, socket.SOCK_RAW)) for f in families)]))"""
    leased, *others = answer(script, wall=make_wall(bind_port=free_port))
    assert leased == "done"
    assert set(others) == {"PermissionError"}


def test_a_served_runtime_has_tcp_and_nothing_else_of_the_hosts_network(
    make_wall, answer, free_port: int, tier
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as ours, socket.socket(socket.AF_UNIX) as abstract:
        abstract.bind(f"\0vibeserve-served-{os.getpid()}")
        abstract.listen()
        script = f"""{ATTEMPT}
def serve():
    socket.create_server(("127.0.0.1", {free_port})).close()
print(json.dumps([
    attempt(serve), attempt(lambda: socket.create_connection(("127.0.0.1", {ours.getsockname()[1]}), 2)),
    attempt(lambda: socket.socket(socket.AF_UNIX).connect("\\0vibeserve-served-{os.getpid()}")),
    attempt(lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM)),
    attempt(lambda: socket.socket(socket.AF_NETLINK, socket.SOCK_RAW)),
]))"""
        serve, connect, *others = answer(script, wall=make_wall(isolate_network=False, bind_port=free_port))
    assert serve == "done"
    # tier A leaves connecting open: no rule of namespaces or seccomp can tell one address from another
    assert connect == ("done" if tier is Tier.A else "PermissionError")
    assert set(others) == {"PermissionError"}


def test_stock_engines_may_use_local_sockets(make_wall, answer) -> None:
    script = f"""{ATTEMPT}
def talk():
    with socket.create_server(("127.0.0.1", 0)) as server:
        socket.create_connection(server.getsockname(), 2)
print(json.dumps([attempt(talk), attempt(lambda: socket.socket(socket.AF_UNIX))]))"""
    assert answer(script, wall=make_wall(local_sockets=True)) == ["done", "done"]


def test_cpus_are_set_and_cannot_be_widened(make_wall, answer) -> None:
    cpu = max(os.sched_getaffinity(0))
    script = f"""import json, os
os.sched_setaffinity(0, {sorted(os.sched_getaffinity(0))})
print(json.dumps(sorted(os.sched_getaffinity(0))))"""
    assert answer(script, wall=make_wall(cpus=(cpu,))) == [cpu]


def test_privileges_are_gone(make_wall, answer) -> None:
    script = """
        import ctypes, json, os, signal
        status = dict(line.split(":", 1) for line in open("/proc/self/status"))
        libc = ctypes.CDLL(None, use_errno=True)
        calls = [libc.unshare(0x10000000), libc.ptrace(0, 0, 0, 0), libc.mount(b"a", b"/", b"tmpfs", 0, None)]
        print(json.dumps([int(status["CapEff"], 16), int(status["CapBnd"], 16), status["NoNewPrivs"].strip(), calls]))
    """
    assert answer(script, wall=make_wall()) == [0, 0, "1", [-1, -1, -1]]


def test_the_controller_cannot_be_signalled(make_wall, answer) -> None:
    script = f"{ATTEMPT}\nprint(json.dumps(attempt(lambda: os.kill({os.getpid()}, 0))))"
    assert answer(script, wall=make_wall()) in ("PermissionError", "ProcessLookupError")


def test_threads_processes_and_the_compiler_work(make_wall, answer) -> None:
    script = """
        import ctypes, json, multiprocessing, os, subprocess, threading
        found = []
        thread = threading.Thread(target=lambda: found.append("thread"))
        thread.start(); thread.join()
        child = os.fork()
        if child == 0:
            os._exit(0)
        os.waitpid(child, 0)
        open("f.cpp", "w").write('#include <vector>\\nextern "C" int f() { return std::vector<int>(3).size(); }')
        subprocess.run(["g++", "-O1", "-shared", "-fPIC", "-o", "f.so", "f.cpp"], check=True)
        print(json.dumps([*found, ctypes.CDLL("./f.so").f()]))
    """
    assert answer(script, wall=make_wall()) == ["thread", 3]


def test_the_number_of_processes_is_limited(make_wall, answer) -> None:
    script = """
        import json, os, time
        made = 0
        for _ in range(200):
            try:
                child = os.fork()
            except OSError:
                break
            if child == 0:
                time.sleep(30)
                os._exit(0)
            made += 1
        print(json.dumps(made), flush=True)
        os._exit(0)
    """
    from vibeserve.sandbox.hierarchies import cgroup_of

    pids = cgroup_of("x").pids
    if os.getuid() == 0 and (pids is None or not os.access(pids.parent, os.W_OK)):
        pytest.skip("root is bound by no rlimit, and the pids cgroup is not writable here")
    assert answer(script, wall=make_wall(resources=Resources(max_processes=20))) < 20


def test_a_file_cannot_outgrow_its_limit(make_wall, answer) -> None:
    script = """
        import json, signal
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        try:
            with open("big", "wb") as stream:
                stream.truncate(64 * 2**20)
        except OSError as error:
            print(json.dumps(error.errno))
    """
    assert answer(script, wall=make_wall(resources=Resources(max_disk_gib=1 / 1024))) == 27


def test_temporary_files_are_private_and_gone_afterwards(make_wall, answer) -> None:
    script = """
        import json, os, tempfile
        seen = os.listdir(tempfile.gettempdir())
        open(tempfile.gettempdir() + "/kept", "w").write("answers")
        print(json.dumps(seen))
    """
    wall = make_wall()
    first, second = answer(script, wall=wall), answer(script, wall=wall)
    assert "kept" not in second
    assert first == second


def test_a_missing_path_is_named(make_wall, tmp_path: Path) -> None:
    with pytest.raises(InfraError, match=r"paths that do not exist: .*/nowhere"):
        spawn(["/bin/true"], wall=make_wall(read_only=(tmp_path / "nowhere",)), log=tmp_path / "log")


def test_a_command_that_does_not_exist_ends_with_its_reason(make_wall, tmp_path: Path) -> None:
    done = run(["/nowhere/bin"], wall=make_wall(), log=tmp_path / "log", timeout_s=20)
    assert done.returncode != 0
    assert "/nowhere/bin" in done.log_tail


def test_an_unresolved_tier_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InfraError, match="needs a resolved tier"):
        spawn(["/bin/true"], wall=Wall(tier=Tier.auto, workdir=tmp_path), log=tmp_path / "log")


def test_relative_paths_are_a_programming_error(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="absolute"):
        Wall(tier=Tier.A, workdir=tmp_path, read_only=(Path("x"),))


def test_a_plain_user_has_the_same_walls(tmp_path: Path) -> None:
    """As root, the probe is repeated by an unprivileged user with the system's interpreter."""
    python = Path("/usr/bin/python3")
    if os.getuid() != 0 or not python.exists():
        pytest.skip("needs root, to become somebody else")
    import shutil
    import tempfile

    import vibeserve
    from vibeserve.sandbox import probe_tiers

    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        source = Path(vibeserve.__file__).parent
        (Path(name) / "vibeserve").mkdir()
        for part in ("__init__.py", "errors.py"):
            shutil.copy(source / part, Path(name, "vibeserve") / part)
        for part in ("core", "sandbox", "spec"):
            shutil.copytree(source / part, Path(name, "vibeserve") / part)
        code = (
            f"import sys; sys.path.insert(0, {name!r}); from vibeserve.sandbox import probe_tiers; print(probe_tiers())"
        )
        done = subprocess.run(
            [python, "-c", code], user=65534, group=65534, extra_groups=[], capture_output=True, text=True, cwd="/"
        )
    assert done.stdout.strip() == str(probe_tiers()), done.stderr


def test_a_timer_with_a_signal_of_its_own_ends_the_process(make_wall, tmp_path: Path) -> None:
    """It might be SIGCONT, which undoes a stop; the one of alarm(2) may be had."""
    script = """
        import ctypes, os
        libc = ctypes.CDLL(None)
        event, timer = (ctypes.c_int * 16)(), ctypes.c_void_p()
        # the C library puts SIGALRM behind a pointer of its own
        number = 222 if os.uname().machine == "x86_64" else 107
        print(libc.syscall(number, 1, None, ctypes.byref(timer)), flush=True)
        event[2] = 18
        libc.timer_create(1, ctypes.byref(event), ctypes.byref(timer))
        print("goes on", flush=True)
    """
    argv = [sys.executable, "-c", textwrap.dedent(script)]
    done = run(argv, wall=make_wall(), log=tmp_path / "log", timeout_s=20)
    assert (done.returncode, done.log_tail) == (128 + signal.SIGSYS, "0")
    done = run(argv, wall=make_wall(is_measured=False), log=tmp_path / "log", timeout_s=20)
    assert (done.returncode, done.log_tail) == (0, "0\ngoes on")
