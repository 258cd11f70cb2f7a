"""Compose a spec with Hydra's compose API. Every fault comes out as one SpecError."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from vibeserve.config.explain import explained
from vibeserve.config.overrides import check_overrides, split_target
from vibeserve.config.semantics import semantic_problems
from vibeserve.config.targets import TargetFile, find_target, group_options, list_targets
from vibeserve.config.yaml_check import file_problems
from vibeserve.core.paths import data_dir
from vibeserve.errors import SpecError
from vibeserve.spec import Spec

if TYPE_CHECKING:
    from omegaconf import DictConfig

REQUIRED_GROUPS = ("model", "hardware", "workload")


def compose_spec(overrides: Sequence[str], *, cwd: Path | None = None) -> Spec:
    """The spec that `vibeserve <overrides>` means when it is started in `cwd`.

    `overrides` are Hydra's: `+target=NAME` exactly once, then `group=option` and `a.b=value`.
    Raises SpecError (exit 2).
    """
    here = (cwd or Path.cwd()).resolve()
    name, others = split_target(overrides)
    if name is None:
        raise no_target_error(here)
    return compose_file(find_target(name, cwd=here), overrides=others, cwd=here)


def compose_file(target: TargetFile, *, overrides: Sequence[str], cwd: Path | None = None) -> Spec:
    """Like `compose_spec`, for a target file that lies anywhere; `overrides` without `+target`."""
    here = (cwd or Path.cwd()).resolve()
    problems = file_problems(target.path, cwd=here)
    if problems:
        raise SpecError(f"target '{target.name}' is not valid", problems=problems, hint=f"edit {target.path}")
    check_overrides(overrides, options=group_options(here))
    config = _hydra_compose([f"+target='{target.name}'", *overrides], cwd=here, first=target.root)
    return spec_from_config(config, cwd=here)


def no_target_error(cwd: Path) -> SpecError:
    """What to say when no target was named."""
    names = [target.name for target in list_targets(cwd)]
    example = names[0] if names else "NAME"
    return SpecError(
        "no target given",
        problems=[f"valid targets: {', '.join(names) or '(none: add targets/NAME.yaml)'}"],
        hint=f"vibeserve +target={example} (or `vibeserve --help`)",
    )


def _hydra_compose(overrides: list[str], *, cwd: Path, first: Path) -> DictConfig:
    from hydra import compose, initialize_config_dir

    from vibeserve.config.plugins import register, searching_from

    register()
    with searching_from(cwd, first=first), explained():
        with initialize_config_dir(version_base="1.3", config_dir=str(data_dir("conf").resolve())):
            try:
                return compose("config", overrides=overrides)
            except RecursionError:
                problem = f"{overrides[0].removeprefix('+target=')}: its `defaults` lead back to itself"
                raise SpecError("a target inherits itself", problems=[problem], hint="vibeserve check --all") from None


def spec_from_config(config: DictConfig, *, cwd: Path | None = None) -> Spec:
    """Typed spec of a composed configuration, complete and semantically valid, else SpecError."""
    from omegaconf import OmegaConf

    _refuse_missing(config, options=group_options(cwd or Path.cwd()))
    with explained():
        spec = cast(Spec, OmegaConf.to_object(config))
    problems = semantic_problems(spec)
    if problems:
        raise SpecError(
            f"target '{spec.target.name}' cannot be run as declared", problems=problems, hint="vibeserve check"
        )
    return spec


def _refuse_missing(config: DictConfig, *, options: dict[str, list[str]]) -> None:
    from omegaconf import OmegaConf

    with explained():
        missing = sorted(OmegaConf.missing_keys(config))
    if not missing:
        return
    problems = []
    for key in missing:
        group = key.split(".")[0]
        if group in REQUIRED_GROUPS:
            problems.append(f"{key} is not set; select `override /{group}: NAME`, valid: {', '.join(options[group])}")
        else:
            problems.append(f"{key} is not set")
    raise SpecError("the target is incomplete", problems=problems, hint="add it to the target's defaults or body")


def resolved_document(spec: Spec) -> dict[str, Any]:
    """The composed spec as JSON data, as `docs/schemas/spec.schema.json` describes it."""
    from vibeserve.core.documents import to_data

    return cast(dict[str, Any], to_data(spec))
