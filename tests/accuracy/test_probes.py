from __future__ import annotations

import json
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from vibeserve.accuracy import probe_refusals, probe_server, suite_of
from vibeserve.accuracy.probing import read_probe_report
from vibeserve.core.paths import data_dir
from vibeserve.errors import InfraError
from vibeserve.modalities import Bundle, bundle_ref, open_bundle
from vibeserve.modalities.probes import ProbeCheck, ProbeReport
from vibeserve.modalities.text import PROBES
from vibeserve.spec import Spec, Workload


class CannedServer(BaseHTTPRequestHandler):
    """Answers every request alike: what a server looks like that computes nothing."""

    protocol_version = "HTTP/1.1"
    completion = {
        "id": "x",
        "object": "text_completion",
        "created": 1,
        "model": "canned",
        "choices": [{"index": 0, "text": " same", "finish_reason": "length", "token_ids": [300] * 8, "logprobs": None}],
        "usage": {"prompt_tokens": 32, "completion_tokens": 8, "total_tokens": 40},
    }

    def do_GET(self) -> None:
        self._answer({"object": "list", "data": [{"id": "canned", "object": "model", "created": 1, "owned_by": "x"}]})

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self._answer(self.completion)

    def _answer(self, document: object) -> None:
        body = json.dumps(document).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Quiet."""


@pytest.fixture
def canned_url() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), CannedServer)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def bundle_of(model_dir: Path) -> Bundle:
    return open_bundle(bundle_ref(Spec(workload=Workload(kind="chat")), model_dir=model_dir))


def failed(report: ProbeReport) -> dict[str, str]:
    return {refusal.reason_class: refusal.text for refusal in probe_refusals(report, suite=PROBES)}


def test_text_brings_its_own_probes(tiny_model_dir: Path) -> None:
    assert suite_of(bundle_of(tiny_model_dir)) is PROBES
    assert len(PROBES.checks) == 35


def test_every_declared_probe_exists() -> None:
    from vibeserve.modalities.text.probe_checks import CHECK_FUNCTIONS

    assert set(CHECK_FUNCTIONS) == set(PROBES.checks)


def test_server_that_computes_nothing_fails_what_it_fakes(
    canned_url: str, tiny_model_dir: Path, tmp_path: Path
) -> None:
    report = probe_server(canned_url, bundle=bundle_of(tiny_model_dir), seed=1, run_dir=tmp_path, timeout_s=60)
    refused = failed(report)
    assert [check.name for check in report.checks] == list(PROBES.checks)
    assert {"health", "models"}.isdisjoint(refused)
    assert refused["completion"] == "the text is not the decoding of the ids"
    assert refused["max_tokens"] == "8 ids for max_tokens 1"
    assert refused["seeded_sampling"] == "4 seeds at temperature 1 give one and the same text"
    assert refused["a_b_a"] == "another prompt gives the same answer"
    assert refused["bad_request"] == "a negative max_tokens answers 200, not a 4xx"
    assert refused["unknown_model"] == "an unknown model is served"
    assert refused["request_id"] == "x-request-id does not come back"
    assert refused["long_prompt"] == "usage reports 32 prompt tokens for 200"
    assert refused["chat_text"].startswith("answer of another shape")
    assert refused["long_context"].startswith("usage reports 32 prompt tokens for ")
    assert {"metrics", "stop_string", "logprobs", "json_schema", "chat", "disconnect"} <= set(refused)


def test_server_that_is_gone_fails_every_probe(tiny_model_dir: Path, tmp_path: Path) -> None:
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{holder.getsockname()[1]}"
        report = probe_server(url, bundle=bundle_of(tiny_model_dir), seed=1, run_dir=tmp_path, timeout_s=60)
    assert set(failed(report)) == set(PROBES.checks)


def test_time_that_is_over_fails_the_rest(canned_url: str, tiny_model_dir: Path, tmp_path: Path) -> None:
    report = probe_server(canned_url, bundle=bundle_of(tiny_model_dir), seed=1, run_dir=tmp_path, timeout_s=0)
    assert set(failed(report).values()) == {"not run: the probes' time was over"}


def test_missing_check_is_refused() -> None:
    complete = ProbeReport(checks=tuple(ProbeCheck(name=name, ok=True) for name in PROBES.checks))
    assert probe_refusals(complete, suite=PROBES) == []
    shortened = ProbeReport(checks=complete.checks[1:])
    assert [
        (refusal.gate, refusal.reason_class, refusal.text) for refusal in probe_refusals(shortened, suite=PROBES)
    ] == [("probe", "health", "the check did not run")]


def test_what_is_no_report_is_infrastructure() -> None:
    with pytest.raises(InfraError, match="the probes answered no report"):
        read_probe_report("PASS")
    with pytest.raises(InfraError, match="the probes answered no report"):
        read_probe_report('{"checks": [{"name": "health"}]}')


def test_child_that_cannot_run_is_infrastructure(tmp_path: Path) -> None:
    with pytest.raises(InfraError, match=r"the probes could not run \(exit 1\)\n  \| "):
        probe_server("http://127.0.0.1:9", bundle=bundle_of(tmp_path), seed=1, run_dir=tmp_path, timeout_s=5)


@pytest.fixture
def scaffold_url(tiny_model_dir: Path, tmp_path: Path) -> Iterator[str]:
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        port = holder.getsockname()[1]
    argv = [
        sys.executable,
        "-m",
        "runtime",
        "--model-dir",
        str(tiny_model_dir),
        "--host",
        "127.0.0.1",
        "--port",
        str(port),
    ]
    with (tmp_path / "server.log").open("wb") as log:
        server = subprocess.Popen(
            [*argv, "--threads", "1"], cwd=data_dir("templates") / "runtime" / "text", stdout=log, stderr=log
        )
    try:
        _await_health(f"http://127.0.0.1:{port}/health", server)
        yield f"http://127.0.0.1:{port}"
    finally:
        server.kill()
        server.wait()


def _await_health(url: str, server: subprocess.Popen[bytes]) -> None:
    for _ in range(600):
        assert server.poll() is None
        try:
            with urllib.request.urlopen(url):
                return
        except urllib.error.URLError:
            time.sleep(0.2)
    raise AssertionError("the scaffold did not become healthy")


@pytest.mark.slow
def test_scaffold_passes_every_probe(scaffold_url: str, tiny_model_dir: Path, tmp_path: Path) -> None:
    report = probe_server(scaffold_url, bundle=bundle_of(tiny_model_dir), seed=1, run_dir=tmp_path, timeout_s=200)
    assert failed(report) == {}
