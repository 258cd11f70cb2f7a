"""What cannot be done on another machine: refused when it is declared, not in the middle of a run."""

from __future__ import annotations

from collections.abc import Iterator

from vibeserve.spec import Host, Level, Spec

OWN_ENVIRONMENT = ("vllm", "llama_cpp")
SALLOC_OURS = ("--no-shell", "--job-name", "-J", "--nodes", "-N", "--quiet", "-Q")
"""options of salloc that are this program's own to give"""
DOCKER_OPTIONS = (
    "cpuset_cpus", "gpus", "init", "mem_limit", "network", "privileged", "security_opt", "shm_size", "user",
    "volumes",
)  # fmt: skip
"""of a container, by their names in the docker SDK; `gpus=all` asks for every GPU"""


def host_problems(spec: Spec) -> Iterator[str]:
    """One line for every rule that `spec` breaks, each starting with the key."""
    kind = spec.host.kind
    if kind == "local":
        return
    incomplete = list(incomplete_host(spec.host))
    yield from incomplete
    if incomplete:
        return
    if spec.budget.level is Level.full:
        why = f"full's soak reads the servers' processes, which a host of kind {kind} does not show"
        yield f"budget.level: {why}; valid: quick, standard"
    for name in spec.baseline:
        if name in OWN_ENVIRONMENT:
            yield f"baseline.{name}: has an environment of its own, which a host of kind {kind} has not; leave it out"


def incomplete_host(host: Host) -> Iterator[str]:
    """What is missing or wrong in how a host is reached."""
    if host.kind == "ssh" and not host.address:
        yield "host.address: a host of kind ssh needs one, such as user@machine"
    if host.kind == "docker" and not host.image:
        yield "host.image: a host of kind docker needs one, with an interpreter that has what runtimes import"
    if host.kind in ("local", "ssh") and host.options:
        yield f"host.options: a host of kind {host.kind} would ignore them"
    for option in host.options:
        name = option.split("=")[0]
        if host.kind == "slurm" and (name in SALLOC_OURS or not option.startswith("-")):
            yield f"host.options: '{option}' is no option of salloc that may be given; such as --partition=gpu"
        if host.kind == "docker" and (name not in DOCKER_OPTIONS or "=" not in option):
            yield f"host.options: '{option}' is none of a container; valid: {', '.join(DOCKER_OPTIONS)}, as NAME=VALUE"
