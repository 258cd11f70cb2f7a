"""The bench: one plan on one host with the model at hand. It builds, starts, loads and looks at servers."""

from __future__ import annotations

import json
import math
import re
import secrets
import shutil
import subprocess
import sys
import threading
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import islice
from pathlib import Path

from vibeserve.audit import check_libraries
from vibeserve.client import LoadSession
from vibeserve.contract import Metric, Request
from vibeserve.core.documents import digest_of, digest_tree
from vibeserve.core.nouns import LoadPoint, Refusal
from vibeserve.core.spent import Spent
from vibeserve.errors import RefusedError, ServerError
from vibeserve.hosts import Host, get_host
from vibeserve.lease import FreeLease, Lease
from vibeserve.modalities import Bundle, bundle_ref, metrics_of, open_bundle, target_folders
from vibeserve.plan import Plan
from vibeserve.sandbox import Resources, resources_of
from vibeserve.service import (
    FETCH_PROGRAM,
    Launch,
    Server,
    build_workspace,
    candidate_launch,
    first_request,
    start_server,
)
from vibeserve.skills import compose_scaffold, write_scaffold
from vibeserve.skills.card import SPANS
from vibeserve.spec import Tier
from vibeserve.weights import ModelDir
from vibeserve.workloads import Pool, at_load

FETCH_TIMEOUT_S = 10.0
FETCH_LIMIT_S = 3 * FETCH_TIMEOUT_S
"""of the whole answer: the timeout above is of one read"""
WARM_UP_TIMEOUT_S = 240.0
WARM_UP_SEED = 1
SPAN_LINE = re.compile(
    r'vibeserve_span_seconds_total\{[^}]*\bspan="(?P<span>[^"]+)"[^}]*\} (?P<seconds>[0-9]+(\.[0-9]+)?(e[+-]?[0-9]+)?)'
)
UNCOMPILED = ("runtime/parameters.py", "runtime/assembly.json")
"""what differs between settings of the same sources; certification has a bench of its own, so it builds afresh"""
BUILT_SUFFIX = ".so"


@dataclass(frozen=True, kw_only=True)
class Workbench:
    plan: Plan
    host: Host
    tier: Tier
    model: ModelDir
    run_dir: Path
    """logs, records of processes, built sources; belongs to this run alone"""
    lease: Lease = field(default_factory=FreeLease)
    """when the devices may be used"""
    spent: Spent = field(default_factory=Spent)
    """seconds of this bench, by activity"""
    served: dict[str, list[Server]] = field(default_factory=dict)
    """every server of a candidate so far, by name"""
    building: dict[str, threading.Lock] = field(default_factory=lambda: defaultdict(threading.Lock), repr=False)
    """by digest of the sources: candidates that are built at once may share theirs"""

    @classmethod
    def open(cls, plan: Plan, *, model: ModelDir, run_dir: Path, lease: Lease | None = None) -> Workbench:
        """The bench of `plan`. Kills what an earlier controller of the same run left behind."""
        host = get_host(plan.spec.host)
        run_dir.mkdir(parents=True, exist_ok=True)
        host.sweep_orphans(run_dir)
        return cls(
            plan=plan, host=host, model=model, run_dir=run_dir,
            lease=lease or FreeLease(),
            tier=host.resolve_tier(plan.spec.sandbox.tier, allow_none=plan.spec.sandbox.allow_none),
        )  # fmt: skip

    @cached_property
    def resources(self) -> Resources:
        """What of the machine a server or a command of this plan may use."""
        return resources_of(self.plan.spec.sandbox, hardware=self.plan.spec.hardware)

    @cached_property
    def bundle(self) -> Bundle:
        """What is asked, what is right and how far a reply may be off, for this plan's model."""
        return open_bundle(bundle_ref(self.plan.spec, model_dir=self.model.path))

    @cached_property
    def metrics(self) -> dict[str, Metric]:
        """Every metric of this plan's workload, by name."""
        return metrics_of(self.bundle)

    def bundle_at(self, load: str) -> Bundle:
        """The bundle whose workload is asked for as this load declares: its own lengths, prefixes, prediction."""
        workload = at_load(self.plan.spec.workload, load)
        if workload == self.plan.spec.workload:
            return self.bundle
        return open_bundle(bundle_ref(replace(self.plan.spec, workload=workload), model_dir=self.model.path))

    @cached_property
    def scaffold(self) -> Path:
        """What round 0 starts from: a shipped folder, or one below `run_dir` that it was put together in."""
        composition = compose_scaffold(self.plan.spec.model, folders=target_folders(self.plan.spec))
        return write_scaffold(composition, self.run_dir / "scaffold")

    def load_point(self, name: str) -> LoadPoint:
        load = self.plan.spec.workload.loads[name]
        return LoadPoint(
            name=name, concurrency=load.concurrency, rate_per_s=load.rate_per_s, trace_speed=load.trace_speed
        )

    def build(self, workspace: Path) -> None:
        """Run the workspace's build step, or reuse the output of the same sources. ServerError when it fails."""
        shutil.rmtree(workspace / "build", ignore_errors=True)
        digest = _source_digest(workspace)
        with self.building[digest]:
            self._build(workspace, cached=self.run_dir / "builds" / digest)

    def _build(self, workspace: Path, *, cached: Path) -> None:
        target = workspace / "build"
        if cached.is_dir():
            shutil.copytree(cached, target)
            return
        with self.spent.on("build"):
            build_workspace(
                workspace, host=self.host, tier=self.tier, log=self.run_dir / f"{workspace.name}.build.log",
                timeout_s=self.plan.spec.sandbox.build_timeout_s, allow_engines=tuple(self.plan.spec.allow_engines),
                resources=self.resources,
            )  # fmt: skip
        if target.is_dir():
            refuse_foreign_output(target)
            refuse_foreign_symbols(workspace)
            _copy_whole(target, cached)

    def serve(self, workspace: Path, *, name: str) -> Server:
        """Start the runtime of a built workspace behind the wall, on the engine's cores."""
        allow_engines = tuple(self.plan.spec.allow_engines)
        launch = candidate_launch(workspace, model_dir=self.model.path, allow_engines=allow_engines, name=name)
        server = self.start(launch)
        self.served.setdefault(name, []).append(server)
        return server

    def untidiness(self, name: str) -> list[Refusal]:
        """What every server of that name left behind or had beside what it was given. They are stopped: one that is
        not, and a name that never served, were not looked at, which refuses, too."""
        servers = self.served.get(name, [])
        if not servers or any(server.leftovers is None for server in servers):
            text = f"what '{name}' leaves behind is unknown: it is not stopped, or was never started"
            return [Refusal(gate="cleanliness", reason_class="not_checked", text=text)]
        found = [leftover for server in servers for leftover in server.leftovers or ()]
        return [Refusal(gate="cleanliness", reason_class=each.kind, text=each.text) for each in found]

    def start(self, launch: Launch, *, dialect: str = "vllm", model: str = "") -> Server:
        """Start any server, candidate or baseline, on the same cores behind the same wall, until it has served one
        request that nobody has seen before. `model`: as for `session`."""
        with self.spent.on("start"):
            server = start_server(
                launch, host=self.host, tier=self.tier, cpus=self.plan.engine_cpus, threads=self.plan.threads,
                run_dir=self.run_dir, resources=self.resources,
                first=first_request(self.bundle, seed=secrets.randbits(31), dialect=dialect, model=model),
            )  # fmt: skip
        server.spent = self.spent
        return server

    def session(
        self,
        server: Server,
        *,
        load: str,
        pool: Pool,
        seed: int,
        dialect: str = "vllm",
        model: str = "",
        is_plain: bool = False,
    ) -> LoadSession:
        """A load on `server`, not started. `model` is the name to send; empty = the one that the server lists.

        `is_plain`: without what only the check asks for, because nobody judges this server.
        """
        bundle = self.bundle_at(load)
        requests = bundle.load_requests(seed, pool)
        return self.load_session(
            server, bundle=bundle, requests=map(bundle.plain, requests) if is_plain else requests, seed=seed,
            load=self.load_point(load), dialect=dialect, model=model, name=server.name,
        )  # fmt: skip

    def load_session(
        self, server: Server, *, bundle: Bundle, requests: Iterator[Request], load: LoadPoint, dialect: str, model: str,
        name: str, seed: int = 0,
    ) -> LoadSession:  # fmt: skip
        """A load of these requests, not started; `session` makes one of the plan's own."""
        return LoadSession(
            bundle=bundle, base_url=server.base_url, dialect=dialect, model=model or self.model_name(server), load=load,
            requests=requests, seed=seed, cpus=self.plan.client_cpus, name=name,
            join=lambda argv: self.host.join_argv(server.process, argv),
        )  # fmt: skip

    def warm_up(self, server: Server, *, dialect: str = "vllm", model: str = "") -> None:
        """Two short requests, answered before anything is timed: what a rival builds at its first request is built."""
        session = self.load_session(
            server, bundle=self.bundle, requests=warm_up_requests(self.bundle, num=2), dialect=dialect, model=model,
            load=LoadPoint(name="warm-up", concurrency=2), name=f"warm-up-{server.name}",
        )  # fmt: skip
        session.start()
        try:
            session.wait(timeout_s=WARM_UP_TIMEOUT_S)
        finally:
            replies = session.stop()
        failed = next((reply.error for reply in replies if reply.error is not None), None)
        if failed is not None:
            raise ServerError(
                server.name, outcome=server.outcome, detail=f"warm-up failed: {failed}", log_tail=server.log_tail()
            )

    def model_name(self, server: Server) -> str:
        """The first model that the server lists. ServerError when it lists none."""
        try:
            return str(json.loads(self.fetch(server, "/v1/models"))["data"][0]["id"])
        except (ValueError, KeyError, IndexError, TypeError) as error:
            detail = f"/v1/models lists no model ({type(error).__name__})"
            raise ServerError(server.name, outcome=server.outcome, detail=detail, log_tail=server.log_tail()) from error

    def fetch(self, server: Server, path: str) -> str:
        """Body of a GET on the server, by a child of ours in its network. ServerError when it does not answer."""
        script = FETCH_PROGRAM
        argv = [sys.executable, "-I", "-S", str(script), server.base_url + path, str(FETCH_TIMEOUT_S)]
        joined = self.host.join_argv(server.process, argv, cpus=self.plan.client_cpus)
        try:
            done = subprocess.run(
                joined, capture_output=True, text=True, errors="replace", check=False, timeout=FETCH_LIMIT_S,
                process_group=0,
            )  # fmt: skip
        except subprocess.TimeoutExpired as error:
            detail = f"GET {path} was not answered whole in {FETCH_LIMIT_S:g} s"
            raise ServerError(server.name, outcome="timed_out", detail=detail, log_tail=server.log_tail()) from error
        if done.returncode != 0:
            detail = done.stderr.strip() or f"GET {path} failed"
            raise ServerError(server.name, outcome=server.outcome, detail=detail, log_tail=server.log_tail())
        return done.stdout

    def request_spans(self, server: Server) -> dict[str, float]:
        """Request-seconds by span so far, from the runtime's own counters: they steer the search and decide nothing."""
        return parse_spans(self.fetch(server, "/metrics"))


def warm_up_requests(bundle: Bundle, *, num: int) -> Iterator[Request]:
    """The cheapest that the workload has, of the pool that anybody may see, without what only the check asks for."""
    with bundle.blamed("workload"):
        requests = list(islice(bundle.workload.requests(WARM_UP_SEED, Pool.visible), num))
    return iter([bundle.plain(bundle.shortened(request)) for request in requests])


def parse_spans(exposition: str) -> dict[str, float]:
    """Seconds by span in a Prometheus exposition. A candidate writes it: what is no known span or no number is left
    out."""
    spans: dict[str, float] = {}
    for line in exposition.splitlines():
        found = SPAN_LINE.fullmatch(line.strip())
        if found and found["span"] in SPANS:
            spans[found["span"]] = spans.get(found["span"], 0.0) + float(found["seconds"])
    return {name: value for name, value in spans.items() if math.isfinite(value)}


def _copy_whole(source: Path, destination: Path) -> None:
    """Copy a folder so that `destination` is there whole or not at all."""
    draft = destination.with_name(f".{destination.name}.draft")
    shutil.rmtree(draft, ignore_errors=True)
    shutil.copytree(source, draft)
    draft.rename(destination)


def refuse_foreign_output(build: Path) -> None:
    """A build step compiles libraries. RefusedError for anything else that it left: no scan has read that."""
    foreign = [path for path in sorted(build.rglob("*")) if path.is_symlink() or path.suffix != BUILT_SUFFIX]
    if foreign:
        names = ", ".join(path.relative_to(build.parent).as_posix() for path in foreign[:5])
        text = f"the build step left {names}; it may leave build/*{BUILT_SUFFIX} only"
        reason = Refusal(gate="build", reason_class="foreign_output", text=text, file=names.split(", ")[0])
        raise RefusedError(text, reasons=[reason])


def refuse_foreign_symbols(workspace: Path) -> None:
    """RefusedError for a built library that takes more from the system than a computation needs."""
    refusals = check_libraries(workspace)
    if refusals:
        raise RefusedError(refusals[0].text, reasons=refusals)


def _source_digest(workspace: Path) -> str:
    digests = digest_tree(workspace)
    return digest_of({path: digest for path, digest in digests.items() if path not in UNCOMPILED})[:24]


def span_shares(before: dict[str, float], after: dict[str, float]) -> dict[str, float]:
    """Share of request time by span between two readings; empty when nothing was served."""
    spent = {name: max(0.0, value - before.get(name, 0.0)) for name, value in after.items()}
    total = sum(spent.values())
    return {name: value / total for name, value in sorted(spent.items())} if total > 0 else {}
