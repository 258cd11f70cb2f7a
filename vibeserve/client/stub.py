"""A scripted OpenAI-compatible server: streams known text at known times. For tests and for the headroom check.

`python -m vibeserve.client.stub`: the script as one JSON line on stdin, then `{"port": N}` on stdout. It ends with its
stdin. `StubServer` is the parent's side. Chunk k of a reply leaves `ttft_s + k * tpot_s * chunk_tokens` after the
request was read. A stub that was stopped and continued goes on with its rhythm instead of sending what it missed at
once.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import IO

from vibeserve.errors import InfraError
from vibeserve.sandbox import tree


@dataclass(frozen=True, kw_only=True)
class Script:
    """What the stub does with every request."""

    pieces: tuple[str, ...] = (" the",)
    """text per token, cycled"""
    token_ids: tuple[int, ...] = ()
    """ids per token, cycled and in step with `pieces`; empty = none are returned"""
    ttft_s: float = 0.0
    tpot_s: float = 0.0
    chunk_tokens: int = 1
    """tokens per event"""
    num_tokens: int = 0
    """0 = as many as the request's max_tokens"""
    usage_tokens: int = -1
    """claimed completion tokens; -1 = the truth"""
    logprob: float | None = None
    """log-probability claimed for every token, where the request asks for any"""
    status: int = 200
    """other than 200: refuse with an error object"""
    fail_every: int = 0
    """n > 0: every n-th request is refused with 500"""
    drop_after_tokens: int = 0
    """n > 0: close the connection after so many tokens"""
    raw_event: str = ""
    """sent as it is in place of the second event: malformed data, an error event"""
    cpus: tuple[int, ...] = ()


class StubServer:
    """A running stub. Has the face of a server: `name`, `base_url`, `pause`, `resume`, `poll`, `stop`, `log_tail`."""

    def __init__(
        self, script: Script, *, name: str = "stub", join: Callable[[list[str]], list[str]] | None = None
    ) -> None:
        self.name = name
        argv = (join or list)([sys.executable, "-P", "-m", "vibeserve.client.stub"])
        self._process = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True)
        stdin, stdout = self._pipes()
        stdin.write(json.dumps(asdict(script)).encode() + b"\n")
        stdin.flush()
        line = stdout.readline()
        if not line:
            raise InfraError(f"stub server '{name}' did not start (exit {self._process.wait()})")
        self.base_url = f"http://127.0.0.1:{json.loads(line)['port']}"

    @property
    def pid(self) -> int:
        return self._process.pid

    def pause(self) -> None:
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        self._process.send_signal(signal.SIGCONT)

    def cpu_s(self) -> float:
        return tree.cpu_s([self.pid])

    def poll(self) -> int | None:
        """None while it runs, else its exit status."""
        return self._process.poll()

    def log_tail(self) -> str:
        return ""

    def stop(self) -> None:
        self._process.kill()
        self._process.wait()
        for pipe in self._pipes():
            pipe.close()

    def _pipes(self) -> tuple[IO[bytes], IO[bytes]]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        return self._process.stdin, self._process.stdout

    def __enter__(self) -> StubServer:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


def main() -> None:
    from vibeserve.client.stub_protocol import serve

    document = json.loads(sys.stdin.readline())
    for key in ("pieces", "token_ids", "cpus"):
        document[key] = tuple(document[key])
    script = Script(**document)
    if script.cpus:
        os.sched_setaffinity(0, script.cpus)
    serve(script)


if __name__ == "__main__":
    main()
