"""Child process: probes that hold for every workload, by its own `send` and by plain HTTP (`python -m ... JOB.json`).

Reads a `ProbeJob`, prints a `ProbeReport`. What counts as the same output is the check's to say: within its limits.
"""

from __future__ import annotations

import asyncio
import http.client
import json
import os
import sys
import time
from collections.abc import Callable, Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from vibeserve.accuracy.limits import figure
from vibeserve.accuracy.probing import ANY_WORKLOAD
from vibeserve.accuracy.scoring import compared
from vibeserve.client.sending import Endpoint, Flight, RequestSession, source_of
from vibeserve.contract import Pool, Record, ReplyDistances, Request, Response
from vibeserve.core.documents import canonical_json, digest_of, finite_data, read_document
from vibeserve.errors import ContractError, SpecError
from vibeserve.modalities import open_bundle
from vibeserve.modalities.probe_http import REQUEST_TIMEOUT_S, PlainHttp, ProbeFailure, expect, expect_error
from vibeserve.modalities.probe_run import MALFORMED, run_check, shape_text
from vibeserve.modalities.probes import ProbeJob, ProbeReport

NUM_TRIES = 3
"""pairs of requests: rounding may take one of them over a limit, a server that mixes up answers fails with all"""
NUM_ABANDONED = 8
"""more clients that go away than a small server has slots"""
SERVED_ERRORS = (OSError, http.client.HTTPException)


class RecordingSession(RequestSession):
    """Keeps the first POST of a request: where to, and what."""

    first: tuple[str, bytes] | None = None

    async def post(self, path: str, body: Any, *, on_line: Callable[[float, bytes], None] | None = None) -> Response:
        self.first = self.first or (f"/{path.lstrip('/')}", json.dumps(body).encode())
        return await super().post(path, body, on_line=on_line)


class Probed:
    """One server, and what was asked of it."""

    def __init__(self, job: ProbeJob, *, deadline_s: float) -> None:
        self.bundle = open_bundle(job.bundle)
        self.http = PlainHttp(job.base_url, deadline_s=deadline_s)
        self._job = job
        self._deadline_s = deadline_s
        self._requests = self.bundle.workload.requests(job.seed, Pool.visible)
        self._first_posts: dict[str, tuple[str, bytes]] = {}

    @cached_property
    def model(self) -> str:
        return str(json.loads(self.http.expect_ok("/v1/models"))["data"][0]["id"])

    @cached_property
    def pairs(self) -> list[tuple[Request, Request]]:
        with self.bundle.blamed("workload"):
            drawn = [next(self._requests) for _ in range(2 * NUM_TRIES)]
        cheap = [self.bundle.shortened(request) for request in drawn]
        return list(zip(cheap[::2], cheap[1::2], strict=True))

    def send(self, *requests: Request) -> list[Record]:
        """The records of requests that are sent at once. ProbeFailure where one fails."""

        async def together() -> list[Record]:
            return list(await asyncio.gather(*map(self._send, requests)))

        return asyncio.run(together())

    def first_post(self) -> tuple[str, bytes]:
        """Path and body of the first pair's first request."""
        request = self.pairs[0][0]
        if request.request_id not in self._first_posts:
            self.send(request)
        return self._first_posts[request.request_id]

    def expect_same(self, first: Record, again: Record, *, detail: str) -> None:
        """The check's distances between two records of one request lie within its limits."""
        distances = self._distances(first, again)
        figures = [(limit, figure([distances], limit=limit)) for limit in self.bundle.limits] if distances else []
        known = [(limit, value) for limit, value in figures if value is not None]
        is_same = all(value <= limit.bound for limit, value in known) if known else _is_equal(first, again)
        expect(is_same and not any(each.missing for each in (distances.distances if distances else ())), detail)

    def _distances(self, first: Record, again: Record) -> ReplyDistances | None:
        """None where the check can only compare with a score: then outputs must be equal."""
        same = getattr(self.bundle.check, "same", None)
        if callable(same):
            with self.bundle.blamed("check"):
                return ReplyDistances(request_id=first.request.request_id, distances=tuple(same(first, again)))
        try:
            return compared(self.bundle, first.served, again)
        except (ContractError, *MALFORMED):
            return None

    async def _send(self, request: Request) -> Record:
        limit_s = max(1.0, min(REQUEST_TIMEOUT_S, self._deadline_s - time.monotonic()))
        endpoint = Endpoint(base_url=self._job.base_url, model=self.model, dialect="vllm")
        session = RecordingSession(endpoint, now_s=time.monotonic)
        flight = Flight(request, session, limit_s=limit_s)
        await flight.fly(self.bundle.workload)
        record, error = flight.outcome(self.bundle.record_type, source=source_of(self.bundle))
        if session.first is not None:
            self._first_posts[request.request_id] = session.first
        expect(error is None, f"the workload's request fails: {error}")
        if record is None or record.served is None:
            raise ProbeFailure("the workload's request is answered without an output")
        return record


def check_health(probed: Probed) -> None:
    probed.http.expect_ok("/health")


def check_live(probed: Probed) -> None:
    probed.http.expect_ok("/live")


def check_metrics(probed: Probed) -> None:
    probed.http.expect_metrics()


def check_models(probed: Probed) -> None:
    expect(bool(probed.model), "no model is listed")


def check_answers(probed: Probed) -> None:
    probed.send(probed.pairs[0][0])


def check_a_b_a(probed: Probed) -> None:
    """The same request before and after another: nothing of the other stays behind."""

    def attempt(one: Request, other: Request) -> None:
        (first,), _, (again,) = probed.send(one), probed.send(other), probed.send(one)
        probed.expect_same(first, again, detail="the same request gives another output after one in between")

    _any_pair(probed, attempt)


def check_concurrent(probed: Probed) -> None:
    """Two at once give each its own answer."""

    def attempt(one: Request, other: Request) -> None:
        alone = [*probed.send(one), *probed.send(other)]
        for first, again in zip(alone, probed.send(one, other), strict=True):
            probed.expect_same(first, again, detail="two requests at once give other outputs than one by one")

    _any_pair(probed, attempt)


def check_disconnect(probed: Probed) -> None:
    """Clients that go away must free what they held."""
    path, body = probed.first_post()
    for _ in range(NUM_ABANDONED):
        probed.http.abandon(path, body)
    check_answers(probed)


def check_bad_request(probed: Probed) -> None:
    probed.http.expect_no_json_refused(probed.first_post()[0])


def check_unknown_route(probed: Probed) -> None:
    status, _, body = probed.http.ask("GET", "/no-such-route")
    expect_error("an unknown route", status, _json(body), wanted=404)


def check_request_id(probed: Probed) -> None:
    probed.http.expect_request_id(*probed.first_post())


CHECK_FUNCTIONS: dict[str, Callable[[Probed], None]] = {
    name.removeprefix("check_"): function for name, function in list(globals().items()) if name.startswith("check_")
}


def _any_pair(probed: Probed, attempt: Callable[[Request, Request], None]) -> None:
    """The check holds for one pair of requests at least."""
    failures: list[ProbeFailure] = []
    for one, other in probed.pairs:
        try:
            return attempt(one, other)
        except ProbeFailure as failure:
            failures.append(failure)
    raise failures[0]


def _is_equal(first: Record, again: Record) -> bool:
    return digest_of(finite_data(first.served)) == digest_of(finite_data(again.served))


def _json(body: bytes) -> Any:
    try:
        return json.loads(body)
    except ValueError:
        return None


def main(argv: Sequence[str]) -> int:
    job = read_document(Path(argv[0]), ProbeJob)
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    deadline_s = time.monotonic() + job.timeout_s
    try:
        probed = Probed(job, deadline_s=deadline_s)
        checks = (
            run_check(name, partial(_detail, name, probed), deadline_s=deadline_s) for name in ANY_WORKLOAD.checks
        )
        report = ProbeReport(checks=tuple(checks))
    except SpecError as error:
        report = ProbeReport(problem=str(error))
    with answers:
        answers.write(canonical_json(report) + "\n")
    return 0


def _detail(name: str, probed: Probed) -> str:
    """Empty when the check holds."""
    try:
        CHECK_FUNCTIONS[name](probed)
    except ProbeFailure as error:
        return str(error)
    except SERVED_ERRORS as error:
        return f"no answer: {type(error).__name__}"
    except MALFORMED as error:
        return shape_text(error)
    return ""


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
