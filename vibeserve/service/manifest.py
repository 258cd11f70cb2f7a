"""`service.yaml`: how a runtime is built and started. Written by a candidate, so read strictly."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from vibeserve.core.engines import ENGINES
from vibeserve.core.nouns import Refusal
from vibeserve.errors import RefusedError

FILE_NAME = "service.yaml"
SERVE_PLACEHOLDERS = ("python", "model_dir", "host", "port", "threads")
BUILD_PLACEHOLDERS = ("python", "threads")
_REQUIRED = ("python", "model_dir", "host", "port")
_PLACEHOLDER = re.compile(r"\{([^{}]*)\}")
_LOADER_VARIABLES = re.compile(r"^(LD_|PYTHON|GLIBC_TUNABLES|PATH$|HOME$|TMPDIR$|VIBESERVE_|OMP_NUM_THREADS$|MKL_NUM_)")
"""set by the framework, or ways to load code from elsewhere"""


@dataclass(frozen=True, kw_only=True)
class Ready:
    path: str = "/health"
    """answers 200 when requests may come"""
    timeout_s: float = 300.0


@dataclass(frozen=True, kw_only=True)
class ServiceFile:
    argv: tuple[str, ...]
    """command line with placeholders {python} {model_dir} {host} {port} {threads}"""
    build: tuple[str, ...] | None = None
    """command line of the build step ({python}, {threads}); it may write to build/ only"""
    build_timeout_s: float = 300.0
    ready: Ready = field(default_factory=Ready)
    env: dict[str, str] = field(default_factory=dict)
    schema_version: int = 1


def read_service(workspace: Path, *, allow_engines: tuple[str, ...] = ()) -> ServiceFile:
    """The validated `service.yaml` of a workspace. Raises RefusedError with every fault as a typed reason."""
    refusals = service_refusals(workspace, allow_engines=allow_engines)
    if refusals:
        lines = "\n".join(f"  {refusal.text}" for refusal in refusals)
        raise RefusedError(f"{FILE_NAME} is refused\n{lines}", reasons=refusals)
    return _parse(workspace)


def service_refusals(workspace: Path, *, allow_engines: tuple[str, ...] = ()) -> list[Refusal]:
    """Why this workspace's `service.yaml` cannot be used; empty when it can."""
    import dacite
    import yaml

    try:
        service = _parse(workspace)
    except FileNotFoundError:
        return [_refusal("missing_file", "it is missing from the workspace")]
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        return [_refusal("bad_yaml", f"it is not YAML: {error}")]
    except (dacite.DaciteError, TypeError) as error:
        known = "argv, build, build_timeout_s, ready.path, ready.timeout_s, env, schema_version"
        return [_refusal("bad_field", f"{error}; known fields: {known}")]
    found = _refuse_argv("argv", service.argv, placeholders=SERVE_PLACEHOLDERS, allow_engines=allow_engines)
    found += _refuse_missing(service)
    if service.build is not None:
        found += _refuse_argv("build", service.build, placeholders=BUILD_PLACEHOLDERS, allow_engines=allow_engines)
    return found + _refuse_values(service)


def _parse(workspace: Path) -> ServiceFile:
    import yaml

    from vibeserve.core.documents import from_data

    data: Any = yaml.safe_load((workspace / FILE_NAME).read_text(encoding="utf-8"))
    if not isinstance(data, dict):
        raise TypeError("the file must hold a mapping")
    # YAML writes 300 where the field is a float
    for holder, key in ((data, "build_timeout_s"), (data.get("ready"), "timeout_s")):
        if isinstance(holder, dict) and type(holder.get(key)) is int:
            holder[key] = float(holder[key])
    return from_data(ServiceFile, data)


def _refusal(reason_class: str, text: str) -> Refusal:
    return Refusal(gate="service", reason_class=reason_class, text=f"{FILE_NAME}: {text}", file=FILE_NAME)


def _refuse_argv(
    name: str, argv: tuple[str, ...], *, placeholders: tuple[str, ...], allow_engines: tuple[str, ...]
) -> list[Refusal]:
    if not argv:
        return [_refusal("bad_argv", f"{name} is empty")]
    found = []
    if argv[0] != "{python}":
        found.append(_refusal("bad_argv", f"{name}[0] is '{argv[0]}'; a runtime starts with '{{python}}'"))
    for word in argv:
        for placeholder in _PLACEHOLDER.findall(word):
            if placeholder not in placeholders:
                valid = " ".join(f"{{{item}}}" for item in placeholders)
                found.append(_refusal("unknown_placeholder", f"{name} uses '{{{placeholder}}}'; valid: {valid}"))
        if _leaves_workspace(word):
            found.append(_refusal("outside_path", f"{name} names '{word}', a path outside the workspace"))
    # the module of `-m engine` or the script's name; arguments of flags may be any word
    forbidden = [engine for engine in ENGINES if engine not in allow_engines]
    for word in argv[1:]:
        first = re.split(r"[.:/ ]", word)[0].replace("-", "_")
        if first in forbidden or first == "vibeserve":
            found.append(_refusal("engine", f"{name} names the engine '{word}', which allow_engines does not list"))
    return found


def _leaves_workspace(word: str) -> bool:
    value = word.split("=", 1)[-1]
    return value.startswith(("/", "~")) or ".." in Path(value).parts


def _refuse_missing(service: ServiceFile) -> list[Refusal]:
    used = {name for word in service.argv for name in _PLACEHOLDER.findall(word)}
    return [
        _refusal("missing_placeholder", f"argv does not use '{{{name}}}', so the server would not serve what is asked")
        for name in _REQUIRED
        if name not in used
    ]


def _refuse_values(service: ServiceFile) -> list[Refusal]:
    found = []
    if service.schema_version != 1:
        found.append(_refusal("bad_field", f"schema_version is {service.schema_version}; this version reads 1"))
    if not service.ready.path.startswith("/"):
        found.append(_refusal("bad_field", f"ready.path is '{service.ready.path}'; it must start with '/'"))
    for name, value in (("build_timeout_s", service.build_timeout_s), ("ready.timeout_s", service.ready.timeout_s)):
        if not 0 < value <= 3600:
            found.append(_refusal("bad_field", f"{name} is {value}; it must lie in (0, 3600]"))
    for name in service.env:
        if _LOADER_VARIABLES.match(name):
            found.append(_refusal("bad_env", f"env sets {name}, which is the framework's"))
    return found
