"""A conversation with our program on a host, over a command's pipes: one JSON line each way, calls side by side."""

from __future__ import annotations

import contextlib
import itertools
import json
import queue
import shlex
import subprocess
import tempfile
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import IO, Any

from vibeserve.errors import InfraError, RefusedError, ServerError

PROGRAM = "vibeserve.remote.agent"
DEFAULT_ROOT = "~/.cache/vibeserve-host"
GONE = "GoneError"
"""class of what the program there raises for a server or a load that an earlier one had started"""
CALL_TIMEOUT_S = 1800.0
END_TIMEOUT_S = 20.0


class HostLostError(InfraError):
    """The connection to a host is gone, or could not be made. Nothing is said about a candidate."""


def not_found(program: str) -> HostLostError:
    """The local program that leads to a host is not there."""
    advice = {"ssh": "install the OpenSSH client", "srun": "start this where Slurm's commands are (a login node)"}
    return HostLostError(f"{program} was not found\nnext: {advice.get(program, f'install {program}')}")


def shell_command(argv: Sequence[str], *, env: Mapping[str, str] | None = None, folder: str = "") -> str:
    """One command of a POSIX shell that becomes `argv`; a leading `~/` of a word is the home folder there."""
    words = [f"{key}={_word(value)}" for key, value in (env or {}).items()]
    start = f"cd {_word(folder)} && " if folder else ""
    return start + " ".join(["exec", *(["env", *words] if words else []), *map(_word, argv)])


def _word(text: str) -> str:
    return '"$HOME"/' + shlex.quote(text[2:]) if text.startswith("~/") else shlex.quote(text)


class Connection:
    """Calls of a running program there. `call` blocks; several threads may call at once. `on_event` gets what it says
    unasked, on a thread of its own."""

    def __init__(
        self, argv: Sequence[str], *, where: str, doctor: str, on_event: Callable[[dict[str, Any]], None]
    ) -> None:
        self._where, self._doctor = where, doctor
        self._log: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 (lives as long as the connection)
        try:
            self._process = subprocess.Popen(
                argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._log, process_group=0
            )
        except FileNotFoundError:
            raise not_found(argv[0]) from None
        self._numbers = itertools.count(1)
        self._answers: dict[int, queue.Queue[dict[str, Any] | None]] = {}
        self._lock = threading.Lock()
        self._events: queue.Queue[dict[str, Any] | None] = queue.Queue()
        self._is_lost = False
        threading.Thread(target=self._read, name="host-answers", daemon=True).start()
        threading.Thread(target=self._dispatch, args=(on_event,), name="host-events", daemon=True).start()

    @property
    def is_alive(self) -> bool:
        return not self._is_lost and self._process.poll() is None

    def call(self, method: str, given: Mapping[str, Any], *, limit_s: float = CALL_TIMEOUT_S) -> Any:
        """What `method` answers. HostLostError where the line breaks; else what the method raised, by class."""
        answer: queue.Queue[dict[str, Any] | None] = queue.Queue()
        with self._lock:
            if self._is_lost:
                raise self._lost()
            number = next(self._numbers)
            self._answers[number] = answer
            try:
                self._write({"n": number, "method": method, "given": dict(given)})
            except OSError:
                raise self._lost() from None
        try:
            found = answer.get(timeout=limit_s)
        except queue.Empty:
            raise HostLostError(f"{self._where}: no answer to {method} in {limit_s:g} s") from None
        if found is None:
            raise self._lost()
        if "error" in found:
            raise _error_of(found["error"], where=self._where)
        return found["result"]

    def close(self) -> None:
        """End the program: it stops what it has started."""
        with contextlib.suppress(OSError):
            assert self._process.stdin is not None
            self._process.stdin.close()
        try:
            self._process.wait(END_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _write(self, document: Any) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(document).encode() + b"\n")
        self._process.stdin.flush()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            with contextlib.suppress(ValueError):
                found = json.loads(line)
                if "event" in found:
                    self._events.put(found)
                elif waiting := self._answers.pop(found["n"], None):
                    waiting.put(found)
        with self._lock:
            self._is_lost = True
            for waiting in self._answers.values():
                waiting.put(None)
            self._answers.clear()
        self._events.put(None)

    def _dispatch(self, on_event: Callable[[dict[str, Any]], None]) -> None:
        while (event := self._events.get()) is not None:
            with contextlib.suppress(HostLostError):  # whoever calls next is told
                on_event(event)

    def _lost(self) -> HostLostError:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(2.0)
        self._log.seek(0)
        said = self._log.read().decode(errors="replace").strip().splitlines()
        told = f": {said[-1]}" if said else ""
        return HostLostError(
            f"the connection to {self._where} is lost{told}\n"
            f"next: {self._doctor} says what is missing there; start the same command again"
        )


def _error_of(error: Mapping[str, Any], *, where: str) -> Exception:
    """What a method raised there, as the same class here."""
    if error["class"] == "ServerError":
        facts = {key: error[key] for key in ("outcome", "detail", "log_tail")}
        return ServerError(error["name"], **facts)
    if error["class"] == GONE:
        return HostLostError(
            f"{where}: {error['message']} is gone: the connection was lost meanwhile, and another program is there\n"
            "next: start the same command again"
        )
    kind = RefusedError if error["class"] == "RefusedError" else InfraError
    return kind(f"{where}: {error['message']}")
