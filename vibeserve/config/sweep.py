"""Sweeps: what Hydra makes of `-m`, its sweepers and its launchers. A single run never comes here."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vibeserve.config.compose import compose_spec, no_target_error
from vibeserve.config.explain import explained
from vibeserve.config.faults import COMMAND_LINE
from vibeserve.config.open_keys import opened
from vibeserve.config.overrides import HINT, split_target, syntax_fault
from vibeserve.config.words import unknown
from vibeserve.core.paths import data_dir
from vibeserve.errors import SpecError

if TYPE_CHECKING:
    from hydra._internal.hydra import Hydra
    from omegaconf import DictConfig

    from vibeserve.spec import Spec

SWEEP_FLAGS = ("-m", "--multirun", "hydra.mode=MULTIRUN")
CONFIG_QUESTIONS = ("--cfg", "-c", "--info", "-i")
INFO_FLAGS = (*CONFIG_QUESTIONS, "--hydra-help", "-sc", "--shell-completion")

BASIC = "basic"
EXTRAS = {"joblib": "joblib", "submitit_local": "slurm", "submitit_slurm": "slurm", "ray": "ray", "ray_aws": "ray"}
"""launcher -> the extra of this package that brings it"""
HERE = (BASIC, "joblib", "submitit_local", "ray")
"""launchers whose jobs run on this machine (ray: unless it is given an address)"""


def is_sweep(arguments: Sequence[str]) -> bool:
    return any(argument in SWEEP_FLAGS for argument in arguments)


def is_question(arguments: Sequence[str]) -> bool:
    """One of Hydra's own questions about the configuration."""
    return any(argument in INFO_FLAGS for argument in arguments)


@dataclass(frozen=True, kw_only=True)
class JobFacts:
    """A sweep's job, as Hydra tells it to the process that it runs in."""

    folder: Path
    number: int
    overrides: tuple[str, ...]


def job_facts() -> JobFacts:
    """Of the job that is running in this process."""
    from hydra.core.hydra_config import HydraConfig

    config = HydraConfig.get()
    overrides = tuple(str(override) for override in config.overrides.task)
    return JobFacts(folder=Path(config.runtime.output_dir), number=int(config.job.num), overrides=overrides)


def list_jobs(overrides: Sequence[str]) -> list[tuple[str, ...]] | None:
    """The overrides of every job of a plain sweep, by number; None where only Hydra knows them: what `glob` finds, and
    what another sweeper proposes."""
    if any("glob(" in override or override.lstrip("+").startswith("hydra/sweeper") for override in overrides):
        return None
    from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
    from hydra.core.override_parser.overrides_parser import OverridesParser

    faults = {override: syntax_fault(override) for override in overrides}
    problems = [f"{COMMAND_LINE}: {override}: {fault}" for override, fault in faults.items() if fault]
    if problems:
        raise SpecError("overrides are not valid", problems=problems, hint=HINT)
    with explained():
        parsed = OverridesParser.create().parse_overrides(overrides=opened(overrides))
        jobs = [job for batch in BasicSweeper.split_arguments(parsed, max_batch_size=None) for job in batch]
    return [tuple(override for override in job if not is_for_launch(override)) for job in jobs]


def is_for_launch(override: str) -> bool:
    """It says how jobs are launched, not what they are."""
    return override.lstrip("+").startswith("hydra")


def refuse_wrong_jobs(overrides: Sequence[str]) -> list[tuple[tuple[str, ...], Spec]] | None:
    """Every job with its spec; SpecError with every fault of every job, before the first one starts.

    Only of plain sweeps (`list_jobs`).
    """
    if not any(override.partition("=")[0].lstrip("+") == "target" for override in overrides):
        raise no_target_error(Path.cwd())
    jobs = list_jobs(overrides)
    problems: dict[str, None] = {}
    specs: list[tuple[tuple[str, ...], Spec]] = []
    for job in jobs or []:
        try:
            split_target(job)
            specs.append((job, compose_spec(job)))
        except SpecError as error:
            told = "; ".join([str(error).splitlines()[0], *error.problems])
            problems[f"{' '.join(job)}: {told}"] = None
    if problems:
        raise SpecError("the sweep holds jobs that cannot run; none was started", problems=list(problems))
    return specs if jobs is not None else None


def launcher_of(overrides: Sequence[str]) -> str:
    """Name of the launcher that the overrides select."""
    names = [value for key, _, value in (o.partition("=") for o in overrides) if key.lstrip("+") == "hydra/launcher"]
    return names[-1] if names else BASIC


def runs_here(overrides: Sequence[str]) -> bool:
    """The jobs run on this machine, so that what this machine finds finished is finished for them."""
    is_remote = any(".ray.init.address=" in override for override in overrides)
    return launcher_of(overrides) in HERE and not is_remote


def check_launch(overrides: Sequence[str], *, folder: Path) -> None:
    """SpecError where the launcher is not installed, or Hydra cannot compose what the overrides say about it."""
    from hydra.types import RunMode

    with _hydra() as hydra:
        launcher = launcher_of(overrides)
        known = hydra.config_loader.get_group_options("hydra/launcher")
        if launcher not in known:
            problem = unknown("launcher", launcher, sorted({*known, *EXTRAS}))
            extra = EXTRAS.get(launcher)
            if extra:
                problem = f"hydra/launcher={launcher} is not installed here; installed: {', '.join(sorted(known))}"
            hint = f"pip install 'vibeserve[{extra}]'" if extra else f"valid: {', '.join(sorted({*known, *EXTRAS}))}"
            raise SpecError("the sweep cannot be launched", problems=[problem], hint=hint)
        with explained():
            hydra.compose_config(
                config_name="config", overrides=_with_folder(overrides, folder), run_mode=RunMode.MULTIRUN,
                with_log_configuration=False,
            )  # fmt: skip


def launch_jobs(overrides: Sequence[str], *, folder: Path, job: Callable[[DictConfig], None]) -> None:
    """Run every job of the sweep by its launcher; returns when all have ended. `job` must be importable: launchers
    pickle it. Its jobs' folders are `folder/<number>`."""
    with _hydra() as hydra, explained():
        hydra.multirun(config_name="config", task_function=job, overrides=_with_folder(overrides, folder))


def _with_folder(overrides: Sequence[str], folder: Path) -> list[str]:
    quoted = str(folder).replace("\\", "\\\\").replace("'", "\\'")
    given = [override for override in opened(overrides) if override not in SWEEP_FLAGS]
    return [*given, f"hydra.sweep.dir='{quoted}'"]


@contextmanager
def _hydra() -> Iterator[Hydra]:
    from hydra import initialize_config_dir
    from hydra.core.global_hydra import GlobalHydra

    from vibeserve.config.plugins import register

    register()
    with initialize_config_dir(version_base="1.3", config_dir=str(data_dir("conf").resolve()), job_name="vibeserve"):
        hydra: Any = GlobalHydra.instance().hydra
        yield hydra


def ask_hydra(arguments: Sequence[str]) -> int:
    """Exit code of Hydra's own main, which answers its questions about the configuration.

    SpecError where the question names a target, and it or an override is wrong: Hydra's own answer is a traceback.
    """
    import hydra

    from vibeserve.config.plugins import register

    named = [argument for argument in arguments if "=" in argument and not is_for_launch(argument)]
    is_about_target = any(argument in CONFIG_QUESTIONS for argument in arguments)
    if is_about_target and any(argument.partition("=")[0].lstrip("+") == "target" for argument in named):
        compose_spec([argument for argument in named if not argument.startswith("-")])

    def nothing(config: DictConfig) -> None:
        """A question runs no job."""

    register()
    decorated = hydra.main(version_base="1.3", config_path=str(data_dir("conf").resolve()), config_name="config")(
        nothing
    )
    before = sys.argv
    sys.argv = ["vibeserve", *opened(arguments)]  # Hydra reads nothing else
    try:
        decorated()
    except SystemExit as ended:
        return ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    finally:
        sys.argv = before
    return 0
