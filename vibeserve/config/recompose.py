"""Another spec from one that was composed before: an artifact holds its spec whole, and may outlive the target."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vibeserve.config.explain import explained
from vibeserve.config.faults import fault_lines
from vibeserve.config.open_keys import mapping_of
from vibeserve.config.overrides import HINT, Overrides, read_overrides
from vibeserve.config.targets import group_options
from vibeserve.core.paths import data_dir
from vibeserve.errors import SpecError
from vibeserve.spec import Spec

if TYPE_CHECKING:
    from omegaconf import DictConfig


def recompose(spec: Spec, overrides: Sequence[str], *, cwd: Path | None = None) -> Spec:
    """`spec` with `overrides` (`GROUP=OPTION`, `KEY=VALUE`, `~KEY`) applied, complete and valid, else SpecError.

    An option replaces the whole group; nothing else of `spec` changes. Options are those that a command in `cwd` sees.
    """
    from omegaconf import OmegaConf

    from vibeserve.config.compose import spec_from_config

    here = (cwd or Path.cwd()).resolve()
    given = _read(overrides, here=here)
    with explained():
        config = OmegaConf.structured(spec)
        if given.groups:
            chosen = chosen_options(given.groups, here=here)
            for group in given.groups:
                OmegaConf.update(config, group, chosen[group], merge=False)
        for key, value in given.values:
            OmegaConf.update(config, key, value, merge=True, force_add=bool(mapping_of(key)))
        for key in given.removed:
            _remove(config, key)
    return spec_from_config(config)


def _read(overrides: Sequence[str], *, here: Path) -> Overrides:
    targets = [override for override in overrides if override.lstrip("+~").startswith("target=")]
    if targets:
        problem = f"{targets[0]}: the artifact says which target it is of"
        raise SpecError("overrides are not valid", problems=[problem], hint="vibeserve +target=NAME builds another")
    given = read_overrides(overrides, options=group_options(here))
    if given.faults:
        raise SpecError("overrides are not valid", problems=fault_lines(given.faults), hint=HINT)
    return given


def chosen_options(groups: dict[str, Any], *, here: Path) -> DictConfig:
    """A configuration of nothing but the options: each group as a target that selects it begins with it."""
    from hydra import compose, initialize_config_dir

    from vibeserve.config.plugins import register, searching_from

    register()
    words = [f"{group}={_word(option)}" for group, option in groups.items()]
    with searching_from(here), initialize_config_dir(version_base="1.3", config_dir=str(data_dir("conf").resolve())):
        return compose("config", overrides=words)


def _word(option: Any) -> str:
    return f"[{','.join(option)}]" if isinstance(option, list) else str(option)


def _remove(config: DictConfig, key: str) -> None:
    from omegaconf import OmegaConf, open_dict

    above, _, name = key.rpartition(".")
    node = OmegaConf.select(config, above)
    if node is None or name not in node:
        raise SpecError("overrides are not valid", problems=[f"~{key}: there is no such entry"], hint=HINT)
    with open_dict(node):
        del node[name]
