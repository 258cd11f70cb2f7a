"""Several ranks are one server: what counts, stops and kills it counts, stops and kills all of them."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

from vibeserve.core.paths import data_dir
from vibeserve.hosts import LocalHost
from vibeserve.sandbox import probe_tiers, tree
from vibeserve.seeds import get_seed
from vibeserve.service import Server, candidate_launch, start_server
from vibeserve.spec import Seed, Tier

RANK = """
import sys
held = bytearray(64 << 20)
held[::4096] = b"x" * len(held[::4096])
print("loaded", flush=True)
for line in sys.stdin:
    sum(range(int(line)))
"""
RANKS = """
import subprocess, sys
from http.server import BaseHTTPRequestHandler, HTTPServer

rank = subprocess.Popen([sys.executable, "rank.py"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
assert rank.stdout.readline() == "loaded\\n"

class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        if self.path == "/work":
            rank.stdin.write("3000000\\n")
            rank.stdin.flush()
        self.send_response(200)
        self.end_headers()

HTTPServer((sys.argv[2], int(sys.argv[3])), Handler).serve_forever()
"""
GET = "import sys, urllib.request; sys.stdout.write(urllib.request.urlopen(sys.argv[1], timeout=60).read().decode())"
POST = """
import sys, urllib.request
asked = urllib.request.Request(sys.argv[1], data=sys.argv[2].encode(), headers={"content-type": "application/json"})
sys.stdout.write(urllib.request.urlopen(asked, timeout=60).read().decode())
"""
RANK_GIB = 64 / 1024


def joined(server: Server, host: LocalHost, script: str, *words: str) -> str:
    argv = host.join_argv(server.process, [sys.executable, "-c", script, *words])
    return subprocess.run(argv, capture_output=True, text=True, check=True, timeout=120).stdout


@pytest.fixture
def ranks(make_workspace, serve) -> Server:
    server: Server = serve(make_workspace(server=RANKS, rank=RANK))
    return server


def test_memory_and_cpu_are_those_of_all_ranks(ranks: Server, host: LocalHost) -> None:
    assert ranks.peak_memory_gib() > RANK_GIB
    assert len(ranks.cpu_by_process()) == 2
    before, total_s = ranks.cpu_by_process(), ranks.cpu_s()
    joined(ranks, host, GET, ranks.base_url + "/work")
    (child,) = [pid for pid in before if tree.read_stat(pid).parent in before]  # type: ignore[union-attr]
    deadline = time.monotonic() + 60
    while ranks.cpu_by_process()[child] - before[child] <= 0.02:
        assert time.monotonic() < deadline, "the child's work is not counted"
        time.sleep(0.01)
    assert ranks.cpu_s() - total_s > 0.02


def test_a_pause_stops_all_ranks_and_they_go_on_together(ranks: Server) -> None:
    pids = list(ranks.cpu_by_process())
    ranks.pause()
    if ranks.process.stopped_by == "SIGSTOP":
        assert all(tree.stands(pid) for pid in pids)
    ranks.resume()
    assert ranks.process.moved == ""
    assert list(ranks.cpu_by_process()) == pids


def test_a_kill_ends_all_ranks(ranks: Server) -> None:
    pids = list(ranks.cpu_by_process())
    ranks.stop(drain_s=0)
    assert not any(map(tree.is_running, pids))
    assert ranks.leftovers == ()


@pytest.mark.slow
def test_a_real_server_of_two_ranks_is_one_tree(tiny_model_dir: Path, tmp_path: Path, host: LocalHost) -> None:
    """Logits are compared in the component's own tests; here is what a service does with it."""
    if probe_tiers()["A"] != "available":
        pytest.skip("ranks need a loopback of their own")
    server, pids = two_ranks(tiny_model_dir, tmp_path, host), []
    try:
        before = server.cpu_by_process()
        pids = list(before)
        assert len(pids) == 2
        first = completion(server, host)
        server.pause()
        server.resume()
        assert completion(server, host) == first, "greedy, and the pause changed nothing"
        after = server.cpu_by_process()
        assert all(after[pid] > before[pid] for pid in pids), "both compute"
        assert server.peak_memory_gib() > 1.5 * min(tree.memory_gib([pid]) for pid in pids)
        assert server.stop(drain_s=20), "it drains, and its ranks with it"
    finally:
        server.stop(drain_s=0)
    assert server.leftovers == ()
    assert not any(map(tree.is_running, pids))


def two_ranks(model_dir: Path, folder: Path, host: LocalHost) -> Server:
    seed = get_seed(Seed(), scaffold=data_dir("templates") / "runtime/text", settings={"tensor_parallel_size": 2})
    seed.materialise(folder / "workspace")
    launch = candidate_launch(folder / "workspace", model_dir=model_dir)
    return start_server(launch, host=host, tier=Tier.A, cpus=(), threads=2, run_dir=folder / "run")


def completion(server: Server, host: LocalHost) -> str:
    body = {"prompt": [9, 27, 5, 41], "max_tokens": 8, "temperature": 0, "ignore_eos": True}
    answer = json.loads(joined(server, host, POST, server.base_url + "/v1/completions", json.dumps(body)))
    return str(answer["choices"][0]["text"])
