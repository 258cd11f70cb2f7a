"""A running server, candidate or baseline: started in its wall, awaited, paused, drained, ended as a whole tree."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import IO, Literal

from vibeserve.core.spent import Spent
from vibeserve.errors import ServerError
from vibeserve.hosts import Host
from vibeserve.sandbox import Leftover, Process, Resources, Wall, forget_process
from vibeserve.sandbox.canary import VARIABLE, Canary
from vibeserve.sandbox.cleanliness import Surroundings, foreign_listeners, leaderless, leftovers, look_around
from vibeserve.sandbox.resources import DEFAULT_RESOURCES
from vibeserve.service.first_request import MODEL, FirstRequest
from vibeserve.service.launch import Launch, command_line, model_paths, thread_environment
from vibeserve.spec import Tier

Network = Literal["isolated", "host"]
_INSIDE_PORT = 8000  # in a network namespace of its own every server may have the same
_POLL_INTERVAL_S = 0.05
LOOPBACK = "127.0.0.1"
RUNS_WHEN_STOPPED, FORBIDDEN_CALL, UNCOUNTED = "runs_when_stopped", "forbidden_call", "uncounted"
_KILLED_FOR_A_CALL = 128 + signal.SIGSYS


@dataclass(kw_only=True)
class Server:
    """A server that answered its readiness path. `base_url` is reachable from its network only: `host.join_argv`."""

    name: str
    base_url: str
    process: Process
    run_dir: Path
    startup_s: float
    """from the start of its wall to the end of its first reply, seconds; to the first 200 of its readiness path where
    nothing was asked"""
    cpus: tuple[int, ...]
    wall: Wall
    before: Surroundings
    canary: Canary
    leftovers: tuple[Leftover, ...] | None = None
    """what should not have been there, known once it is stopped"""
    spent: Spent = field(default_factory=Spent)
    """what its stop is booked on"""

    @property
    def network_pid(self) -> int | None:
        """Host pid inside its network namespace; None when it serves on the host's loopback."""
        return self.process.network_pid

    def poll(self) -> int | None:
        """Exit status, or None while it runs."""
        return self.process.poll()

    @property
    def outcome(self) -> str:
        """Of a server that has ended: `runs_when_stopped`, the limit that it ran into, `forbidden_call` for which the
        kernel ended it, else `died`."""
        exceeded = self.process.exceeded
        if self.process.moved:
            return RUNS_WHEN_STOPPED
        if exceeded is not None:
            return exceeded.value
        return FORBIDDEN_CALL if self.poll() == _KILLED_FOR_A_CALL else "died"

    def pause(self) -> None:
        """Stop all of it, by its control group's freezer or by SIGSTOP. Pause its load generator first."""
        self.process.pause()

    def resume(self) -> None:
        """Let it go on. Resume its load generator afterwards. ServerError (`runs_when_stopped`) when it did not stand
        still since `pause`; its whole tree is gone then."""
        told = self.process.moved
        self.process.resume()
        if self.process.moved != told:
            raise _failure(self, RUNS_WHEN_STOPPED, self.process.moved)

    def log_tail(self) -> str:
        return self.process.log_tail()

    def cpu_s(self) -> float:
        """CPU seconds of the whole tree so far."""
        return self.process.cpu_s()

    def cpu_by_process(self) -> dict[int, float]:
        """CPU seconds of each of its live processes so far: the ranks of a model are processes of one tree."""
        return self.process.cpu_by_process()

    def peak_memory_gib(self) -> float:
        """Highest memory of the whole tree at any call so far and of each live process ever, GiB."""
        return self.process.rss_gib()

    def check_counted(self, *, cpu_s: float) -> None:
        """Call it when it has served, with its CPU seconds from before. ServerError (`uncounted`) where it used none or
        holds no memory: then it is not what is measured that serves."""
        if self.cpu_s() <= cpu_s or self.peak_memory_gib() <= 0:
            detail = "it served, and its processes show no CPU time or no memory: what serves is not what is measured"
            raise _failure(self, UNCOUNTED, detail)

    def stop(self, *, drain_s: float = 10.0) -> bool:
        """SIGTERM, wait at most `drain_s` seconds, then kill the whole tree. True when it ended by itself."""
        with self.spent.on("stop"):
            return self._stop(drain_s)

    def _stop(self, drain_s: float) -> bool:
        found = [*foreign_listeners(self.process, self.wall), *leaderless(self.process)]
        self.process.terminate()
        drained = self.process.wait(drain_s) is not None
        self.process.kill_tree()
        forget_process(self.process, self.run_dir)
        found += leftovers(self.process, self.wall, before=self.before)
        if self.process.moved:
            found.append(Leftover(kind=RUNS_WHEN_STOPPED, text=self.process.moved))
        if self.canary.was_opened():
            text = f"something opened the decoy that {VARIABLE} names: answers are looked for"
            found.append(Leftover(kind="evaluator_read", text=text))
        self.canary.remove()
        self.leftovers = (*(self.leftovers or ()), *found)
        return drained


def start_server(
    launch: Launch,
    *,
    host: Host,
    tier: Tier,
    cpus: tuple[int, ...],
    threads: int,
    run_dir: Path,
    network: Network = "isolated",
    port: int = 0,
    resources: Resources = DEFAULT_RESOURCES,
    first: FirstRequest | None = None,
) -> Server:
    """Start `launch` behind a wall of `tier` and wait until it answers 200 on its readiness path, and then `first`.

    `run_dir` gets `<name>.log` and the record by which a resumed run finds orphans. `network="host"` serves on the
    host's loopback (for `vibeserve serve`) at `port`, 0 = a free one. Raises ServerError (`died`, `timed_out`, or a
    limit that it ran into) with the last lines of its log, after its whole tree is gone.
    """
    has_own_network = tier is Tier.A and network == "isolated"
    port = port or (_INSIDE_PORT if has_own_network else host.lease_port())
    canary = Canary()
    wall = _wall(launch, tier=tier, cpus=cpus, threads=threads, network=network, port=port, resources=resources)
    wall = replace(wall, read_only=(*wall.read_only, canary.folder), env={**wall.env, **canary.environment})
    argv = command_line(launch, address=LOOPBACK, port=port, threads=threads)
    before, start = look_around(wall), time.monotonic()
    try:
        process = host.spawn(argv, wall=wall, log=run_dir / f"{launch.name}.log", record_dir=run_dir)
    except BaseException:
        canary.remove()
        raise
    server = Server(
        name=launch.name,
        base_url=f"http://{LOOPBACK}:{port}",
        process=process,
        run_dir=run_dir,
        startup_s=0.0,
        cpus=cpus,
        wall=wall,
        before=before,
        canary=canary,
    )
    try:
        _await_ready(server, launch, host=host, port=port, first=first)
    except BaseException:
        process.kill_tree()
        forget_process(process, run_dir)
        canary.remove()
        raise
    server.startup_s = time.monotonic() - start
    return server


def _wall(
    launch: Launch,
    *,
    tier: Tier,
    cpus: tuple[int, ...],
    threads: int,
    network: Network,
    port: int,
    resources: Resources,
) -> Wall:
    return Wall(
        tier=tier,
        workdir=launch.workdir,
        read_only=(launch.workdir, *model_paths(launch.model_dir), *launch.read_only),
        listable=() if launch.model_dir is None else (launch.model_dir,),
        writable=launch.writable,
        python=launch.python,
        hidden_modules=launch.hidden_modules,
        isolate_network=network == "isolated",
        bind_port=port,
        local_sockets=launch.local_sockets,
        cpus=cpus,
        env={**thread_environment(threads), **launch.env},
        resources=resources,
    )


def _await_ready(server: Server, launch: Launch, *, host: Host, port: int, first: FirstRequest | None) -> None:
    """Wait for the poller's word, the server's death or the deadline, whichever is first."""
    script = Path(__file__).with_name("poller.py")
    argv = [sys.executable, "-I", "-S", str(script), LOOPBACK, str(port), launch.ready_path, str(_POLL_INTERVAL_S)]
    deadline = time.monotonic() + launch.ready_timeout_s
    poller, said = _start_poller(host.join_argv(server.process, argv), first)
    try:
        while True:
            code = server.poll()
            if code is not None:
                raise _failure(server, server.outcome, f"status {code} before it was ready")
            if time.monotonic() > deadline:
                detail = f"not ready on {launch.ready_path} in {launch.ready_timeout_s:g} s{_last(said)}"
                raise _failure(server, "timed_out", detail)
            try:
                status = poller.wait(_POLL_INTERVAL_S)
            except subprocess.TimeoutExpired:
                continue
            if status == 0:
                return
            # the namespace went with the server, which is reported above on the next turn; otherwise it is ours
            if server.process.wait(2.0) is None:
                raise _failure(server, "died", f"the readiness probe ended with status {status}{_last(said)}")
    finally:
        poller.kill()
        poller.wait()
        said.close()


def _start_poller(argv: list[str], first: FirstRequest | None) -> tuple[subprocess.Popen[bytes], IO[bytes]]:
    """The readiness probe, and the file that it says in what it waits for."""
    given, said = tempfile.TemporaryFile(), tempfile.TemporaryFile()  # noqa: SIM115 (the probe's, and read at its end)
    if first is not None:
        given.write(json.dumps({**asdict(first), "model": MODEL}).encode())
        given.seek(0)
    with given:
        return subprocess.Popen(argv, stdin=given, stdout=subprocess.DEVNULL, stderr=said, process_group=0), said


def _last(said: IO[bytes]) -> str:
    said.seek(0)
    lines = said.read().decode(errors="replace").strip().splitlines()
    return f": {lines[-1]}" if lines else ""


def _failure(server: Server, outcome: str, detail: str) -> ServerError:
    return ServerError(server.name, outcome=outcome, detail=detail, log_tail=server.log_tail())
