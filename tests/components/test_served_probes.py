"""A batched assembly behind its own server passes the probes: rows that are drawn by each other's side stay apart."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from vibeserve.accuracy import probe_refusals, probe_server
from vibeserve.modalities import bundle_ref, open_bundle
from vibeserve.modalities.text import PROBES
from vibeserve.spec import Spec, Workload

BATCHED = ("batched-sampling", "continuous-batching", "native-forward")


@pytest.mark.slow
def test_a_batched_runtime_passes_every_probe(built_workspace, tiny_model_dir: Path, tmp_path: Path) -> None:
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        port = holder.getsockname()[1]
    argv = [sys.executable, "-m", "runtime", "--model-dir", str(tiny_model_dir), "--host", "127.0.0.1"]
    with (tmp_path / "server.log").open("wb") as log:
        server = subprocess.Popen(
            [*argv, "--port", str(port), "--threads", "1"], cwd=built_workspace(*BATCHED), stdout=log, stderr=log
        )
    try:
        url = f"http://127.0.0.1:{port}"
        await_health(f"{url}/health", server)
        bundle = open_bundle(bundle_ref(Spec(workload=Workload(kind="chat")), model_dir=tiny_model_dir))
        report = probe_server(url, bundle=bundle, seed=2, run_dir=tmp_path, timeout_s=200)
        assert {each.reason_class: each.text for each in probe_refusals(report, suite=PROBES)} == {}
    finally:
        server.kill()
        server.wait()


def await_health(url: str, server: subprocess.Popen[bytes]) -> None:
    for _ in range(600):
        assert server.poll() is None
        try:
            with urllib.request.urlopen(url):
                return
        except urllib.error.URLError:
            time.sleep(0.2)
    raise AssertionError("the runtime did not become healthy")
