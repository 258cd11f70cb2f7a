"""Hydra plug-ins: targets as a config source, and the search path. Imported only when something is composed."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from contextvars import ContextVar
from functools import cache
from pathlib import Path
from typing import Any

from hydra.core.config_search_path import ConfigSearchPath
from hydra.core.config_store import ConfigStore
from hydra.core.object_type import ObjectType
from hydra.core.plugins import Plugins
from hydra.plugins.config_source import ConfigLoadError, ConfigResult, ConfigSource
from hydra.plugins.search_path_plugin import SearchPathPlugin
from omegaconf import OmegaConf

from vibeserve.config.targets import GROUPS, conf_roots, locate, names_in, target_roots
from vibeserve.spec import Spec

TARGET = "target"

# Hydra instantiates search path plug-ins itself and passes them nothing
_roots: ContextVar[tuple[list[Path], list[Path]] | None] = ContextVar("roots", default=None)


class TargetsSource(ConfigSource):
    """Answers for group `target` from one folder of targets: `vstargets://<absolute folder>`."""

    @staticmethod
    def scheme() -> str:
        return "vstargets"

    def load_config(self, config_path: str) -> ConfigResult:
        path = self._locate(config_path)
        if path is None:
            raise ConfigLoadError(f"no target {config_path} under {self.path}")
        text = path.read_text(encoding="utf-8")
        header = self._get_header_dict(text)
        # Hydra stops looking for `# @package` at the first other comment, and a target is global anyway
        if header.get("package") is None:
            header["package"] = "_global_"
        config = OmegaConf.create(text) if text.strip() else OmegaConf.create()
        body: dict[str, Any] = {TARGET: {"name": _name_of(path), "dir": str(path.parent)}}
        if "defaults" in config:
            entries: Any = OmegaConf.to_container(config.defaults)
            body["defaults"] = [_as_override(entry) for entry in entries]
        config = OmegaConf.merge(config, body)
        return ConfigResult(provider=self.provider, path=self.full_path(), config=config, header=header)

    def available(self) -> bool:
        return Path(self.path).is_dir()

    def is_group(self, config_path: str) -> bool:
        return config_path in ("", TARGET)

    def is_config(self, config_path: str) -> bool:
        return self._locate(config_path) is not None

    def list(self, config_path: str, results_filter: ObjectType | None) -> list[str]:
        if config_path == "" and results_filter in (None, ObjectType.GROUP):
            return [TARGET]
        if config_path == TARGET and results_filter in (None, ObjectType.CONFIG):
            return names_in(Path(self.path))
        return []

    def _locate(self, config_path: str) -> Path | None:
        group, _, name = config_path.partition("/")
        return locate(Path(self.path), name) if group == TARGET else None


def _name_of(path: Path) -> str:
    return path.parent.name if path.name == "target.yaml" else path.stem


def _as_override(entry: object) -> object:
    """`/model: x` means `override /model: x`: every group is in the primary defaults already."""
    if not isinstance(entry, dict):
        return entry
    return {f"override {key}" if str(key).lstrip("/") in GROUPS else key: value for key, value in entry.items()}


class VibeServeSearchPath(SearchPathPlugin):
    """Targets of the user's repository before the package's; groups of the package before the user's."""

    def manipulate_search_path(self, search_path: ConfigSearchPath) -> None:
        targets, confs = _roots.get() or _roots_of(Path.cwd())
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
    token = _roots.set(([first, *targets] if first else targets, confs))
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
