"""The scaffold's counters, scraped by a real Prometheus."""

from __future__ import annotations

import json
import shutil
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from runtime_process import RunningServer, free_port

pytestmark = pytest.mark.slow
DEADLINE_S = 60.0
CONFIG = """\
global: {{scrape_interval: 500ms, scrape_timeout: 400ms}}
scrape_configs:
  - job_name: runtime
    static_configs: [{{targets: ["127.0.0.1:{port}"]}}]
"""


class Prometheus:
    def __init__(self, port: int) -> None:
        self.url = f"http://127.0.0.1:{port}"

    def api(self, path: str, **query: str) -> Any:
        with urllib.request.urlopen(f"{self.url}/api/v1/{path}?{urllib.parse.urlencode(query)}", timeout=10) as answer:
            return json.load(answer)["data"]

    def value(self, query: str) -> float | None:
        """Of the only series that the query gives."""
        found = self.api("query", query=query)["result"]
        return float(found[0]["value"][1]) if len(found) == 1 else None

    def until(self, query: str, least: float) -> float:
        deadline_s = time.monotonic() + DEADLINE_S
        while True:
            try:
                value = self.value(query)
            except (urllib.error.URLError, ConnectionError):
                value = None
            if value is not None and value >= least:
                return value
            assert time.monotonic() < deadline_s, f"{query} is {value}"
            time.sleep(0.2)


@pytest.fixture
def prometheus(scaffold_server: RunningServer, tmp_path: Path) -> Iterator[Prometheus]:
    program = shutil.which("prometheus")
    if program is None:
        pytest.skip("prometheus is not installed (apt-get install prometheus)")
    (tmp_path / "prometheus.yml").write_text(CONFIG.format(port=scaffold_server.port))
    port = free_port()
    argv = [
        program, f"--config.file={tmp_path / 'prometheus.yml'}", f"--storage.tsdb.path={tmp_path / 'data'}",
        f"--web.listen-address=127.0.0.1:{port}",
    ]  # fmt: skip
    with (tmp_path / "prometheus.log").open("w") as log:
        process = subprocess.Popen(argv, stdout=log, stderr=log)
    try:
        yield Prometheus(port)
    finally:
        process.terminate()
        process.wait(30)


def test_a_real_prometheus_reads_every_series(prometheus: Prometheus, scaffold_server: RunningServer) -> None:
    before = prometheus.until('up{job="runtime"}', 1)
    assert before == 1
    body = {"prompt": "def main(", "max_tokens": 8, "ignore_eos": True, "temperature": 0}
    scaffold_server.post("/v1/completions", body)
    assert prometheus.until("vllm:generation_tokens_total", 8) >= 8
    for name in ("vllm:num_requests_running", "vllm:num_requests_waiting", "vllm:kv_cache_usage_perc"):
        assert prometheus.until(name, 0) is not None
    assert prometheus.until("vllm:time_to_first_token_seconds_count", 1) >= 1
    quantile = "histogram_quantile(0.5, sum by (le) (vllm:time_to_first_token_seconds_bucket))"
    assert prometheus.until(quantile, 0) > 0, "its buckets are a histogram that can be queried"
    types = {name: rows[0]["type"] for name, rows in prometheus.api("metadata").items()}
    assert types["vllm:generation_tokens_total"] == "counter"
    assert types["vllm:time_to_first_token_seconds"] == "histogram"
    assert types["vllm:num_requests_running"] == "gauge"
    (target,) = prometheus.api("targets")["activeTargets"]
    assert (target["health"], target["lastError"]) == ("up", "")
