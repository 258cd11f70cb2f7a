"""Sweeps: Hydra's own main with its sweepers and launchers. A single run never comes here."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from vibeserve.config.compose import compose_spec, no_target_error
from vibeserve.config.explain import explained
from vibeserve.core.paths import data_dir, state_dir
from vibeserve.errors import SpecError

if TYPE_CHECKING:
    from omegaconf import DictConfig

SWEEP_FLAGS = ("-m", "--multirun", "hydra.mode=MULTIRUN")
INFO_FLAGS = ("--cfg", "-c", "--info", "-i", "--hydra-help", "-sc", "--shell-completion")


def is_for_hydra(arguments: Sequence[str]) -> bool:
    """A sweep, or one of Hydra's own questions about the configuration."""
    return any(argument in SWEEP_FLAGS + INFO_FLAGS for argument in arguments)


def sweep_folder(project: Path) -> Path:
    """A fresh folder for the jobs' statuses."""
    return state_dir(project) / "sweeps" / datetime.now().strftime("%Y%m%d-%H%M%S-%f")


def job_folder() -> Path:
    """The folder of the sweep's job that is running in this process."""
    from hydra.core.hydra_config import HydraConfig

    return Path(HydraConfig.get().runtime.output_dir)


def refuse_wrong_jobs(arguments: Sequence[str]) -> None:
    """SpecError with every fault of every job, before the first one starts.

    Only of plain sweeps: what `glob` finds and what another sweeper proposes is known to Hydra alone.
    """
    overrides = [argument for argument in arguments if not argument.startswith("-")]
    is_sweep = any(argument in SWEEP_FLAGS for argument in arguments)
    if not is_sweep or any("glob(" in override or override.startswith("hydra/sweeper") for override in overrides):
        return
    if not any(override.lstrip("+").startswith("target=") for override in overrides):
        raise no_target_error(Path.cwd())
    problems: dict[str, None] = {}
    for job in _jobs(overrides):
        try:
            compose_spec([override for override in job if not override.startswith("hydra")])
        except SpecError as error:
            told = "; ".join([str(error).splitlines()[0], *error.problems])
            problems[f"{' '.join(job)}: {told}"] = None
    if problems:
        raise SpecError("the sweep holds jobs that cannot run; none was started", problems=list(problems))


def _jobs(overrides: Sequence[str]) -> list[Sequence[str]]:
    from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
    from hydra.core.override_parser.overrides_parser import OverridesParser

    with explained():
        parsed = OverridesParser.create().parse_overrides(overrides=list(overrides))
        return [job for batch in BasicSweeper.split_arguments(parsed, max_batch_size=None) for job in batch]


def run_hydra(arguments: Sequence[str], *, folder: Path, job: Callable[[DictConfig], None]) -> int:
    """Exit code of Hydra's main over `arguments`. `job` must be importable: launchers pickle it."""
    import hydra

    from vibeserve.config.plugins import register

    register()
    given = [*arguments]
    if any(argument in SWEEP_FLAGS for argument in arguments):
        # Hydra's parser wants its positional arguments in one block
        given = sorted([*arguments, f"hydra.sweep.dir={folder}"], key=lambda argument: not argument.startswith("-"))
    decorated = hydra.main(version_base="1.3", config_path=str(data_dir("conf").resolve()), config_name="config")(job)
    before = sys.argv
    sys.argv = ["vibeserve", *given]  # Hydra reads nothing else
    try:
        decorated()
    except SystemExit as ended:
        return ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    finally:
        sys.argv = before
    return 0
