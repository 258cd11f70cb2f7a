"""`python -m vibeserve.remote.agent ROOT RUN`: our program on a host. It starts servers and loads for a controller.

stdin: a call per line, `{"n", "method", "given"}`; stdout: `{"n", "result"}` or `{"n", "error"}`, in any order, and
events `{"event", ...}`. End of file ends it: every process that it started is killed first. What an earlier one of the
same run left, because it was killed itself, is killed when the next one begins.

Nothing that says what is right, and no key, is ever given to it: requests come by pipe and records go back by pipe.
"""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from vibeserve.core.documents import from_data, to_data
from vibeserve.errors import ServerError
from vibeserve.hosts import LocalHost
from vibeserve.remote.loads import HostedLoad
from vibeserve.sandbox import Resources, Wall, resources_of
from vibeserve.service import FETCH_PROGRAM, FirstRequest, Launch, Server, start_server
from vibeserve.spec import Hardware, Sandbox, Tier

NUM_THREADS = 16
FETCH_TIMEOUT_S = 10.0
LOG_BYTES = 1 << 16


class GoneError(Exception):
    """Of an earlier program here, which is gone with all that it had started."""


class Agent:
    """The calls that a controller may make; every public method is one."""

    def __init__(self, root: Path, run: str, *, say: Any) -> None:
        self._root = root
        self._folder = root / "runs" / run
        self._folder.mkdir(parents=True, exist_ok=True)
        self._host = LocalHost()
        self._say = say
        self._servers: dict[str, Server] = {}
        self._loads: dict[str, HostedLoad] = {}
        self._num_swept = self._host.sweep_orphans(self._folder)

    def hello(self) -> dict[str, Any]:
        """Interpreter, and the clock for its offset from the controller's."""
        return {"python": sys.executable, "version": sys.version.split()[0], "time_s": time.time(), "pid": os.getpid()}

    def probe(self) -> Any:
        return to_data(self._host.probe())

    def lack(self) -> list[str]:
        """Modules that runtimes need and this interpreter has not."""
        from importlib.util import find_spec

        needed = ("torch", "numpy", "safetensors", "tokenizers", "uvicorn", "starlette", "uvloop", "aiohttp", "dacite")
        return [name for name in needed if find_spec(name) is None]

    def bandwidth_gb_s(self, cpus: list[int]) -> float:
        return self._host.bandwidth_gb_s(cpus)

    def resolve_tier(self, declared: str, allow_none: bool) -> str:
        return self._host.resolve_tier(Tier(declared), allow_none=allow_none).value

    def resources(self, sandbox: dict[str, Any], hardware: dict[str, Any]) -> Any:
        """What of this machine a server may use."""
        return to_data(resources_of(from_data(Sandbox, sandbox), hardware=from_data(Hardware, hardware)))

    def lease_port(self) -> int:
        return self._host.lease_port()

    def swept(self) -> int:
        """How many processes of an earlier program of this run were killed when this one began."""
        return self._num_swept

    def run(self, argv: list[str], wall: dict[str, Any], log: str, timeout_s: float) -> dict[str, Any]:
        """A bounded command; its writable folders are empty before, sent back after, and gone then."""
        inside = from_data(Wall, wall)
        for folder in inside.writable:
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir(parents=True)
        path = self._folder / log
        try:
            finished = self._host.run(argv, wall=inside, log=path, timeout_s=timeout_s)
            files = {str(folder): _contents(folder) for folder in inside.writable}
        finally:
            for folder in inside.writable:
                shutil.rmtree(folder, ignore_errors=True)
        return {"finished": to_data(finished), "files": files, "log": _tail(path)}

    # -- servers

    def serve(
        self, launch: dict[str, Any], tier: str, cpus: list[int], threads: int, resources: dict[str, Any],
        first: dict[str, Any] | None,
    ) -> dict[str, Any]:  # fmt: skip
        """Start a server and wait until it has served."""
        server = start_server(
            from_data(Launch, {**launch, "python": sys.executable}), host=self._host, tier=Tier(tier),
            cpus=tuple(cpus), threads=threads, run_dir=self._folder, resources=from_data(Resources, resources),
            first=from_data(FirstRequest, first) if first else None,
        )  # fmt: skip
        name = f"{launch['name']}-{len(self._servers)}"
        self._servers[name] = server
        return {
            "server": name, "url": server.base_url, "startup_s": server.startup_s, "pid": server.process.pid,
            "network_pid": server.network_pid,
        }  # fmt: skip

    def server_state(self, server: str) -> dict[str, Any]:
        """Exit status, outcome and the end of its log."""
        found = self._server(server)
        return {"status": found.poll(), "outcome": found.outcome, "log_tail": found.log_tail()}

    def pause(self, server: str) -> None:
        self._server(server).pause()

    def resume(self, server: str) -> None:
        self._server(server).resume()

    def usage(self, server: str) -> dict[str, Any]:
        """CPU seconds and peak memory of its tree, and CPU seconds of each of its processes."""
        found = self._server(server)
        by_process = {str(pid): seconds for pid, seconds in found.cpu_by_process().items()}
        return {"cpu_s": found.cpu_s(), "peak_memory_gib": found.peak_memory_gib(), "by_process": by_process}

    def stop(self, server: str, drain_s: float) -> dict[str, Any]:
        """End its tree; what it left behind."""
        found = self._server(server)
        drained = found.stop(drain_s=drain_s)
        return {"drained": drained, "leftovers": to_data(found.leftovers), "log_tail": found.log_tail()}

    def fetch(self, server: str, path: str) -> str:
        """Body of a GET, by a child in its network."""
        found = self._server(server)
        argv = [sys.executable, "-I", "-S", str(FETCH_PROGRAM), found.base_url + path, str(FETCH_TIMEOUT_S)]
        done = subprocess.run(
            self._host.join_argv(found.process, argv), capture_output=True, text=True, errors="replace", check=False,
            timeout=3 * FETCH_TIMEOUT_S,
        )  # fmt: skip
        if done.returncode != 0:
            detail = done.stderr.strip() or f"GET {path} failed"
            raise ServerError(found.name, outcome=found.outcome, detail=detail, log_tail=found.log_tail())
        return done.stdout

    # -- loads

    def load_start(self, load: str, server: str, job: dict[str, Any]) -> float:
        """Start a generator beside a server; it asks for requests by the event `need`."""
        found = self._server(server)
        hosted = HostedLoad(
            job={**job, "base_url": found.base_url}, name=load,
            join=lambda argv: self._host.join_argv(found.process, argv),
            need=lambda: self._say({"event": "need", "load": load}),
        )  # fmt: skip
        self._loads[load] = hosted
        hosted.start()
        return hosted.active_now_s()

    def load_feed(self, load: str, line: str | None) -> None:
        """One request as the generator reads it; None ends the stream."""
        self._load(load).feed(line)

    def load_pause(self, load: str) -> None:
        self._load(load).pause()

    def load_resume(self, load: str) -> None:
        self._load(load).resume()

    def load_now(self, load: str) -> float:
        """Its active seconds; raises where the generator has died."""
        self._load(load).check()
        return self._load(load).active_now_s()

    def load_lines(self, load: str, start: int) -> list[str]:
        """What the generator has reported since line `start`."""
        return self._load(load).lines_from(start)

    def load_wait(self, load: str, timeout_s: float) -> None:
        self._load(load).wait(timeout_s=timeout_s)

    def load_stop(self, load: str, start: int) -> list[str]:
        """End it; the rest of what it reported."""
        hosted = self._load(load)
        hosted.end()
        return hosted.lines_from(start)

    def _server(self, name: str) -> Server:
        if name not in self._servers:
            raise GoneError(f"server {name}")
        return self._servers[name]

    def _load(self, name: str) -> HostedLoad:
        if name not in self._loads:
            raise GoneError(f"load {name}")
        return self._loads[name]

    def end(self) -> None:
        """Kill everything."""
        for load in self._loads.values():
            load.kill()
        for server in self._servers.values():
            server.process.kill_tree()


def _contents(folder: Path) -> dict[str, str]:
    paths = [path for path in sorted(folder.rglob("*")) if path.is_file() and not path.is_symlink()]
    return {path.relative_to(folder).as_posix(): base64.b64encode(path.read_bytes()).decode() for path in paths}


def _tail(path: Path) -> str:
    return path.read_bytes()[-LOG_BYTES:].decode(errors="replace") if path.is_file() else ""


def _fault(error: BaseException) -> dict[str, Any]:
    facts: dict[str, Any] = {"class": type(error).__name__, "message": str(error)}
    if isinstance(error, ServerError):
        facts |= {"name": error.name, "outcome": error.outcome, "detail": error.detail, "log_tail": error.log_tail}
    return facts


def _calls() -> Iterator[dict[str, Any]]:
    for line in sys.stdin.buffer:
        yield json.loads(line)


def main(root: str, run: str) -> None:
    """Answer until the controller is gone."""
    lock, out = threading.Lock(), os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what anything prints is no answer

    def say(document: Any) -> None:
        with lock:
            out.write(json.dumps(document).encode() + b"\n")
            out.flush()

    agent = Agent(Path(root), run, say=say)

    def answer(call: dict[str, Any]) -> None:
        try:
            result = getattr(agent, call["method"])(**call["given"])
            say({"n": call["n"], "result": result})
        except BaseException as error:
            say({"n": call["n"], "error": _fault(error)})  # whatever it is, somebody waits for an answer
            raise

    # a thread that starts a generator must outlive it, so that all are kept until the end
    pool = ThreadPoolExecutor(NUM_THREADS)
    try:
        for call in _calls():
            pool.submit(answer, call)
    finally:
        agent.end()
        os._exit(0)  # whatever still waits there waits for what is dead; supervisors end the rest with us


if __name__ == "__main__":
    main(*sys.argv[1:])
