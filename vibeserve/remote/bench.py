"""The bench of a plan whose servers are on another machine. What judges and decides stays here; what is built, served,
loaded and timed is there."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, cast

from vibeserve.client import LoadSession
from vibeserve.contract import Request
from vibeserve.core.documents import from_data, to_data
from vibeserve.core.nouns import LoadPoint
from vibeserve.hosts.piped import PipedHost
from vibeserve.lease import FreeLease, Lease
from vibeserve.modalities import Bundle
from vibeserve.plan import Plan
from vibeserve.remote.servers import Forward, RemoteLoad, RemoteServer, relay_argv
from vibeserve.roles.workbench import Workbench
from vibeserve.sandbox import Resources
from vibeserve.service import Launch, Server, first_request
from vibeserve.service.launch import model_paths
from vibeserve.weights import ModelDir


@dataclass(frozen=True, kw_only=True)
class RemoteBench(Workbench):
    """See `Workbench`."""

    loads: dict[str, RemoteLoad] = field(default_factory=dict)
    """by id: whose generator asks for requests"""

    @classmethod
    def connect(
        cls, plan: Plan, *, host: PipedHost, model: ModelDir, run_dir: Path, lease: Lease | None = None
    ) -> RemoteBench:
        """The bench on that host; kills there what an earlier controller of the same run left."""
        run_dir.mkdir(parents=True, exist_ok=True)
        host.sweep_orphans(run_dir)
        tier = host.resolve_tier(plan.spec.sandbox.tier, allow_none=plan.spec.sandbox.allow_none)
        bench = cls(plan=plan, host=host, model=model, run_dir=run_dir, lease=lease or FreeLease(), tier=tier)
        host.on_event = bench._on_event
        return bench

    @property
    def there(self) -> PipedHost:
        assert isinstance(self.host, PipedHost)
        return self.host

    @cached_property
    def resources(self) -> Resources:
        """What of the host a server may use."""
        spec = self.plan.spec
        found = self.there.call("resources", sandbox=to_data(spec.sandbox), hardware=to_data(spec.hardware))
        return from_data(Resources, found)

    def start(self, launch: Launch, *, dialect: str = "vllm", model: str = "") -> Server:
        first = first_request(self.bundle, seed=secrets.randbits(31), dialect=dialect, model=model)
        host = self.there
        if launch.model_dir is not None:
            # by the digest of what a server reads of it: sent once for all runs
            host.placed_together(launch.model_dir, [path.name for path in model_paths(launch.model_dir)])
        host.placed(launch.workdir, *launch.read_only)
        document = host.there(to_data(launch))
        with self.spent.on("start"):
            told = host.call(
                "serve", launch=document, tier=self.tier.value, cpus=list(self.plan.engine_cpus),
                threads=self.plan.threads, resources=to_data(self.resources), first=to_data(first) if first else None,
            )  # fmt: skip
        port = int(str(told["url"]).rpartition(":")[2])
        relay = relay_argv(
            host, network_pid=told["network_pid"], port=port, framework=host.framework, python=host.python
        )
        server = RemoteServer(
            name=launch.name, host=host, handle=told["server"], startup_s=told["startup_s"], forward=Forward(relay),
            spent=self.spent,
        )  # fmt: skip
        return cast("Server", server)  # it has what is asked of one

    def load_session(
        self, server: Server, *, bundle: Bundle, requests: Iterator[Request], load: LoadPoint, dialect: str, model: str,
        name: str, seed: int = 0,
    ) -> LoadSession:  # fmt: skip
        found: Any = server
        session = RemoteLoad(
            server=found, bundle=bundle, dialect=dialect, model=model or self.model_name(server), load=load,
            requests=requests, seed=seed, cpus=self.plan.client_cpus, name=name,
        )  # fmt: skip
        self.loads[session.load_id] = session
        return session

    def fetch(self, server: Server, path: str) -> str:
        found: Any = server
        return str(self.there.call("fetch", server=found.handle, path=path))

    def _on_event(self, event: dict[str, Any]) -> None:
        if event["event"] == "need" and event["load"] in self.loads:
            self.loads[event["load"]].give()
