"""Compose a spec with Hydra's compose API. Every fault comes out as one SpecError that lists them all.

In three passes, each over everything: files and overrides as they are written; values as they merge; rules across keys.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from vibeserve.config.chain import Chain, read_chain
from vibeserve.config.explain import explained, one_line
from vibeserve.config.faults import COMMAND_LINE, Fault, Source, fault_lines
from vibeserve.config.files import missing_files, resolve_files
from vibeserve.config.groups import GroupFiles, read_groups, usual_options
from vibeserve.config.open_keys import MAPPINGS, opened
from vibeserve.config.origins import NOT_SET, Origins
from vibeserve.config.overrides import HINT, entry_faults, read_overrides, split_target
from vibeserve.config.semantics import semantic_problems
from vibeserve.config.targets import TargetFile, find_target, group_options, list_targets, target_names
from vibeserve.core.paths import data_dir
from vibeserve.errors import SpecError
from vibeserve.spec import Spec

if TYPE_CHECKING:
    from omegaconf import DictConfig

DEFAULT_TARGET = "smollm2_cpu"
"""what an example names where the repository has no target of its own"""
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
    origins = _stated(target, overrides=overrides, here=here)
    config = _hydra_compose([f"+target='{target.name}'", *overrides], cwd=here, first=target.root, origins=origins)
    return spec_from_config(config, origins=origins)


KEYED = re.compile(r"[a-z_]+[.\[][^:\s]*: ")
"""start of a problem that is about a key of the spec"""


def placed_problems(
    target: TargetFile, problems: Sequence[str], *, overrides: Sequence[str] = (), cwd: Path | None = None
) -> list[str]:
    """`problems` of a spec that composed, each behind the place that stated its key where a file or the command line
    does: what only a machine or the target's own files can tell has its place as well."""
    origins = _stated(target, overrides=overrides, here=(cwd or Path.cwd()).resolve())
    faults = [origins.fault(line) if KEYED.match(line) else None for line in problems]
    is_known = [fault is not None and fault.place.source is not Source.default for fault in faults]
    return [str(fault) if known else line for line, fault, known in zip(problems, faults, is_known, strict=True)]


@contextmanager
def placing(overrides: Sequence[str], *, cwd: Path | None = None) -> Iterator[None]:
    """Around what plans the spec of `overrides`: the problems of its SpecError get their places."""
    try:
        yield
    except SpecError as error:
        name, others = split_target(overrides)
        if type(error) is not SpecError or name is None or not any(map(KEYED.match, error.problems)):
            raise
        try:
            told = placed_problems(find_target(name, cwd=cwd), error.problems, overrides=others, cwd=cwd)
        except SpecError:
            # the files were changed meanwhile: what was found in them stands
            raise error from None
        raise SpecError(str(error).splitlines()[0], problems=told, hint=error.hint) from error


def _stated(target: TargetFile, *, overrides: Sequence[str], here: Path) -> Origins:
    """Who states what, of a target whose files and overrides are valid as they are written; else SpecError."""
    options = group_options(here)
    chain = read_chain(target, cwd=here)
    given = read_overrides(overrides, options=options)
    selected = {**usual_options(data_dir("conf")), **chain.selected, **given.groups}
    groups = read_groups(selected, cwd=here)
    faults = [*chain.faults, *given.faults, *groups.faults]
    if not faults:
        faults = list(_unselected(chain, selected, options))
    if faults:
        raise _not_valid(target, faults)
    origins = _origins(chain, groups)
    unknown_entries = list(entry_faults(given, {mapping: origins.entries(mapping) for mapping in MAPPINGS}))
    if unknown_entries:
        raise _not_valid(target, unknown_entries)
    for key, value in given.values:
        origins.command_line(key, value)
    return origins


def no_target_error(cwd: Path) -> SpecError:
    """What to say when no target was named."""
    names = target_names(cwd)
    own = [target.name for target in list_targets(cwd) if target.origin == "repository" and not target.fault]
    example = next((name for name in (*own, DEFAULT_TARGET, *names) if name in names), "NAME")
    return SpecError(
        "no target given",
        problems=[f"valid targets: {', '.join(names) or '(none: add targets/NAME.yaml)'}"],
        hint=f"vibeserve +target={example} (or `vibeserve --help`)",
    )


def _not_valid(target: TargetFile, faults: list[Fault]) -> SpecError:
    is_line = all(fault.place.source is Source.command_line for fault in faults)
    if is_line:
        return SpecError("overrides are not valid", problems=fault_lines(faults), hint=HINT)
    files = [fault.place.file for fault in sorted(faults) if fault.place.file]
    is_elsewhere = bool(files) and not any(target.path.as_posix().endswith(file) for file in files)
    edited = files[0] if is_elsewhere else target.path
    return SpecError(f"target '{target.name}' is not valid", problems=fault_lines(faults), hint=f"edit {edited}")


def _unselected(chain: Chain, selected: dict[str, Any], options: dict[str, list[str]]) -> Iterator[Fault]:
    """Groups without which there is no target."""
    own = chain.links[0].file
    stated = {key for link in chain.links for key in (link.file.data if isinstance(link.file.data, dict) else {})}
    for group in REQUIRED_GROUPS:
        # a body may say what an option would
        if selected.get(group) is None and group not in stated:
            text = f"no {group} is selected; add - override /{group}: NAME under defaults, valid: "
            yield own.fault(text + ", ".join(options[group]))


def _origins(chain: Chain, groups: GroupFiles) -> Origins:
    origins = Origins()
    for group, file in groups.files:
        origins.file(file, prefix=group)
    *inherited, own = reversed(chain.links)
    for link in inherited:
        origins.file(link.file, leave_out=("defaults", "target"))
    origins.file(own.file)
    return origins


def _hydra_compose(overrides: list[str], *, cwd: Path, first: Path, origins: Origins) -> DictConfig:
    from hydra import compose, initialize_config_dir

    from vibeserve.config.plugins import register, searching_from

    register()
    with searching_from(cwd, first=first), explained(lambda problem: str(origins.fault(problem))):
        with initialize_config_dir(version_base="1.3", config_dir=str(data_dir("conf").resolve())):
            return compose("config", overrides=opened(overrides))


def spec_from_config(config: DictConfig, *, origins: Origins | None = None) -> Spec:
    """Typed spec of a composed configuration, complete and semantically valid, else SpecError."""
    from omegaconf import OmegaConf

    name = str(config.target.name)
    problems = list(_value_problems(config))
    if problems:
        told = _located(problems, origins)
        raise SpecError(f"target '{name}' does not compose", problems=told, hint=_again(name, told))
    with explained():
        spec = cast(Spec, OmegaConf.to_object(config))
    resolve_files(spec)
    problems = [*semantic_problems(spec), *missing_files(spec)]
    if problems:
        told = _located(problems, origins)
        raise SpecError(f"target '{name}' cannot be run as declared", problems=told, hint=_again(name, told))
    return spec


def _again(name: str, told: Sequence[str]) -> str:
    """The command that says whether it is right now."""
    if any(str(COMMAND_LINE) in line for line in told):
        return f"correct it, then vibeserve plan {name} with the same overrides"
    return f"correct it, then vibeserve check {name}"


def _located(problems: Sequence[str], origins: Origins | None) -> list[str]:
    if origins is None:
        return list(dict.fromkeys(problems))
    return fault_lines(origins.fault(problem) for problem in problems)


def _value_problems(node: Any, key: str = "") -> Iterator[str]:
    """Values that are missing, and interpolations that lead nowhere or to a value of another type."""
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException

    names = range(len(node)) if OmegaConf.is_list(node) else [name for name in node if key or name != "hydra"]
    for name in names:
        where = f"{key}[{name}]" if OmegaConf.is_list(node) else f"{key}.{name}" if key else str(name)
        if OmegaConf.is_missing(node, name):
            yield f"{where}: {NOT_SET}; state it there or in the target"
            continue
        try:
            value = node[name]
        except OmegaConfBaseException as error:
            yield f"{where}: {_unresolved(node, name, one_line(error).removeprefix(f'{where}: '))}"
            continue
        if OmegaConf.is_config(value) and not OmegaConf.is_interpolation(node, name):
            yield from _value_problems(value, where)


def _unresolved(node: Any, name: Any, told: str) -> str:
    from omegaconf import OmegaConf

    written: Any = OmegaConf.to_container(node, resolve=False)
    other = re.search(r": Value '(.*)' of type '\w+' could not be converted to (\w+)$", told)
    if told.startswith("Recursive interpolation"):
        return f"'{written[name]}' leads back to itself"
    if told.startswith("Interpolation key"):
        return f"'{written[name]}' names no key"
    return f"'{written[name]}' is '{other[1]}', which is no {other[2].lower()}" if other else told
