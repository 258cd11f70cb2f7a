"""How to start any server. A candidate's launch comes from its workspace, a baseline's from its peer."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from vibeserve.core.engines import ENGINES
from vibeserve.service.manifest import read_service

MODEL_PARTS = ("f32", "bf16", "original", "weights.json")
"""what of a model_dir a server may read"""


@dataclass(frozen=True, kw_only=True)
class Launch:
    """Everything about a server but the machine: what `start_server` needs beside host, tier, CPUs and threads."""

    name: str
    argv: tuple[str, ...]
    """template with {python} {model_dir} {host} {port} {threads}"""
    workdir: Path
    """current folder, readable"""
    model_dir: Path | None = None
    """its f32/, bf16/, original/ and weights.json are readable"""
    read_only: tuple[Path, ...] = ()
    writable: tuple[Path, ...] = ()
    hidden_modules: tuple[str, ...] = ("vibeserve",)
    env: Mapping[str, str] = field(default_factory=dict)
    python: Path = field(default_factory=lambda: Path(sys.executable))
    """interpreter of {python}; its environment is what the server may import"""
    ready_path: str = "/health"
    ready_timeout_s: float = 300.0
    local_sockets: bool = False
    """engines of several processes: unix sockets and loopback connects stay open in tier B"""


def hidden_from_candidates(allow_engines: Sequence[str]) -> tuple[str, ...]:
    """Modules that a candidate's wall hides: every engine not allowed, and this framework."""
    return (*(engine for engine in ENGINES if engine not in allow_engines), "vibeserve")


def candidate_launch(
    workspace: Path, *, model_dir: Path, allow_engines: Sequence[str] = (), name: str = "candidate"
) -> Launch:
    """Launch of the runtime in `workspace`. Raises RefusedError when its service.yaml is refused."""
    service = read_service(workspace, allow_engines=tuple(allow_engines))
    return Launch(
        name=name,
        argv=service.argv,
        workdir=workspace,
        model_dir=model_dir,
        hidden_modules=hidden_from_candidates(allow_engines),
        env=dict(service.env),
        ready_path=service.ready.path,
        ready_timeout_s=service.ready.timeout_s,
    )


def thread_environment(threads: int) -> dict[str, str]:
    """Environment that every server gets: thread counts, no network, stable hashing, nothing written beside code."""
    counts = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMEXPR_NUM_THREADS", "RAYON_NUM_THREADS")
    return {
        **{name: str(threads) for name in counts},
        "HF_HUB_OFFLINE": "1",
        "TRANSFORMERS_OFFLINE": "1",
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONHASHSEED": "0",
        "PYTHONNOUSERSITE": "1",
        "PYTHONUNBUFFERED": "1",
    }


def fill(argv: Sequence[str], values: Mapping[str, str]) -> list[str]:
    """Replace `{name}` for the given names; other braces stay (a baseline's JSON flags)."""
    filled = list(argv)
    for name, value in values.items():
        filled = [word.replace(f"{{{name}}}", value) for word in filled]
    return filled


def command_line(launch: Launch, *, address: str, port: int, threads: int) -> list[str]:
    """The launch's argv with every placeholder filled."""
    values = {
        "python": str(launch.python),
        "model_dir": str(launch.model_dir or ""),
        "host": address,
        "port": str(port),
        "threads": str(threads),
    }
    return fill(launch.argv, values)


def model_paths(model_dir: Path | None) -> tuple[Path, ...]:
    """The readable parts of a model_dir that are there."""
    if model_dir is None:
        return ()
    return tuple(model_dir / part for part in MODEL_PARTS if (model_dir / part).exists())
