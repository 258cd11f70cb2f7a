"""A start ends with the first whole reply: what is loaded at the first request is part of it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from vibeserve.contract import Pool, Record, Request, SendError
from vibeserve.errors import ServerError
from vibeserve.service import FirstRequest, first_request
from vibeserve.service.first_request import MODEL

# {post}: what is done before a POST is answered; {status}, {reply}: the answer
SERVER = """
import json, sys, time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    num_posts = 0

    def answer(self, status, body):
        self.send_response(status)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):
        self.answer(200, json.dumps({"data": [{"id": 'tiny "one"'}]}).encode())

    def do_POST(self):
        Handler.num_posts += 1
        number = Handler.num_posts
        body = self.rfile.read(int(self.headers["content-length"]))
        print(self.path, body.decode(), flush=True)
        %s

ThreadingHTTPServer((sys.argv[2], int(sys.argv[3])), Handler).serve_forever()
"""
SERVICE = """
argv: ["{python}", "server.py", "{model_dir}", "{host}", "{port}"]
ready: {path: /health, timeout_s: 2}
"""
FIRST = FirstRequest(path="/v1/things", body=json.dumps({"model": MODEL, "text": "a first one"}))
CHUNKS = """
        self.send_response(200)
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()
        for piece in (b"3\\r\\nabc\\r\\n", b"0\\r\\n\\r\\n"):
            self.wfile.write(piece)
            self.wfile.flush()
            time.sleep(0.3)
"""


def test_what_is_loaded_at_the_first_request_is_in_the_start(make_workspace, serve) -> None:
    server = serve(make_workspace(server=SERVER % "time.sleep(1.2); self.answer(200, b'ok')"), first=FIRST)
    assert server.startup_s > 1.2
    (line,) = server.log_tail().splitlines()[-1:]
    path, _, body = next(row for row in server.log_tail().splitlines() if row.startswith("/v1")).partition(" ")
    assert (path, json.loads(body)) == ("/v1/things", {"model": 'tiny "one"', "text": "a first one"})
    assert "POST /v1/things" in line


@pytest.mark.slow
def test_without_a_first_request_readiness_is_what_the_server_says(make_workspace, serve) -> None:
    server = serve(make_workspace(server=SERVER % "self.answer(500, b'')"))
    assert "/v1/things" not in server.log_tail()


@pytest.mark.slow
def test_it_is_asked_until_it_serves(make_workspace, serve) -> None:
    script = SERVER % "self.answer(200 if number > 2 else 503, b'ok')"
    server = serve(make_workspace(server=script), first=FIRST)
    assert sum(row.startswith("/v1/things") for row in server.log_tail().splitlines()) == 3


@pytest.mark.slow
@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ("self.answer(404, b'no')", "POST /v1/things: status 404"),
        ("self.answer(200, b' ')", "POST /v1/things: an empty reply"),
        ("self.close_connection = True", "POST /v1/things: no HTTP answer"),
    ],
)
def test_a_server_that_serves_nothing_is_not_ready(make_workspace, serve, answer: str, said: str) -> None:
    with pytest.raises(ServerError, match=f"timed_out: not ready on /health in 2 s: {said}") as caught:
        serve(make_workspace(server=SERVER % answer, service=SERVICE), first=FIRST)
    assert caught.value.outcome == "timed_out"


def test_a_server_that_dies_at_its_first_request_is_told(make_workspace, serve) -> None:
    with pytest.raises(ServerError, match="died: status 7 before it was ready"):
        serve(make_workspace(server=SERVER % "import os; os._exit(7)"), first=FIRST)


@pytest.mark.slow
def test_a_reply_in_chunks_is_whole_at_its_end(make_workspace, serve) -> None:
    assert serve(make_workspace(server=SERVER % CHUNKS.strip()), first=FIRST).startup_s > 0.3


def test_a_call_that_ends_the_process_is_typed(make_workspace, serve) -> None:
    script = "import ctypes; ctypes.CDLL(None).timer_create(1, None, ctypes.byref(ctypes.c_void_p()))"
    with pytest.raises(ServerError, match="forbidden_call: status 159 before it was ready") as caught:
        serve(make_workspace(server=script))
    assert caught.value.outcome == "forbidden_call"


# -- what is asked


class Workload:
    """Of some modality. `posts`: what its `send` does."""

    def __init__(self, *posts: str, tries_again: bool = False) -> None:
        self._posts, self._tries_again = posts, tries_again

    def requests(self, seed: int, pool: Pool) -> Iterator[Request]:
        yield Request(request_id="1", payload={"seed": seed, "pool": pool.value})

    async def send(self, session: Any, request: Request) -> Record:
        for path in self._posts:
            try:
                await session.post(path, {"model": session.model, "of": session.dialect, **request.payload})
            except SendError:
                if not self._tries_again:
                    raise
        return Record(request=request)


def _bundle(workload: Workload) -> Any:
    from contextlib import nullcontext

    same = {"plain": lambda request: request, "shortened": lambda request: request}
    return SimpleNamespace(workload=workload, blamed=lambda _: nullcontext(), **same)


def test_it_is_what_send_posts_first() -> None:
    found = first_request(_bundle(Workload("v1/a", "v1/b")), seed=5)
    assert found is not None
    assert (found.path, json.loads(found.body)) == (
        "/v1/a", {"model": MODEL, "of": "vllm", "seed": 5, "pool": "visible"},
    )  # fmt: skip
    other = first_request(_bundle(Workload("/v1/a")), seed=6, dialect="llama_cpp", model="m")
    assert other is not None
    assert json.loads(other.body) == {"model": "m", "of": "llama_cpp", "seed": 6, "pool": "visible"}
    assert first_request(_bundle(Workload("/a", "/b", tries_again=True)), seed=5) == FirstRequest(
        path="/a", body=found.body
    )


def test_a_send_that_posts_nothing_leaves_readiness_as_it_is() -> None:
    assert first_request(_bundle(Workload()), seed=5) is None


def test_text_is_asked_for_a_short_completion(tiny_model_dir: Path) -> None:
    from vibeserve.config import compose_spec
    from vibeserve.core.paths import data_dir
    from vibeserve.modalities import bundle_ref, open_bundle

    spec = compose_spec(["+target=tiny_cpu"], cwd=data_dir("targets").parent)
    bundle = open_bundle(bundle_ref(spec, model_dir=tiny_model_dir))
    first, again = (first_request(bundle, seed=seed) for seed in (1, 2))
    assert first is not None and again is not None
    assert first.path == "/v1/completions"
    assert 0 < json.loads(first.body)["max_tokens"] <= 16
    assert json.loads(first.body)["prompt"] != json.loads(again.body)["prompt"]
