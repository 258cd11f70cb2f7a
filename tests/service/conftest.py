"""Workspaces whose runtime is a small standard-library server."""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from vibeserve.hosts import LocalHost
from vibeserve.sandbox import probe_tiers
from vibeserve.service import Server, candidate_launch, start_server
from vibeserve.spec import Tier

SERVER = """
import json, os, signal, sys, time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        body = json.dumps({"path": self.path, "cwd": os.getcwd(), "model": sorted(os.listdir(sys.argv[1])),
                           "argv": sys.argv[1:], "env": dict(os.environ)}).encode()
        self.send_response(200)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

def drained(*_):
    print("drained", flush=True)
    os._exit(0)

signal.signal(signal.SIGTERM, drained)
ThreadingHTTPServer((sys.argv[2], int(sys.argv[3])), Handler).serve_forever()
"""

SERVICE = """
schema_version: 1
argv: ["{python}", "server.py", "{model_dir}", "{host}", "{port}", "{threads}"]
ready: {path: /health, timeout_s: 20}
env: {MODE: fast}
"""


@pytest.fixture(params=["A", "B"])
def tier(request: pytest.FixtureRequest) -> Tier:
    """Each tier that this machine can build."""
    state = probe_tiers()[request.param]
    if state != "available":
        pytest.skip(f"tier {request.param}: {state}")
    return Tier(request.param)


@pytest.fixture
def server_source() -> str:
    return SERVER


@pytest.fixture
def host() -> LocalHost:
    return LocalHost()


@pytest.fixture
def model_dir(tmp_path: Path) -> Path:
    for part in ("f32", "bf16", "golden"):
        (tmp_path / "model" / part).mkdir(parents=True)
        (tmp_path / "model" / part / "weights").write_text(part)
    return tmp_path / "model"


@pytest.fixture
def make_workspace(tmp_path: Path) -> Callable[..., Path]:
    """A workspace with that server.py and service.yaml."""

    def make(*, server: str = SERVER, service: str = SERVICE, **files: str) -> Path:
        workspace = tmp_path / f"workspace-{len(list(tmp_path.glob('workspace-*')))}"
        workspace.mkdir()
        (workspace / "service.yaml").write_text(textwrap.dedent(service))
        (workspace / "server.py").write_text(textwrap.dedent(server))
        for name, text in files.items():
            (workspace / f"{name}.py").write_text(textwrap.dedent(text))
        return workspace

    return make


@pytest.fixture
def serve(tmp_path: Path, host: LocalHost, tier: Tier, model_dir: Path) -> Any:
    """Start workspaces as candidates; whatever still runs at the end of the test is stopped."""
    started: list[Server] = []

    def begin(workspace: Path, **options: Any) -> Server:
        launch = candidate_launch(workspace, model_dir=model_dir, name=workspace.name)
        defaults: dict[str, Any] = {"host": host, "tier": tier, "cpus": (), "threads": 1, "run_dir": tmp_path / "run"}
        started.append(start_server(launch, **{**defaults, **options}))
        return started[-1]

    yield begin
    for server in started:
        server.stop(drain_s=0)
