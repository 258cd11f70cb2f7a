"""Where a target runs, and what round 0 starts from."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum


class SeedSearch(Enum):
    always = "always"
    if_refused = "if_refused"
    """an artifact's runtime that passes every gate as it is is certified, and nothing is searched"""


SEED_BASELINE = "seed"
"""baseline of a run that starts from a pinned engine: that engine as it is. The plan declares it, nobody else"""


@dataclass(kw_only=True)
class Host:
    """Where candidates are built, served and measured (`docs/hosts.md`)."""

    kind: str = "local"
    """local, ssh, slurm, docker"""
    address: str = ""
    """ssh: `user@machine`, `user@machine:port`, or a name of the ssh configuration; docker: URL of the daemon, empty =
    the one of the environment (`DOCKER_HOST`, or its socket)"""
    python: str = ""
    """ssh, slurm, docker: interpreter there, of an environment with what runtimes import; empty = python3"""
    root: str = ""
    """ssh, slurm, docker: folder there for runtimes, weights and logs; empty = .cache/vibeserve-host below the home
    folder"""
    ssh_config: str = ""
    """ssh: configuration file in place of ~/.ssh/config"""
    options: list[str] = field(default_factory=list)
    """slurm: options of salloc, such as `--partition=gpu`; docker: `gpus=all`, `cpuset_cpus=0-7`, `shm_size=8g` ..."""
    wait_s: float = 3600.0
    """slurm: most seconds in the queue before an allocation is granted"""
    idle_s: float = 120.0
    """slurm: seconds without a server after which the allocation is given back until the next measurement"""
    image: str = ""
    """docker: image of the container, with an interpreter that has what runtimes import"""


def place_of(host: Host) -> str:
    """The machine of a host that is not this one, in a few words."""
    if host.kind == "slurm":
        return " ".join(host.options) or "the default partition"
    return host.image if host.kind == "docker" else host.address


OWN_SEEDS = ("git", "path")
"""kinds of seeds that know nothing of the scaffold"""


@dataclass(kw_only=True)
class Seed:
    """What round 0 starts from (`docs/seeds.md`)."""

    kind: str = "scaffold"
    """scaffold, artifact, path, git (`docs/seeds.md`)"""
    path: str = ""
    """artifact, path: a folder, relative to the target's, else to the working directory or the repository's root"""
    url: str = ""
    """git: the repository, as `git clone` takes it"""
    commit: str = ""
    """git: the pinned commit, all of its hex digits"""
    overlay: str = ""
    """git: folder of files that go over the checkout (service.yaml, runtime/ ...), relative to the target's folder"""
    engine: str = ""
    """git: the serving engine that the repository is; allowed as if allow_engines named it"""
    licence: str = ""
    """git, path: SPDX expression, where the files themselves do not say"""
    digest: str = ""
    """filled by the plan: of what the folders hold; where it is declared, they must hold just that"""
    search: SeedSearch = SeedSearch.always
    """artifact: if_refused searches only where its runtime does not pass the gates (`vibeserve upgrade`)"""
