"""Where servers are built, started and measured. One port, `Host`; this machine, or one that is reached by pipes."""

from __future__ import annotations

from vibeserve import spec
from vibeserve.errors import SpecError
from vibeserve.hosts.local import LocalHost
from vibeserve.hosts.port import Host

__all__ = ["KINDS", "Host", "LocalHost", "get_host"]
KINDS = ("local", "ssh", "slurm", "docker")


def get_host(declared: spec.Host) -> Host:
    """The host of that kind; one that is not this machine is not connected to before it is used. SpecError for an
    unknown kind."""
    if declared.kind == "local":
        return LocalHost()
    if declared.kind == "ssh":
        from vibeserve.hosts.ssh import SshHost

        return SshHost(declared)
    if declared.kind == "slurm":
        from vibeserve.hosts.slurm import SlurmHost

        return SlurmHost(declared)
    if declared.kind == "docker":
        from vibeserve.hosts.container import DockerHost

        return DockerHost(declared)
    raise SpecError(f"host.kind: unknown host '{declared.kind}'", problems=[f"valid kinds: {', '.join(KINDS)}"])
