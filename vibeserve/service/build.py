"""The build step of a workspace, behind the wall, with a time limit of its own."""

from __future__ import annotations

import sys
from pathlib import Path

from vibeserve.errors import ServerError
from vibeserve.hosts import Host
from vibeserve.sandbox import Exceeded, Finished, Resources, Wall
from vibeserve.sandbox.resources import DEFAULT_RESOURCES
from vibeserve.service.launch import fill, hidden_from_candidates, thread_environment
from vibeserve.service.manifest import read_service
from vibeserve.spec import Sandbox, Tier


def build_workspace(
    workspace: Path,
    *,
    host: Host,
    tier: Tier,
    log: Path,
    cpus: tuple[int, ...] = (),
    threads: int = 1,
    timeout_s: float = Sandbox.build_timeout_s,
    resources: Resources = DEFAULT_RESOURCES,
    allow_engines: tuple[str, ...] = (),
) -> Finished | None:
    """Run the workspace's build step; None when it declares none. Only `build/` is writable.

    The shorter of the two limits holds: `timeout_s` and the service file's. Raises ServerError (`build_failed`,
    `timed_out` or a limit that it ran into) with the last lines of the compiler's output, RefusedError when
    service.yaml is refused.
    """
    service = read_service(workspace, allow_engines=allow_engines)
    if service.build is None:
        return None
    output = workspace / "build"
    output.mkdir(exist_ok=True)
    wall = Wall(
        tier=tier,
        workdir=workspace,
        read_only=(workspace,),
        writable=(output,),
        cpus=cpus,
        hidden_modules=hidden_from_candidates(allow_engines),
        is_measured=False,
        resources=resources,
        env={**thread_environment(threads), **service.env},
    )
    argv = fill(service.build, {"python": sys.executable, "threads": str(threads)})
    limit_s = min(timeout_s, service.build_timeout_s)
    return _judged(host.run(argv, wall=wall, log=log, timeout_s=limit_s), name=workspace.name, limit_s=limit_s)


def _judged(done: Finished, *, name: str, limit_s: float) -> Finished:
    # a step that was once refused a process and went on has done its work
    if done.exceeded is not None and (done.returncode != 0 or done.exceeded is not Exceeded.PROCESSES):
        detail = f"the build ended with status {done.returncode}"
        raise ServerError(name, outcome=done.exceeded.value, detail=detail, log_tail=done.log_tail)
    if done.timed_out:
        detail = f"the build ran longer than {limit_s:g} s"
        raise ServerError(name, outcome="timed_out", detail=detail, log_tail=done.log_tail)
    if done.returncode != 0:
        detail = f"the build ended with status {done.returncode}"
        raise ServerError(name, outcome="build_failed", detail=detail, log_tail=done.log_tail)
    return done
