"""Can the load generator keep up? It drives the stub at a multiple of the expected rate, and its own lag is read.

The stub streams text, whatever the workload: text's `send`, which reads every token's event, is the most work for every
event that comes built in. How far a workload's own `send` runs behind is `sent_lag_max_s` of each of its windows.

A slow client makes every server look slow, and alike (measurement hack 38, MLPerf's and arXiv 2605.24217's advice).
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from vibeserve.client.session import LoadSession, sent_lag_s
from vibeserve.client.stub import Script, StubServer
from vibeserve.contract import CUT
from vibeserve.core.nouns import LoadPoint, PromptRequest, Reply
from vibeserve.errors import InfraError
from vibeserve.modalities import bundle_ref, open_bundle
from vibeserve.spec import Spec

FACTOR = 2.0
MIN_SHARE = 0.9
"""of the scripted rate that must arrive"""
MAX_LAG_P99_S = 0.05
"""a tenth of the tightest TTFT objective in use"""
_OUTPUT_TOKENS = 64


@dataclass(frozen=True, kw_only=True)
class Headroom:
    """What the generator did against a stub with a known rate. Rates in events per second."""

    scripted_per_s: float
    reached_per_s: float
    sent_lag_p99_s: float
    num_replies: int
    generator_cpu_share: float
    """of one core"""

    @property
    def problems(self) -> list[str]:
        problems = []
        if self.reached_per_s < MIN_SHARE * self.scripted_per_s:
            problems.append(f"only {self.reached_per_s:.0f} of {self.scripted_per_s:.0f} events/s arrived")
        if self.sent_lag_p99_s > MAX_LAG_P99_S:
            problems.append(f"requests left {1e3 * self.sent_lag_p99_s:.1f} ms late (p99)")
        return problems

    def check(self) -> None:
        """InfraError when this machine's client could not keep up: no measurement would mean anything."""
        if self.problems:
            raise InfraError(
                f"the load generator has no headroom: {'; '.join(self.problems)}\n"
                "next: give it a core of its own (hardware.client_cpus) or free the machine"
            )


def headroom(
    *,
    events_per_s: float,
    concurrency: int,
    duration_s: float = 2.0,
    factor: float = FACTOR,
    client_cpus: tuple[int, ...] = (),
    engine_cpus: tuple[int, ...] = (),
    join: Callable[[list[str]], list[str]] | None = None,
) -> Headroom:
    """Drive a stub that streams `factor * events_per_s` events a second over `concurrency` streams; `check` judges."""
    scripted_per_s = factor * events_per_s
    tpot_s = concurrency / scripted_per_s
    script = Script(ttft_s=tpot_s, tpot_s=tpot_s, token_ids=(1,), cpus=engine_cpus)
    with StubServer(script, name="headroom", join=join) as stub:
        session = LoadSession(
            bundle=open_bundle(bundle_ref(Spec())),
            base_url=stub.base_url,
            dialect="vllm",
            model="stub",
            load=LoadPoint(name=f"c{concurrency}", concurrency=concurrency),
            requests=_requests(),
            cpus=client_cpus,
            join=join,
            name="headroom",
        )
        session.start()
        time.sleep(duration_s)
        active_s = session.mark()
        replies = session.stop()
    failed = [reply.error for reply in replies if reply.error not in (None, CUT)]
    if failed:
        raise InfraError(f"headroom check: the stub's replies failed: {failed[0]}")
    lags = sorted(sent_lag_s(replies))
    return Headroom(
        scripted_per_s=scripted_per_s,
        reached_per_s=sum(len(reply.chunks) for reply in replies if isinstance(reply, Reply)) / active_s,
        sent_lag_p99_s=lags[int(0.99 * (len(lags) - 1))] if lags else float("inf"),
        num_replies=len(replies),
        generator_cpu_share=session.generator_cpu_s / active_s,
    )


def _requests() -> Iterator[PromptRequest]:
    for number in itertools.count():
        yield PromptRequest(
            request_id=f"headroom-{number}", prompt="word " * 256, num_prompt_tokens=256, max_tokens=_OUTPUT_TOKENS
        )
