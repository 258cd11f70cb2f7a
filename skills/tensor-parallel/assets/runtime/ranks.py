"""The ranks of one model: the server (rank 0) and its child processes, which compute the same step together.

Rank 0 starts the others, tells each step to them by a pipe, and shares the all-reduces with them over gloo, on the
loopback of the server's own network. A rank whose pipe ends has no server any more and ends, too. A rank that ends
early ends the server: nothing can be computed without its part of the weights.
"""

from __future__ import annotations

import atexit
import json
import logging
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.distributed import FileStore, GatherOptions, ProcessGroupGloo

WORKSPACE = Path(__file__).resolve().parents[1]
MEET_S = 120.0
"""in which all ranks have found each other, once all have loaded"""
IDLE = timedelta(days=30)
"""a step's all-reduces wait for each other: a server that is stopped for an hour goes on. What is dead is told by its
closed connection, never by this"""
END_S = 10.0
"""in which a rank ends by itself when it is told to"""
INTERFACE = "GLOO_SOCKET_IFNAME"

log = logging.getLogger("runtime.ranks")


class RankError(RuntimeError):
    """A rank is gone, or cannot be reached."""


class Ranks:
    """One process's view: its own number, how many there are, and what it does with the others."""

    def __init__(self, *, rank: int, world_size: int) -> None:
        self.rank = rank
        self.world_size = world_size
        self._group: ProcessGroupGloo | None = None
        self._children: list[subprocess.Popen[bytes]] = []
        self._store: Path | None = None
        self._is_closing = False
        self.lost = ""
        """which rank ended, and how, once one has"""

    # -- rank 0

    def start(self, model_dir: Path) -> None:
        """Start the other ranks; they load their parts while this one loads its own. Threads are shared out."""
        threads = max(1, torch.get_num_threads() // self.world_size)
        torch.set_num_threads(threads)
        if self.world_size == 1:
            return
        self._store = Path(tempfile.mkdtemp(prefix="ranks-"))
        for rank in range(1, self.world_size):
            argv = [
                sys.executable, "-m", "runtime.rank", "--rank", str(rank), "--model-dir", str(model_dir.resolve()),
                "--threads", str(threads), "--store", str(self._store / "store"),
            ]  # fmt: skip
            self._children.append(
                subprocess.Popen(argv, cwd=WORKSPACE, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
            )
        atexit.register(self.close)

    def await_others(self) -> None:
        """Wait until the others have loaded, and meet them. RankError where one has ended, or none is reached."""
        if self.world_size == 1:
            return
        for rank, child in enumerate(self._children, start=1):
            assert child.stdout is not None
            if child.stdout.readline() != b"loaded\n":
                raise RankError(f"rank {rank} ended with status {child.wait()} while it loaded")
        for rank, child in enumerate(self._children, start=1):
            threading.Thread(target=self._watch, args=(rank, child), name=f"rank {rank}", daemon=True).start()
        for child in self._children:
            self._tell(child, {"do": "meet"})
        assert self._store is not None
        self.meet(self._store / "store")

    def tell(self, step: dict[str, Any]) -> None:
        """Have the other ranks run a step, too. Raises RankError where one is gone."""
        if self.lost:
            raise RankError(self.lost)
        for rank, child in enumerate(self._children, start=1):
            try:
                self._tell(child, step)
            except OSError as error:
                raise RankError(f"rank {rank} does not listen any more: {error}") from error

    def close(self) -> None:
        """End the other ranks; the status of a server that has lost one is not 0, whatever else it says."""
        if self._is_closing:
            return
        self._is_closing = True
        for child in self._children:
            assert child.stdin is not None
            child.stdin.close()
        for child in self._children:
            try:
                child.wait(END_S)
            except subprocess.TimeoutExpired:
                child.kill()
                child.wait()
        self._group = None
        if self._store is not None:
            shutil.rmtree(self._store, ignore_errors=True)
        if self.lost:
            logging.shutdown()
            os._exit(1)

    def _tell(self, child: subprocess.Popen[bytes], document: dict[str, Any]) -> None:
        assert child.stdin is not None
        child.stdin.write(json.dumps(document).encode() + b"\n")
        child.stdin.flush()

    def _watch(self, rank: int, child: subprocess.Popen[bytes]) -> None:
        status = child.wait()
        if self._is_closing:
            return
        self.lost = f"rank {rank} has ended with status {status}; the server cannot compute without it and ends"
        log.critical(self.lost)
        os.kill(os.getpid(), signal.SIGTERM)

    # -- the other ranks

    def steps(self) -> Iterator[dict[str, Any]]:
        """What rank 0 tells, until it is gone. Rank 0 decides when the others end: they let its signals pass."""
        for kind in (signal.SIGTERM, signal.SIGINT):
            signal.signal(kind, signal.SIG_IGN)
        sys.stdout.write("loaded\n")
        sys.stdout.flush()
        for line in sys.stdin.buffer:
            yield json.loads(line)
        self._group = None

    # -- every rank

    def meet(self, store: Path) -> None:
        """Connect with the others. Raises RankError where the wall lets no process connect to another one."""
        os.environ.setdefault(INTERFACE, "lo")
        meeting = FileStore(str(store), self.world_size)
        meeting.set_timeout(timedelta(seconds=MEET_S))
        try:
            self._group = ProcessGroupGloo(meeting, self.rank, self.world_size, IDLE)
        except RuntimeError as error:
            raise RankError(
                f"rank {self.rank} of {self.world_size} cannot meet the others over the loopback: {error}. A sandbox "
                "of tier B lets no process connect; ranks need tier A, which has a network of its own"
            ) from error

    def all_reduce(self, part: Tensor) -> Tensor:
        """Sum of every rank's `part`, in place. Raises RankError where a rank has gone."""
        if self._group is not None:
            try:
                self._group.allreduce([part]).wait()
            except RuntimeError as error:
                raise RankError(self.lost or f"an all-reduce failed: {error}") from error
        return part

    def gather(self, part: Tensor) -> list[Tensor]:
        """Every rank's `part`, all of one shape, on rank 0; nothing on the others."""
        if self._group is None:
            return [part]
        parts = [torch.empty_like(part) for _ in range(self.world_size)] if self.rank == 0 else []
        to_first = GatherOptions()
        to_first.rootRank = 0
        try:
            self._group.gather([parts] if parts else [], [part], to_first).wait()
        except RuntimeError as error:
            raise RankError(self.lost or f"a gather failed: {error}") from error
        return parts
