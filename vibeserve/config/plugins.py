"""Hydra plug-ins: targets as a config source, and the search path. Imported only when something is composed."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from contextvars import ContextVar
from functools import cache
from pathlib import Path

from hydra.core.config_search_path import ConfigSearchPath
from hydra.core.config_store import ConfigStore
from hydra.core.object_type import ObjectType
from hydra.core.plugins import Plugins
from hydra.plugins.config_source import ConfigLoadError, ConfigResult, ConfigSource
from hydra.plugins.search_path_plugin import SearchPathPlugin
from omegaconf import OmegaConf

from vibeserve.config.chain import read_chain
from vibeserve.config.faults import fault_lines
from vibeserve.config.targets import TargetFile, conf_roots, entries, target_roots
from vibeserve.errors import SpecError
from vibeserve.spec import Spec

TARGET = "target"

# Hydra instantiates plug-ins itself and passes them nothing
_roots: ContextVar[tuple[Path, list[Path], list[Path]] | None] = ContextVar("roots", default=None)


def _working_folder() -> Path:
    roots = _roots.get()
    return roots[0] if roots else Path.cwd()


class TargetsSource(ConfigSource):
    """Answers for group `target` from one folder of targets: `vstargets://<absolute folder>`."""

    @staticmethod
    def scheme() -> str:
        return "vstargets"

    def load_config(self, config_path: str) -> ConfigResult:
        target = self._target(config_path)
        if target is None:
            raise ConfigLoadError(f"no target {config_path} under {self.path}")
        chain = read_chain(target, cwd=_working_folder())
        if chain.faults:
            raise SpecError(f"target '{target.name}' is not valid", problems=fault_lines(chain.faults))
        # every group is in the primary defaults already
        selected = [{f"override /{group}": option} for group, option in chain.selected.items()]
        config = OmegaConf.merge({"defaults": [*selected, "_self_"]}, chain.config())
        return ConfigResult(
            provider=self.provider, path=self.full_path(), config=config, header={"package": "_global_"}
        )

    def available(self) -> bool:
        return Path(self.path).is_dir()

    def is_group(self, config_path: str) -> bool:
        return config_path in ("", TARGET)

    def is_config(self, config_path: str) -> bool:
        return self._target(config_path) is not None

    def list(self, config_path: str, results_filter: ObjectType | None) -> list[str]:
        if config_path == "" and results_filter in (None, ObjectType.GROUP):
            return [TARGET]
        if config_path == TARGET and results_filter in (None, ObjectType.CONFIG):
            found = entries(Path(self.path), origin=TARGET)
            return [entry.name for entry in found if not entry.fault and not entry.is_part]
        return []

    def _target(self, config_path: str) -> TargetFile | None:
        group, _, name = config_path.partition("/")
        found = {entry.name: entry for entry in entries(Path(self.path), origin=TARGET)} if group == TARGET else {}
        return found.get(name.removesuffix(".yaml")) or found.get(name)


class VibeServeSearchPath(SearchPathPlugin):
    """Targets of the user's repository before the package's; groups of the package before the user's."""

    def manipulate_search_path(self, search_path: ConfigSearchPath) -> None:
        _, targets, confs = _roots.get() or (Path.cwd(), *_roots_of(Path.cwd()))
        for root in reversed(targets):
            search_path.prepend("vibeserve-targets", f"vstargets://{root}")
        for root in confs[1:]:
            search_path.append("repository-conf", f"file://{root}")


def _roots_of(cwd: Path) -> tuple[list[Path], list[Path]]:
    return [root for _, root in target_roots(cwd)], conf_roots(cwd)


@contextlib.contextmanager
def searching_from(cwd: Path, *, first: Path | None = None) -> Iterator[None]:
    """Compose as if started in `cwd`; targets of folder `first` hide all others."""
    targets, confs = _roots_of(cwd)
    token = _roots.set((cwd, [first, *targets] if first else targets, confs))
    try:
        yield
    finally:
        _roots.reset(token)


@cache
def register() -> None:
    """Make targets and the schema known to Hydra; calling it again changes nothing."""
    plugins = Plugins.instance()
    for plugin in (TargetsSource, VibeServeSearchPath):
        plugins.register(plugin)
    ConfigStore.instance().store(name="vibeserve_schema", node=Spec)
