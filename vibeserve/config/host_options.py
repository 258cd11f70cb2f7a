"""The hosts that can be selected here: every option of the group `host`."""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from vibeserve.config.targets import conf_roots
from vibeserve.spec import Host


@dataclass(frozen=True, kw_only=True)
class HostOption:
    """One file `conf/host/<name>.yaml`."""

    name: str
    host: Host
    fault: str = ""
    """why the file declares no host; `host` is then meaningless"""


def configured_hosts(cwd: Path | None = None) -> list[HostOption]:
    """Options of `host=` for a command started in `cwd`: the package's first, then the user's own, each by name."""
    found: dict[str, HostOption] = {}
    for root in conf_roots((cwd or Path.cwd()).resolve()):
        for path in sorted((root / "host").glob("*.yaml")):
            option = _read(path)
            # the package's own name no machine before somebody says which
            if option.fault or option.host.kind == "local" or _names_a_machine(option.host):
                found.setdefault(path.stem, option)
    return list(found.values())


def _read(path: Path) -> HostOption:
    import yaml

    try:
        data: Any = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        return HostOption(name=path.stem, host=Host(), fault=f"{path} cannot be read: {str(error).splitlines()[0]}")
    keys = {each.name for each in fields(Host)}
    declared = {} if data is None else data
    if not isinstance(declared, dict) or not set(declared) <= keys:
        return HostOption(name=path.stem, host=Host(), fault=f"{path} is no host; its keys: {', '.join(sorted(keys))}")
    return HostOption(name=path.stem, host=Host(**{key: _typed(key, value) for key, value in declared.items()}))


def _names_a_machine(host: Host) -> bool:
    return bool(host.address or host.image or host.options)


def _typed(key: str, value: Any) -> Any:
    """A value as its field holds it; nothing is composed here, so that a wrong one is told when it is selected."""
    default = getattr(Host(), key)
    if isinstance(default, str):
        return str(value)
    if isinstance(default, float) and isinstance(value, int):
        return float(value)
    return value if isinstance(value, type(default)) else default
