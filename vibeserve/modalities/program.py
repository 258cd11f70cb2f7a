"""Evaluators in another language: a program of the target's folder that answers one JSON line for each it is sent.

reference_argv   {"request", "output"}              -> {"expected"}
check_argv       {"request", "output", "expected"}  -> {"distances": [{"name", "values", "unit", "missing"}]}
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import queue
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vibeserve.contract import Distance, Limit, Record, Request
from vibeserve.core.documents import from_data, to_data
from vibeserve.errors import SpecError

_PR_SET_PDEATHSIG = 1
END_TIMEOUT_S = 5.0
SHOWN_CHARACTERS = 200
TAIL_LINES = 12


@dataclass(frozen=True, kw_only=True)
class ProgramSource:
    """Document: which program answers, where it runs, and how long one answer may take."""

    key: str
    """of the spec: contract.reference_argv or contract.check_argv"""
    argv: tuple[str, ...]
    folder: str
    timeout_s: float


class LineProgram:
    """A running program. Whatever it does wrong is a SpecError that names it and shows the end of its stderr."""

    def __init__(self, source: ProgramSource, *, words: dict[str, str]) -> None:
        self._source = source
        self._words = words
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 (lives as long as the program)
        self._lines: queue.Queue[bytes] = queue.Queue()
        self._process: subprocess.Popen[bytes] | None = None

    def _running(self) -> subprocess.Popen[bytes]:
        """The process, started by the first question."""
        if self._process is None:
            argv = [_filled(word, self._words) for word in self._source.argv]
            beside = Path(self._source.folder) / argv[0]
            try:
                self._process = subprocess.Popen(
                    [str(beside) if beside.is_file() else argv[0], *argv[1:]], cwd=self._source.folder,
                    stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors, start_new_session=True,
                    preexec_fn=_die_with_parent,
                )  # fmt: skip
            except OSError as error:
                raise self._error(f"cannot be started: {error.strerror or error}") from error
            threading.Thread(target=self._collect, args=(self._process,), daemon=True).start()
        return self._process

    def ask(self, question: dict[str, Any]) -> dict[str, Any]:
        """The answer to one line. SpecError for no answer in time, an early end, or what is no JSON object."""
        process = self._running()
        assert process.stdin is not None
        if not self._lines.empty() and process.poll() is None:
            raise self._error("answered more lines than it was asked")
        with contextlib.suppress(BrokenPipeError):  # it has ended: the missing answer says so
            process.stdin.write(json.dumps(question).encode() + b"\n")
            process.stdin.flush()
        try:
            line = self._lines.get(timeout=self._source.timeout_s)
        except queue.Empty:
            raise self._error(f"did not answer within {self._source.timeout_s:g} s") from None
        if not line:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(END_TIMEOUT_S)
            raise self._error(f"ended (exit {process.poll()}) before it had answered")
        try:
            answer = json.loads(line)
        except ValueError:
            raise self._error(f"answered a line that is no JSON: {_short(line)}") from None
        if not isinstance(answer, dict):
            raise self._error(f"answered {_short(line)}, which is no JSON object")
        return answer

    def wrong_shape(self, answer: dict[str, Any], *, wanted: str) -> SpecError:
        """The error for an answer of another shape."""
        return self._error(f"answered {_short(json.dumps(answer).encode())}, expected {wanted}")

    def close(self) -> None:
        """End the program and all that it started."""
        process, self._process = self._process, None
        if process is None:
            return
        with contextlib.suppress(OSError):
            if process.stdin is not None:
                process.stdin.close()
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()

    def _collect(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            self._lines.put(line)
        self._lines.put(b"")

    def _error(self, what: str) -> SpecError:
        self.close()
        self._errors.seek(0)
        tail = self._errors.read().decode(errors="replace").splitlines()[-TAIL_LINES:]
        text = f"{self._source.key}: {' '.join(self._source.argv)} {what}"
        return SpecError(text, problems=[f"| {line}" for line in tail], hint="docs/contract.md")


class ProgramReference:
    """The port of a reference, answered by a program."""

    def __init__(self, program: LineProgram) -> None:
        self._program = program

    def run(self, request: Request) -> Any:
        return self.score(request, None)

    def score(self, request: Request, output: Any) -> Any:
        answer = self._program.ask({"request": to_data(request), "output": output})
        if "expected" not in answer:
            raise self._program.wrong_shape(answer, wanted='{"expected": ...}')
        return answer["expected"]


class ProgramCheck:
    """The port of a check, answered by a program. It brings no limits: the target declares them."""

    LIMITS: Sequence[Limit] = ()

    def __init__(self, program: LineProgram) -> None:
        self._program = program

    def compare(self, expected: Any, record: Record) -> Sequence[Distance]:
        from dacite import DaciteError

        question = {"request": to_data(record.request), "output": record.served, "expected": expected}
        answer = self._program.ask(question)
        distances = answer.get("distances")
        try:
            if not isinstance(distances, list):
                raise TypeError("no list of distances")
            return [from_data(Distance, _as_floats(each)) for each in distances]
        except (DaciteError, TypeError, AttributeError):
            wanted = '{"distances": [{"name": "...", "values": [0.0], "unit": "...", "missing": "..."}]}'
            raise self._program.wrong_shape(answer, wanted=wanted) from None


def _as_floats(distance: dict[str, Any]) -> dict[str, Any]:
    """JSON writes 1.0 as 1 in many languages, and what is no number as null; true is neither."""
    values = list(distance.get("values", ()))
    if not all(type(value) in (int, float, type(None)) for value in values):
        raise TypeError("values are numbers, or null")
    return {**distance, "values": [float("nan") if value is None else float(value) for value in values]}


def _filled(word: str, words: dict[str, str]) -> str:
    for key, value in words.items():
        word = word.replace("{" + key + "}", value)
    return word


def _short(line: bytes) -> str:
    text = line.decode(errors="replace").strip()
    return text if len(text) <= SHOWN_CHARACTERS else text[:SHOWN_CHARACTERS] + "..."


def _die_with_parent() -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
