"""The generator against the scripted stub. Bounds are one-sided where a busy machine could break the other side."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import pytest
from load_samples import PIECES, requests, text_bundle, word_tokenizer

import vibeserve
from vibeserve.client import LoadSession
from vibeserve.client.arrivals import poisson_arrivals
from vibeserve.client.stub import Script, StubServer
from vibeserve.core.nouns import LoadPoint, PromptRequest, Reply
from vibeserve.errors import InfraError
from vibeserve.modalities.text.tokens import token_arrivals

IDS = tuple(word_tokenizer().encode(piece).ids[0] for piece in PIECES)
C2 = LoadPoint(name="c2", concurrency=2)


def session(server: StubServer, *, load: LoadPoint = C2, **options: object) -> LoadSession:
    defaults: dict[str, object] = {
        "bundle": text_bundle(), "requests": requests(), "dialect": "vllm", "model": "stub",
    }  # fmt: skip
    return LoadSession(base_url=server.base_url, load=load, **(defaults | options))  # type: ignore[arg-type]


def run_all(script: Script, *, num: int = 4, max_tokens: int = 8, logprobs: int = 0, **options: object) -> list[Reply]:
    """Every reply to a finite stream of requests."""
    with StubServer(script) as server:
        load = session(server, requests=requests(num=num, max_tokens=max_tokens, logprobs=logprobs), **options)
        load.start()
        load.wait(timeout_s=30)
        return load.stop()


def test_every_reply_has_its_text_ids_usage_and_times() -> None:
    replies = run_all(Script(pieces=PIECES, token_ids=IDS, ttft_s=0.03, tpot_s=0.01, logprob=-0.25), logprobs=5)
    assert sorted(reply.request.request_id for reply in replies) == ["r-0", "r-1", "r-2", "r-3"]
    for reply in replies:
        assert reply.error is None
        assert reply.text == "".join(PIECES[:8])
        assert reply.token_ids == IDS[:8]
        assert reply.finish_reason == "length"
        assert reply.usage is not None
        assert reply.usage.completion_tokens == 8
        assert reply.token_logprobs == (-0.25,) * 8
        assert 0 <= reply.scheduled_s <= reply.sent_s
        arrivals = token_arrivals([reply], tokenizer=word_tokenizer())[0]
        assert len(arrivals) == 8
        assert list(arrivals) == sorted(arrivals)
        # a sleeping server is never early; how late it is, is the machine's affair
        assert arrivals[0] - reply.sent_s >= 0.03 - 1e-3  # a timer may be a tick early
        assert arrivals[-1] - reply.sent_s >= 0.03 + 7 * 0.01
        assert reply.end_s >= arrivals[-1]


def test_chunks_are_not_tokens() -> None:
    (reply,) = run_all(Script(pieces=PIECES, chunk_tokens=4), num=1, max_tokens=10)
    assert len(reply.chunks) == 3
    assert len(token_arrivals([reply], tokenizer=word_tokenizer())[0]) == 10


def test_lying_usage_is_passed_on_as_claimed() -> None:
    (reply,) = run_all(Script(pieces=PIECES, usage_tokens=64), num=1)
    assert reply.usage is not None
    assert reply.usage.completion_tokens == 64
    assert len(token_arrivals([reply], tokenizer=word_tokenizer())[0]) == 8


def test_closed_loop_keeps_its_concurrency_and_cuts_what_is_in_flight() -> None:
    with StubServer(Script(pieces=PIECES, ttft_s=0.02, tpot_s=0.01)) as server:
        load = session(server, requests=requests(max_tokens=10))
        load.start()
        time.sleep(1.0)
        replies = load.stop()
    finished = [reply for reply in replies if reply.error is None]
    cut = [reply for reply in replies if reply.error == "cut"]
    assert len(finished) >= 2
    assert len(cut) == 2, "as many as the concurrency"
    assert len(finished) + len(cut) == len(replies)
    assert [reply.sent_s for reply in replies] == sorted(reply.sent_s for reply in replies)
    assert load.stop() is replies, "stop is idempotent"
    assert load.generator_cpu_s > 0
    for reply in finished[:2]:
        following = [other for other in replies if other.scheduled_s >= reply.end_s]
        assert following, "a place that became free was taken again"


def test_cut_replies_keep_their_chunks() -> None:
    with StubServer(Script(pieces=PIECES, tpot_s=0.05)) as server:
        load = session(server, requests=requests(max_tokens=10_000))
        load.start()
        time.sleep(0.5)
        replies = load.stop()
    assert {reply.error for reply in replies} == {"cut"}
    assert all(reply.chunks and reply.finish_reason is None and reply.usage is None for reply in replies)


def test_paused_time_is_not_active_and_nothing_happens_in_it() -> None:
    with StubServer(Script(pieces=PIECES, tpot_s=0.01)) as server:
        load = session(server, requests=requests(max_tokens=10_000))
        load.start()
        time.sleep(0.3)
        load.pause()
        server.pause()
        stood_at = load.mark()
        time.sleep(1.0)
        assert load.mark() == stood_at
        assert load.is_paused
        server.resume()
        load.resume()
        time.sleep(0.3)
        ended_at = load.mark()
        replies = load.stop()
    assert ended_at >= stood_at + 0.3
    times = [chunk.at_s for reply in replies for chunk in reply.chunks]
    assert min(times) < stood_at < max(times) <= ended_at + 0.5, "the load went on in active time"
    assert not [reply for reply in replies if reply.error != "cut"], "the pause broke no connection"


def test_open_loop_arrivals_are_scheduled_in_active_time_without_a_burst_after_a_pause() -> None:
    with StubServer(Script(pieces=PIECES)) as server:
        load = session(server, load=LoadPoint(name="r20", rate_per_s=20.0), seed=5, requests=requests(max_tokens=2))
        load.start()
        time.sleep(0.5)
        load.pause()
        stood_at = load.active_now_s()
        time.sleep(1.5)
        load.resume()
        time.sleep(0.5)
        ended_at = load.active_now_s()
        replies = load.stop()
    expected = list(islice(poisson_arrivals(20.0, seed=5), len(replies)))
    assert [reply.scheduled_s for reply in replies] == pytest.approx(expected, abs=1e-5)
    assert [reply.request.arrival_s for reply in replies] == expected
    assert all(reply.sent_s >= reply.scheduled_s for reply in replies)
    due_after = [reply for reply in replies if reply.scheduled_s > stood_at]
    assert due_after, "the load went on after the pause"
    # 1.5 s of paused time hold about 30 arrivals; had they counted, they would have been sent at once
    assert all(reply.scheduled_s <= ended_at + 0.5 for reply in replies)


def test_open_loop_latency_counts_from_the_scheduled_time_however_slow_the_server() -> None:
    replies = run_all(
        Script(pieces=PIECES, ttft_s=1.0), num=5, max_tokens=2, load=LoadPoint(name="r50", rate_per_s=50.0), seed=1
    )
    assert len(replies) == 5
    assert all(reply.error is None for reply in replies)
    assert max(reply.sent_s for reply in replies) < min(reply.end_s for reply in replies), "no reply was waited for"


@pytest.mark.parametrize(
    ("script", "error"),
    [
        (Script(status=429), 'HTTP 429: {"error": {"message": "scripted failure"}}'),
        (Script(pieces=PIECES, drop_after_tokens=3), "connection lost before the end of the reply"),
        (Script(pieces=PIECES, raw_event="{broken"), "malformed event: "),
        (
            Script(pieces=PIECES, raw_event='{"error": {"message": "no memory"}}'),
            "error event: {'message': 'no memory'}",
        ),
    ],
)
def test_failures_are_replies_with_an_error(script: Script, error: str) -> None:
    replies = run_all(script, num=2)
    assert len(replies) == 2
    assert all(reply.error is not None and reply.error.startswith(error) for reply in replies)


def test_some_failures_do_not_stop_the_load() -> None:
    replies = run_all(Script(pieces=PIECES, fail_every=3), num=9)
    assert len(replies) == 9
    assert sum(reply.error is not None for reply in replies) == 3


def test_a_request_times_out_in_active_time() -> None:
    replies = run_all(Script(pieces=PIECES, ttft_s=30.0), num=1, request_timeout_s=0.2)
    assert [reply.error for reply in replies] == ["timed out after 0.2 s"]
    assert replies[0].end_s - replies[0].sent_s >= 0.2


def test_nobody_listening_is_an_error_per_request() -> None:
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        load = LoadSession(
            base_url=f"http://127.0.0.1:{holder.getsockname()[1]}",
            bundle=text_bundle(),
            dialect="vllm",
            model="m",
            load=C2,
            requests=requests(num=2),
        )
        load.start()
        load.wait(timeout_s=30)
        replies = load.stop()
    assert len(replies) == 2
    assert all(reply.error is not None and reply.error.startswith("connect: ") for reply in replies)


def test_a_dead_generator_is_an_infra_error(tmp_path: Path) -> None:
    noted = tmp_path / "pid"
    with StubServer(Script(pieces=PIECES, tpot_s=0.01)) as server:
        load = session(server, join=lambda argv: ["sh", "-c", f'echo $$ > {noted}; exec "$@"', "sh", *argv])
        load.start()
        os.kill(int(noted.read_text()), signal.SIGKILL)
        with pytest.raises(InfraError, match="load generator 'load' ended with -9"):
            load.wait(timeout_s=30)
        with pytest.raises(InfraError, match="load generator 'load' ended with -9"):
            load.mark()
        load.pause()
        load.stop()


def test_a_broken_stream_of_requests_is_an_infra_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threading, "excepthook", lambda _: None)

    def broken() -> Iterator[PromptRequest]:
        yield from requests(num=1)
        raise LookupError("pool is empty")

    with StubServer(Script(pieces=PIECES, ttft_s=0.3)) as server:
        load = session(server, requests=broken())
        load.start()
        time.sleep(0.2)
        with pytest.raises(InfraError, match="its stream of requests failed"):
            load.check()
        load.stop()


def test_join_wraps_the_generator_s_argv() -> None:
    seen: list[list[str]] = []

    def join(argv: list[str]) -> list[str]:
        seen.append(argv)
        return ["env", "VIBESERVE_JOINED=1", *argv]

    assert len(run_all(Script(pieces=PIECES), num=2, join=join)) == 2
    assert seen[0][-2:] == ["-m", "vibeserve.client.generator"]


def test_the_generator_joins_the_network_of_its_server() -> None:
    loopback_up = "import fcntl, socket, struct; fcntl.ioctl(socket.socket(), 0x8914, struct.pack('16sh', b'lo', 0x49))"
    walled = ["unshare", "-n", "sh", "-c", f'{sys.executable} -c "{loopback_up}"; exec "$@"', "sh"]
    if subprocess.run([*walled, "true"], capture_output=True, check=False).returncode != 0:
        pytest.skip("this user may not make a network namespace")
    with StubServer(Script(pieces=PIECES, tpot_s=0.005), join=lambda argv: [*walled, *argv]) as server:
        join_program = Path(vibeserve.__file__).parent / "sandbox" / "join.py"
        inside = session(
            server,
            requests=requests(num=4),
            join=lambda argv: [sys.executable, str(join_program), str(server.pid), "-", str(os.getpid()), "--", *argv],
        )
        outside = session(server, requests=requests(num=2))
        for load in (inside, outside):
            load.start()
            load.pause()
            load.resume()
            load.wait(timeout_s=30)
    assert [reply.error for reply in inside.stop()] == [None] * 4
    assert all(str(reply.error).startswith("connect: ") for reply in outside.stop())


def test_a_generator_that_cannot_start_says_why() -> None:
    load = LoadSession(
        base_url="http://127.0.0.1:9",
        bundle=text_bundle(),
        dialect="vllm",
        model="m",
        load=C2,
        requests=requests(),
        join=lambda argv: ["sh", "-c", "echo no such namespace >&2; exit 125"],
    )
    with pytest.raises(InfraError, match=r"did not start \(exit 125\)\nno such namespace"):
        load.start()


def test_a_load_is_either_closed_or_open() -> None:
    for load in (LoadPoint(name="none"), LoadPoint(name="both", concurrency=1, rate_per_s=1.0)):
        with pytest.raises(ValueError, match="exactly one of concurrency, rate_per_s and trace_speed"):
            LoadSession(
                bundle=text_bundle(), base_url="http://x", dialect="vllm", model="m", load=load, requests=requests()
            )


def test_an_unused_session_has_nothing_to_stop() -> None:
    load = LoadSession(
        bundle=text_bundle(), base_url="http://x", dialect="vllm", model="m", load=C2, requests=requests()
    )
    with pytest.raises(InfraError, match="is not started"):
        load.mark()
