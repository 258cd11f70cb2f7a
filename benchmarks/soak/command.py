"""`invoke soak`: start one runtime behind its wall, send it everything in turn, watch its memory."""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.soak.traffic import Tally, drive
from vibeserve.arguments import VerbParser
from vibeserve.artifact import read_spec, resolve_artifact, unpack_runtime
from vibeserve.benchmark.drift import memory_slope
from vibeserve.config import compose_spec
from vibeserve.core.paths import cache_dir, data_dir
from vibeserve.errors import InfraError, RefusedError
from vibeserve.hosts import get_host
from vibeserve.live_audits.processes import resident_gib
from vibeserve.live_audits.soak import MAX_GROWTH, MIN_GROWTH_GIB, WARM_SHARE
from vibeserve.service import build_workspace, candidate_launch, start_server
from vibeserve.skills import assemble, compose_scaffold, load_skills, resolve, write_scaffold
from vibeserve.spec import Spec
from vibeserve.weights import materialise

NUM_REQUESTS = 10_000
NUM_SAMPLES = 50
"""of memory, evenly over the requests"""


@dataclass(frozen=True, kw_only=True)
class Soaked:
    """Document of a soak. Memory is the resident one of all the server's processes, GiB."""

    runtime: str
    num_requests: int
    num_sent: int
    num_retried: int
    seconds: float
    outcomes: dict[str, int]
    num_faults: int
    faults: tuple[str, ...]
    memory_gib: tuple[tuple[int, float], ...]
    """(requests so far, GiB)"""
    growth_share: float
    """over the run without its first tenth, as a share of the median"""
    growth_gib: float
    is_flat: bool
    schema_version: int = 1

    @property
    def problems(self) -> list[str]:
        """Why it is no clean soak."""
        found = []
        if self.num_sent < self.num_requests:
            found.append(f"{self.num_sent} of {self.num_requests} requests in the time that there was")
        if self.num_faults:
            found.append(f"{self.num_faults} answers are not as they have to be; {'; '.join(self.faults)}")
        if not self.is_flat:
            limits = f"at most {MAX_GROWTH:.0%} or {MIN_GROWTH_GIB:g} GiB are allowed"
            found.append(f"memory grew by {self.growth_share:.1%} ({self.growth_gib:.3f} GiB), {limits}")
        return found


def main(argv: Sequence[str]) -> int:
    """0 where all requests were answered as they had to be and memory stayed flat; RefusedError otherwise."""
    parser = VerbParser("soak", is_task=True, description="10,000 requests of every kind, and flat memory.")
    parser.add_argument("--requests", type=_positive, default=NUM_REQUESTS, help=f"default {NUM_REQUESTS}")
    parser.add_argument("--concurrency", type=_positive, default=8, help="requests in flight, default 8")
    parser.add_argument("--target", default="tiny_cpu", help="whose model is served, default tiny_cpu")
    parser.add_argument("--components", default="", help="of the skills, such as continuous-batching,native-forward")
    parser.add_argument("--artifact", type=Path, help="a packaged runtime and its model, in place of those two")
    parser.add_argument("--limit-s", type=float, default=3600.0, help="stop then at the latest, default 3600")
    arguments = parser.parse_args(argv)
    with TemporaryDirectory(prefix="vibeserve-soak-") as scratch:
        workspace = Path(scratch) / "workspace"
        if arguments.artifact:
            folder = resolve_artifact(arguments.artifact)
            spec, name = read_spec(folder), folder.name
            unpack_runtime(folder, workspace)
        else:
            spec, name = compose_spec([f"+target={arguments.target}"]), arguments.components or "scaffold"
            _assemble(spec, arguments.components, workspace)
        soaked = soak(
            workspace, spec=spec, name=name, run_dir=Path(scratch), num_requests=arguments.requests,
            concurrency=arguments.concurrency, limit_s=arguments.limit_s,
        )  # fmt: skip
    sys.stdout.write((json.dumps(asdict(soaked), indent=2) if arguments.is_json else _told(soaked)) + "\n")
    if soaked.problems:
        raise RefusedError(f"soak: {'; '.join(soaked.problems)}")
    return 0


def soak(
    workspace: Path, *, spec: Spec, name: str, run_dir: Path, num_requests: int, concurrency: int, limit_s: float
) -> Soaked:  # fmt: skip
    """Build and start the runtime in `workspace`, behind its wall; send it everything, stop it."""
    engines = tuple(spec.allow_engines)
    host = get_host(spec.host)
    tier = host.resolve_tier(spec.sandbox.tier, allow_none=spec.sandbox.allow_none)
    build_workspace(workspace, host=host, tier=tier, log=run_dir / "build.log", allow_engines=engines)
    model = materialise(spec.model, cache=cache_dir(), target_dir=spec.target.folder_of(""))
    launch = candidate_launch(workspace, model_dir=model.path, allow_engines=engines)
    server = start_server(launch, host=host, tier=tier, cpus=(), threads=1, run_dir=run_dir, network="host")
    samples: list[tuple[int, float]] = []

    def watch(tally: Tally) -> None:
        if tally.num_sent >= (len(samples) + 1) * num_requests / NUM_SAMPLES:
            samples.append((tally.num_sent, resident_gib(server.process.descendants())))

    started_s = time.monotonic()
    try:
        tally = asyncio.run(
            drive(server.base_url, num_requests=num_requests, concurrency=concurrency, limit_s=limit_s, watch=watch)
        )
        status = server.poll()
        if status is not None:
            raise InfraError(f"soak: the server ended with status {status}\n{server.log_tail()}")
    finally:
        server.stop()
    return judged(tally, samples, name=name, num_requests=num_requests, seconds=time.monotonic() - started_s)


def judged(
    tally: Tally, samples: Sequence[tuple[int, float]], *, name: str, num_requests: int, seconds: float
) -> Soaked:
    """Pure. Memory counts after the first tenth, when caches and pools are full; the slope is that over requests."""
    counted = [(at, gib) for at, gib in samples if at >= WARM_SHARE * num_requests and gib > 0]
    share = memory_slope(counted).growth_share if len(counted) >= 3 else float("inf")
    level = sorted(gib for _, gib in counted)[len(counted) // 2] if counted else 0.0
    grown = share * level if counted and share != float("inf") else 0.0
    is_flat = share <= MAX_GROWTH or (share != float("inf") and grown < MIN_GROWTH_GIB)
    return Soaked(
        runtime=name, num_requests=num_requests, num_sent=tally.num_sent, num_retried=tally.num_retried,
        seconds=round(seconds, 1), outcomes=dict(tally.outcomes), num_faults=tally.num_faults,
        faults=tuple(tally.faults), memory_gib=tuple((at, round(gib, 4)) for at, gib in samples),
        growth_share=round(share, 4), growth_gib=round(grown, 4), is_flat=is_flat,
    )  # fmt: skip


def _assemble(spec: Spec, components: str, workspace: Path) -> None:
    names = [name.strip() for name in components.split(",") if name.strip()]
    chosen = resolve(names, load_skills(data_dir("skills"))) if names else ()
    scaffold = write_scaffold(compose_scaffold(spec.model), workspace.with_name("scaffold"))
    assemble(scaffold, chosen, {}, workspace)


def _positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text} is no number from 1 on")
    return int(text)


def _told(soaked: Soaked) -> str:
    kinds = ", ".join(f"{name} {number}" for name, number in soaked.outcomes.items())
    first, last = (soaked.memory_gib[0][1], soaked.memory_gib[-1][1]) if soaked.memory_gib else (0.0, 0.0)
    return "\n".join(
        [
            f"{soaked.runtime}: {soaked.num_sent} requests in {soaked.seconds:.0f} s, {soaked.num_retried} sent again",
            f"  {kinds}",
            f"  memory {first:.3f} GiB at the first sample, {last:.3f} at the last, growth {soaked.growth_share:.1%}",
            f"  {'; '.join(soaked.problems) or 'every answer as it has to be, memory flat'}",
        ]
    )
