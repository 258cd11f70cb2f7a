"""Servers behind walls: readiness, typed failures, pause, drain, whole-tree end."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from vibeserve.errors import ServerError
from vibeserve.sandbox import hierarchies, sweep_orphans
from vibeserve.service import Launch, Server, start_server
from vibeserve.spec import Tier

GET = "import sys, urllib.request; print(urllib.request.urlopen(sys.argv[1], timeout=10).read().decode())"


def _get(server: Server, host, path: str = "/") -> Any:
    argv = host.join_argv(server.process, [sys.executable, "-c", GET, server.base_url + path])
    done = subprocess.run(argv, capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def test_a_ready_server_answers_in_its_network(make_workspace, serve, host, tier: Tier, model_dir: Path) -> None:
    workspace = make_workspace()
    cpu = max(os.sched_getaffinity(0))
    server = serve(workspace, threads=3, cpus=(cpu,))
    seen = _get(server, host, "/v1/models")
    assert seen["path"] == "/v1/models"
    assert seen["cwd"] == str(workspace)
    assert seen["argv"][:2] == [str(model_dir), "127.0.0.1"]
    assert seen["argv"][3] == "3"
    assert server.base_url == f"http://127.0.0.1:{seen['argv'][2]}"
    assert server.startup_s > 0
    assert (server.network_pid is not None) == (tier is Tier.A)
    assert server.poll() is None
    assert server.peak_memory_gib() > 0.001


def test_environment_is_the_same_for_every_server(make_workspace, serve, host) -> None:
    env = _get(serve(make_workspace(), threads=2), host)["env"]
    assert {env[name] for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")} == {"2"}
    assert (env["HF_HUB_OFFLINE"], env["PYTHONDONTWRITEBYTECODE"], env["PYTHONHASHSEED"]) == ("1", "1", "0")
    assert env["MODE"] == "fast"


def test_only_the_models_own_parts_are_readable(make_workspace, serve, model_dir: Path) -> None:
    script = """
        import sys
        for part in ("f32", "bf16", "golden"):
            try:
                print(open(f"{sys.argv[1]}/{part}/weights").read(), flush=True)
            except OSError:
                print("closed", flush=True)
        try:
            open("server.py", "a")
        except OSError:
            print("unwritable", flush=True)
        sys.exit(1)
    """
    with pytest.raises(ServerError) as caught:
        serve(make_workspace(server=script))
    assert caught.value.log_tail.splitlines() == ["f32", "bf16", "closed", "unwritable"]


def test_a_server_that_dies_is_typed_and_quoted(make_workspace, serve, tmp_path: Path) -> None:
    with pytest.raises(ServerError, match=r"died: status 3 before it was ready\n  \| no weights") as caught:
        serve(make_workspace(server="import sys; print('no weights', file=sys.stderr); sys.exit(3)"))
    assert caught.value.outcome == "died"
    assert caught.value.exit_code == 5
    assert sweep_orphans(tmp_path / "run") == 0


def test_a_server_that_hangs_is_typed(make_workspace, serve) -> None:
    service = """
        argv: ["{python}", "server.py", "{model_dir}", "{host}", "{port}"]
        ready: {path: /health, timeout_s: 1.5}
    """
    script = "import time; print('loading', flush=True); time.sleep(60)"
    said = r"timed_out: not ready on /health in 1.5 s: GET /health: .*refused\n  \| loading"
    with pytest.raises(ServerError, match=said) as caught:
        serve(make_workspace(server=script, service=service))
    assert caught.value.outcome == "timed_out"


def test_a_server_that_answers_errors_is_not_ready(make_workspace, serve) -> None:
    script = """
        import sys
        from http.server import BaseHTTPRequestHandler, HTTPServer
        class Handler(BaseHTTPRequestHandler):
            def do_GET(self):
                self.send_error(503)
        HTTPServer((sys.argv[2], int(sys.argv[3])), Handler).serve_forever()
    """
    service = """
        argv: ["{python}", "server.py", "{model_dir}", "{host}", "{port}"]
        ready: {path: /health, timeout_s: 1.5}
    """
    with pytest.raises(ServerError) as caught:
        serve(make_workspace(server=script, service=service))
    assert caught.value.outcome == "timed_out"
    assert '"GET /health HTTP/1.1" 503' in caught.value.log_tail


def test_the_log_tail_is_of_this_start_only(make_workspace, serve) -> None:
    workspace = make_workspace(server="import sys; sys.exit('first')")
    with pytest.raises(ServerError):
        serve(workspace)
    (workspace / "server.py").write_text("import sys; sys.exit('second')")
    with pytest.raises(ServerError) as caught:
        serve(workspace)
    assert caught.value.log_tail == "second"


def test_two_servers_live_side_by_side(make_workspace, serve, host) -> None:
    first, second = make_workspace(), make_workspace()
    servers = [serve(first), serve(second)]
    assert [_get(server, host)["cwd"] for server in servers] == [str(first), str(second)]


def test_a_paused_server_answers_after_resume(make_workspace, serve, host) -> None:
    server = serve(make_workspace())
    server.pause()
    argv = host.join_argv(server.process, [sys.executable, "-c", GET, server.base_url])
    client = subprocess.Popen(argv, stdout=subprocess.PIPE, text=True)
    with pytest.raises(subprocess.TimeoutExpired):
        client.wait(0.5)
    server.resume()
    assert json.loads(client.communicate(timeout=20)[0])["path"] == "/"


def test_stop_lets_it_drain(make_workspace, serve, tmp_path: Path) -> None:
    server = serve(make_workspace())
    assert server.stop(drain_s=10)
    assert server.log_tail().endswith("drained")
    assert server.poll() == 0
    assert not list((tmp_path / "run").glob("*.process.json"))


def test_stop_does_not_wait_for_the_deaf(make_workspace, serve, server_source: str) -> None:
    ignoring = server_source.replace(
        "signal.signal(signal.SIGTERM, drained)", "signal.signal(signal.SIGTERM, signal.SIG_IGN)"
    )
    server = serve(make_workspace(server=ignoring))
    assert not server.stop(drain_s=0.3)
    assert server.poll() is not None


def test_host_network_serves_on_our_loopback(make_workspace, serve, host) -> None:
    port = host.lease_port()
    server = serve(make_workspace(), network="host", port=port)
    assert server.base_url == f"http://127.0.0.1:{port}"
    with urllib.request.urlopen(server.base_url, timeout=10) as reply:
        assert reply.status == 200


def test_an_isolated_server_has_a_network_of_its_own(make_workspace, serve, tier: Tier) -> None:
    if tier is not Tier.A:
        pytest.skip("tier B serves on the host's loopback")
    server = serve(make_workspace())
    networks = [Path(f"/proc/{pid}/ns/net").readlink() for pid in (server.network_pid, "self")]
    assert networks[0] != networks[1]


def test_any_server_can_be_launched_without_a_workspace(tmp_path: Path, host, tier: Tier) -> None:
    """As baselines are: an own argv template, extra paths, JSON braces left alone."""
    given = tmp_path / "given"
    given.mkdir()
    (given / "index.html").write_text("hello")
    launch = Launch(
        name="stock",
        argv=("{python}", "-m", "http.server", "{port}", "--bind", "{host}", "--directory", str(given)),
        workdir=tmp_path / "work",
        read_only=(given,),
        ready_path="/index.html",
        ready_timeout_s=20,
    )
    launch.workdir.mkdir()
    server = start_server(launch, host=host, tier=tier, cpus=(), threads=1, run_dir=tmp_path / "run")
    try:
        argv = host.join_argv(server.process, [sys.executable, "-c", GET, server.base_url + "/index.html"])
        assert subprocess.run(argv, capture_output=True, text=True).stdout == "hello\n"
    finally:
        assert server.stop() is not None
    assert (tmp_path / "run" / "stock.log").is_file()


def test_a_server_that_does_not_stand_still_is_ended_and_typed(
    make_workspace, serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where signals stop it: somebody undoes the stop, and it goes on while others are measured."""
    monkeypatch.setattr(hierarchies, "_can_freeze", lambda _: False)
    server = serve(make_workspace())
    server.pause()
    for pid in server.process.descendants():
        os.kill(pid, signal.SIGCONT)
    with pytest.raises(ServerError, match=r"runs_when_stopped: (\d+ of its threads|it used)") as caught:
        server.resume()
    assert (caught.value.outcome, server.outcome) == ("runs_when_stopped", "runs_when_stopped")
    assert server.poll() is not None
    server.pause()
    server.resume()  # of the dead: nothing
    server.stop(drain_s=0)
    assert [leftover.kind for leftover in server.leftovers or ()] == ["runs_when_stopped"]


def test_the_last_stop_counts_too(make_workspace, serve, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hierarchies, "_can_freeze", lambda _: False)
    server = serve(make_workspace())
    server.pause()
    for pid in server.process.descendants():
        os.kill(pid, signal.SIGCONT)
    server.stop(drain_s=0)
    assert [leftover.kind for leftover in server.leftovers or ()] == ["runs_when_stopped"]


def test_what_serves_must_be_what_is_counted(make_workspace, serve, monkeypatch: pytest.MonkeyPatch) -> None:
    server = serve(make_workspace())
    server.check_counted(cpu_s=0.0)
    with pytest.raises(ServerError, match="uncounted: it served, and its processes show no CPU time or no memory"):
        server.check_counted(cpu_s=server.cpu_s() + 60)
    monkeypatch.setattr(Server, "peak_memory_gib", lambda _: 0.0)
    with pytest.raises(ServerError) as caught:
        server.check_counted(cpu_s=0.0)
    assert caught.value.outcome == "uncounted"
