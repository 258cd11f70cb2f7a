"""The wall around what an agent runs: commands of our own loop's tools, and whole command-line agents."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from vibeserve.agents.requests import AgentRequest
from vibeserve.hosts import Host
from vibeserve.sandbox import Resources, Wall
from vibeserve.service.launch import hidden_from_candidates, model_paths
from vibeserve.spec import Tier


@dataclass(frozen=True, kw_only=True)
class ToolSandbox:
    """Where the commands of a run's agents are carried out, and with what."""

    host: Host
    tier: Tier
    """resolved"""
    resources: Resources = field(default_factory=Resources)
    allow_engines: tuple[str, ...] = ()
    """importable inside, like a candidate's"""
    cpus: tuple[int, ...] = ()
    """affinity; empty = as the caller's"""
    env: Mapping[str, str] = field(default_factory=dict)
    """beside what every wall has: thread counts and the like, nothing of the host's own"""
    model_dir: Path | None = None
    """of which a candidate's server sees the same parts"""


def agent_wall(
    sandbox: ToolSandbox,
    request: AgentRequest,
    *,
    read_only: tuple[Path, ...] = (),
    writable: tuple[Path, ...] = (),
    env: Mapping[str, str] | None = None,
) -> Wall:
    """Nothing but the workspace, what the request lets its agent read, the model's files, and what is named here.

    The workspace can be written where the request says so. There is no network, no home directory and nothing of the
    host's environment; engines and this framework cannot be imported, as in a candidate's wall.
    """
    workspace = request.workspace
    open_paths = (*((workspace,) if request.is_writable else ()), *writable)
    closed = (*(() if request.is_writable else (workspace,)), *request.read_only, *model_paths(sandbox.model_dir))
    return Wall(
        tier=sandbox.tier,
        workdir=workspace,
        read_only=tuple(dict.fromkeys((*closed, *read_only))),
        writable=open_paths,
        hidden_modules=hidden_from_candidates(sandbox.allow_engines),
        is_measured=False,
        cpus=sandbox.cpus,
        env={**sandbox.env, **(env or {})},
        resources=sandbox.resources,
    )
