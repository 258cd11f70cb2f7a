"""Probes for bundles without a built-in modality, against a server of numbers and its broken variants."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from numbers_target import CHECK, WORKLOAD, numbers_bundle

from vibeserve.accuracy import probe_refusals, probe_server, suite_of
from vibeserve.accuracy.generic_probes import CHECK_FUNCTIONS
from vibeserve.accuracy.probing import ANY_WORKLOAD
from vibeserve.errors import ContractError
from vibeserve.modalities import Bundle


class NumbersServer(BaseHTTPRequestHandler):
    """Right in every respect. Variants change one method each."""

    protocol_version = "HTTP/1.1"
    last: Any = None

    def do_GET(self) -> None:
        models = {"object": "list", "data": [{"id": "numbers", "object": "model"}]}
        known: dict[str, Any] = {
            "/health": {},
            "/live": {},
            "/v1/models": models,
            "/metrics": "# TYPE requests counter\n",
        }
        if self.path in known:
            self.answer(200, known[self.path])
        else:
            self.answer(404, self.error("no such route"))

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        try:
            numbers = json.loads(body)["numbers"]
        except ValueError:
            self.answer(400, self.error("no JSON"))
            return
        self.answer(200, {"numbers": self.halves(numbers)})

    def halves(self, numbers: list[float]) -> list[float]:
        return [value / 2 for value in reversed(numbers)]

    def error(self, message: str) -> Any:
        return {"error": {"message": message, "type": "invalid_request_error"}}

    def answer(self, status: int, document: Any) -> None:
        body = (document if isinstance(document, str) else json.dumps(document)).encode()
        self.send_response(status)
        for name, value in self.more_headers().items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def more_headers(self) -> dict[str, str]:
        given = self.headers.get("x-request-id")
        return {"x-request-id": given} if given else {}

    def log_message(self, *_: object) -> None:
        """Quiet."""


class Stale(NumbersServer):
    def halves(self, numbers: list[float]) -> list[float]:
        type(self).last, before = numbers, type(self).last
        return super().halves(before or numbers)


class Drifting(NumbersServer):
    count = 0

    def halves(self, numbers: list[float]) -> list[float]:
        type(self).count += 1
        return [value * (1 + 0.1 * self.count) for value in super().halves(numbers)]


class Mixing(NumbersServer):
    """Right one by one; of two at once each gets what the other asked for."""

    lock, together = threading.Lock(), threading.Barrier(2)

    def halves(self, numbers: list[float]) -> list[float]:
        try:
            self.together.wait(0.3)
        except threading.BrokenBarrierError:
            with self.lock:
                if self.together.broken:
                    self.together.reset()
            return super().halves(numbers)
        return super().halves([value + 1000 for value in numbers])


class Plain(NumbersServer):
    """Errors are text, no request id comes back, there is no /live."""

    def error(self, message: str) -> Any:
        return message

    def more_headers(self) -> dict[str, str]:
        return {}

    def do_GET(self) -> None:
        self.path = "/gone" if self.path == "/live" else self.path
        super().do_GET()


class Refusing(NumbersServer):
    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.answer(503, self.error("full"))


@contextmanager
def serving(handler: type[NumbersServer]) -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


def probed(url: str, bundle: Bundle, tmp_path: Path, *, timeout_s: float = 60.0) -> dict[str, str]:
    """Text of every failed check, by name."""
    report = probe_server(url, bundle=bundle, seed=1, run_dir=tmp_path / "probes", timeout_s=timeout_s)
    assert [check.name for check in report.checks] == list(ANY_WORKLOAD.checks)
    return {refusal.reason_class: refusal.text for refusal in probe_refusals(report, suite=suite_of(bundle))}


@pytest.fixture
def bundle(tmp_path: Path) -> Bundle:
    return numbers_bundle(tmp_path / "numbers")


def test_a_bundle_without_a_built_in_modality_has_the_probes_of_every_workload(bundle: Bundle) -> None:
    assert suite_of(bundle) is ANY_WORKLOAD
    assert set(CHECK_FUNCTIONS) == set(ANY_WORKLOAD.checks)


def test_a_right_server_passes_every_probe(bundle: Bundle, tmp_path: Path) -> None:
    with serving(NumbersServer) as url:
        assert probed(url, bundle, tmp_path) == {}


def test_a_server_that_sends_the_last_answer_again_is_found_out(bundle: Bundle, tmp_path: Path) -> None:
    with serving(Stale) as url:
        found = probed(url, bundle, tmp_path)
    assert found["a_b_a"] == "the same request gives another output after one in between"
    assert {"a_b_a", "concurrent"} >= set(found)


def test_sameness_is_the_checks_to_say(tmp_path: Path) -> None:
    strict, mild = (CHECK.replace("bound=0.01", f"bound={bound}").replace("bound=0.005", "bound=99")
                    for bound in (0.01, 99))  # fmt: skip
    for name, text, expected in (("strict", strict, {"a_b_a", "concurrent"}), ("mild", mild, set())):
        with serving(Drifting) as url:
            assert set(probed(url, numbers_bundle(tmp_path / name, check=text), tmp_path / name)) == expected


def test_answers_that_are_mixed_up_under_load_are_found_out(bundle: Bundle, tmp_path: Path) -> None:
    with serving(Mixing) as url:
        found = probed(url, bundle, tmp_path)
    assert found == {"concurrent": "two requests at once give other outputs than one by one"}


def test_what_every_server_must_speak(bundle: Bundle, tmp_path: Path) -> None:
    with serving(Plain) as url:
        found = probed(url, bundle, tmp_path)
    assert found == {
        "live": "GET /live answered 404",
        "bad_request": "answer of another shape: JSONDecodeError: Expecting value: line 1 column 1 (char 0)",
        "unknown_route": "an unknown route answers no error object with message and type",
        "request_id": "x-request-id does not come back",
    }


def test_a_server_that_refuses_the_workloads_requests(bundle: Bundle, tmp_path: Path) -> None:
    with serving(Refusing) as url:
        found = probed(url, bundle, tmp_path)
    assert found["answers"].startswith("the workload's request fails: HTTP 503")
    assert {"answers", "a_b_a", "concurrent", "disconnect"} <= set(found)


def test_a_server_that_is_gone_fails_every_probe(bundle: Bundle, tmp_path: Path) -> None:
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        found = probed(f"http://127.0.0.1:{holder.getsockname()[1]}", bundle, tmp_path)
    assert set(found) == set(ANY_WORKLOAD.checks)


def test_time_that_is_over_fails_the_rest(bundle: Bundle, tmp_path: Path) -> None:
    with serving(NumbersServer) as url:
        found = probed(url, bundle, tmp_path, timeout_s=0)
    assert set(found.values()) == {"not run: the probes' time was over"}


def test_a_check_that_needs_a_score_says_itself_what_is_the_same(tmp_path: Path) -> None:
    """`expected` is the reference's score here: the first output cannot stand in for it."""
    scored = CHECK.replace(
        "def compare(expected, record):", "def compare(expected, record):\n    expected = expected['score']"
    )
    text = scored + '\n\ndef same(first, again):\n    return compare({"score": first.output}, again)\n'
    with serving(Drifting) as url:
        found = probed(url, numbers_bundle(tmp_path / "same", check=text), tmp_path / "same")
        assert set(found) == {"a_b_a", "concurrent"}
        # without it the two outputs must be equal
        found = probed(url, numbers_bundle(tmp_path / "none", check=scored), tmp_path / "none")
        assert set(found) == {"a_b_a", "concurrent"}
    with serving(NumbersServer) as url:
        assert probed(url, numbers_bundle(tmp_path / "right", check=scored), tmp_path / "right") == {}


def test_a_workload_that_fails_is_no_fault_of_the_server(tmp_path: Path) -> None:
    broken = numbers_bundle(tmp_path / "numbers", workload=WORKLOAD.replace("    number = 0", "    number = 1 / 0"))
    with serving(NumbersServer) as url, pytest.raises(ContractError, match=r"workload\.py:11: ZeroDivisionError"):
        probed(url, broken, tmp_path)
