"""The reference's own greedy answers, for what clients predict of them. They are made before a load and kept in memory.

A child process holds the model in f32 (`answerer.py`), so that neither the controller nor a server's folder ever holds
an answer that a candidate could find: it sees a prediction when the request that carries it arrives.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
import threading
import weakref
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import chain, islice
from pathlib import Path
from typing import IO, TYPE_CHECKING

from vibeserve.core.nouns import PromptRequest
from vibeserve.errors import InfraError
from vibeserve.workloads.predictions import predict_answer

if TYPE_CHECKING:
    from tokenizers import Tokenizer

MAX_KEPT = 4096
"""answers in memory; the oldest are forgotten and made again"""
LATER_SHARE = 8
"""of the answers ahead that are made at a time once they are used up"""
LOWEST_PRIORITY = 19
"""of the child: what it makes while a load runs must not slow the server"""
TAIL_LINES = 12


def predicted_requests(
    requests: Iterator[PromptRequest], *, kind: str, model_dir: str, tokenizer: Tokenizer, num_ahead: int
) -> Iterator[PromptRequest]:
    """`requests` with predictions of `kind` (`predictions.FROM_ANSWER`). The first `num_ahead` answers are there when
    this returns. InfraError where the child fails."""
    source = answer_source(model_dir)

    def predicted(block: Sequence[PromptRequest]) -> list[PromptRequest]:
        answers = source.answers(block)
        return [
            predict_answer(request, ids, kind=kind, tokenizer=tokenizer)
            for request, ids in zip(block, answers, strict=True)
        ]

    def later() -> Iterator[PromptRequest]:
        source.give_way()
        while block := list(islice(requests, max(1, num_ahead // LATER_SHARE))):
            yield from predicted(block)

    return chain(predicted(list(islice(requests, num_ahead))), later())


@lru_cache(maxsize=2)
def answer_source(model_dir: str) -> AnswerSource:
    """One child per model: loads of all servers ask the same."""
    return AnswerSource(model_dir)


class AnswerSource:
    """Answers by prompt and length. Several threads may ask."""

    def __init__(self, model_dir: str) -> None:
        self._model_dir = model_dir
        self._known: dict[tuple[str, int, bool], list[int]] = {}
        self._lock = threading.Lock()
        self._child: subprocess.Popen[bytes] | None = None
        self._log: IO[bytes] | None = None
        self.num_computed = 0
        """answers that the child has made so far"""

    def answers(self, requests: Sequence[PromptRequest]) -> list[list[int]]:
        """Token ids of each request's greedy answer."""
        with self._lock:
            missing = {_key(request): request for request in requests if _key(request) not in self._known}
            if missing:
                found = self._ask(list(missing.values()))
                self._known |= dict(zip(missing, found, strict=True))
                self.num_computed += len(missing)
            answers = [self._known[_key(request)] for request in requests]
            for key in list(self._known)[: max(0, len(self._known) - MAX_KEPT)]:
                del self._known[key]
            return answers

    def give_way(self) -> None:
        """A load runs: from now on the child gets what nobody else wants."""
        with self._lock:
            tasks = Path(f"/proc/{self._child.pid}/task") if self._child is not None else None
            # every thread has a priority of its own; one may end meanwhile, and other systems have no such folder
            for task in tasks.iterdir() if tasks is not None and tasks.is_dir() else ():
                with contextlib.suppress(OSError):
                    os.setpriority(os.PRIO_PROCESS, int(task.name), LOWEST_PRIORITY)

    def _ask(self, requests: Sequence[PromptRequest]) -> list[list[int]]:
        asked = [
            {"prompt": request.prompt, "max_tokens": request.max_tokens, "ignore_eos": request.ignore_eos}
            for request in requests
        ]
        child = self._started()
        assert child.stdin is not None and child.stdout is not None
        with contextlib.suppress(BrokenPipeError):  # it has ended: there will be no line
            child.stdin.write(json.dumps(asked).encode() + b"\n")
            child.stdin.flush()
        line = child.stdout.readline()
        if not line.endswith(b"\n"):
            status = child.wait()
            self._child = None
            raise InfraError(f"the reference's answers could not be made (exit {status})\n{self._log_tail()}")
        answers: list[list[int]] = json.loads(line)
        return answers

    def _started(self) -> subprocess.Popen[bytes]:
        """The child; it ends with its standard input."""
        if self._child is None:
            self._log = tempfile.TemporaryFile()  # noqa: SIM115 (lives as long as the child)
            # one core is left to the load generator; threads that wait for each other are slower than fewer
            num_threads = max(1, (os.cpu_count() or 1) - 1)
            environment = {
                **os.environ,
                "HF_HUB_OFFLINE": "1",
                "TOKENIZERS_PARALLELISM": "false",
                "OMP_NUM_THREADS": str(num_threads),
            }
            argv = [sys.executable, "-m", f"{__package__}.answerer", self._model_dir]
            self._child = subprocess.Popen(
                argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._log,
                env=environment,
            )  # fmt: skip
            weakref.finalize(self, _end, self._child)
        return self._child

    def _log_tail(self) -> str:
        assert self._log is not None
        self._log.seek(0)
        return "\n".join(self._log.read().decode(errors="replace").splitlines()[-TAIL_LINES:])


def _end(child: subprocess.Popen[bytes]) -> None:
    for stream in (child.stdin, child.stdout):
        if stream is not None:
            with contextlib.suppress(OSError):
                stream.close()
    child.kill()
    child.wait()


def _key(request: PromptRequest) -> tuple[str, int, bool]:
    return (request.prompt, request.max_tokens, request.ignore_eos)
