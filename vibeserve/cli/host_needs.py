"""What `doctor` looks at on this machine before it goes to a host: what leads there."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable, Iterator, Mapping
from importlib.util import find_spec

from vibeserve.cli.doctor import Finding, State
from vibeserve.errors import InfraError
from vibeserve.spec import Host

SLURM = ("salloc", "srun", "squeue", "scancel")
CLUSTER_TIMEOUT_S = 20.0


def needs(declared: Host) -> Iterator[Finding]:
    """One finding for each; the last one may be missing because an earlier one is."""
    looks = _NEEDS.get(declared.kind)
    if looks is not None:
        yield from looks(declared)


def _slurm(declared: Host) -> Iterator[Finding]:
    missing = [name for name in SLURM if shutil.which(name) is None]
    if missing:
        detail, advice = f"missing: {', '.join(missing)}", "start this on a login node, or apt-get install slurm-client"
        yield Finding(name="slurm", state=State.MISSING, detail=detail, next=advice)
        return
    try:
        told = subprocess.run(
            ["sinfo", "--noheader", "--format=%P %a %D nodes, %t"], capture_output=True, text=True, check=False,
            timeout=CLUSTER_TIMEOUT_S,
        )  # fmt: skip
        said, is_up = (told.stdout or told.stderr).strip(), told.returncode == 0
    except (OSError, subprocess.TimeoutExpired) as error:
        said, is_up = str(error), False
    detail = "; ".join(said.splitlines()) or "no partition"
    state = State.OK if is_up and said else State.MISSING
    advice = "" if state is State.OK else "the cluster's controller does not answer here: look at SLURM_CONF and sinfo"
    yield Finding(name="slurm", state=state, detail=detail, next=advice)


def _docker(declared: Host) -> Iterator[Finding]:
    if find_spec("docker") is None:
        advice = "pip install 'vibeserve[docker]'"
        yield Finding(name="sdk", state=State.MISSING, detail="the docker SDK is not installed", next=advice)
    else:
        yield Finding(name="sdk", state=State.OK, detail="the docker SDK")
        yield from _daemon(declared)
    if not declared.image:
        advice = "host.image=NAME, with an interpreter that has what runtimes import"
        yield Finding(name="image", state=State.MISSING, detail="none is named", next=advice)


def _daemon(declared: Host) -> Iterator[Finding]:
    from vibeserve.hosts.container import explained
    from vibeserve.hosts.container_exec import open_api

    try:
        with explained(url=declared.address, image=declared.image):
            version = open_api(declared.address).version()
        yield Finding(name="daemon", state=State.OK, detail=f"docker {version['Version']}")
    except InfraError as error:
        told = str(error).splitlines()
        yield Finding(name="daemon", state=State.MISSING, detail=told[0], next=told[-1].removeprefix("next: "))
        return
    if declared.image:
        try:
            with explained(url=declared.address, image=declared.image):
                open_api(declared.address).inspect_image(declared.image)
            yield Finding(name="image", state=State.OK, detail=declared.image)
        except InfraError as error:
            told = str(error).splitlines()
            yield Finding(name="image", state=State.MISSING, detail=told[0], next=told[-1].removeprefix("next: "))


_NEEDS: Mapping[str, Callable[[Host], Iterator[Finding]]] = {"slurm": _slurm, "docker": _docker}
