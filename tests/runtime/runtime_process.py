"""A workspace's server as a process of its own."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

STARTUP_S = 120.0


@dataclass
class RunningServer:
    process: subprocess.Popen[bytes]
    port: int
    log: Path

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def get(self, path: str) -> Any:
        with urllib.request.urlopen(f"{self.url}{path}", timeout=60) as response:
            return json.load(response)

    def text(self, path: str) -> str:
        with urllib.request.urlopen(f"{self.url}{path}", timeout=60) as response:
            return str(response.read().decode())

    def post(self, path: str, body: dict[str, Any]) -> Any:
        request = urllib.request.Request(f"{self.url}{path}", data=json.dumps(body).encode())
        with urllib.request.urlopen(request, timeout=120) as response:
            return json.load(response)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@contextlib.contextmanager
def serving(workspace: Path, model_dir: Path, *, log: Path, arguments: tuple[str, ...] = ()) -> Iterator[RunningServer]:
    """The workspace's server on a free port; killed at the end if it still runs."""
    port = free_port()
    command = [sys.executable, "-m", "runtime", "--model-dir", str(model_dir), "--port", str(port), *arguments]
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1", "OMP_NUM_THREADS": "1"}
    with log.open("wb") as stream:
        process = subprocess.Popen(command, cwd=workspace, stdout=stream, stderr=stream, env=environment)
    server = RunningServer(process, port, log)
    try:
        wait_ready(server)
        yield server
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGKILL)
        process.wait(timeout=30)


def wait_ready(server: RunningServer) -> None:
    deadline = time.monotonic() + STARTUP_S
    while True:
        try:
            server.get("/health")
            return
        except (urllib.error.URLError, ConnectionError):
            assert server.process.poll() is None, server.log.read_text()
            assert time.monotonic() < deadline, server.log.read_text()
            time.sleep(0.1)
