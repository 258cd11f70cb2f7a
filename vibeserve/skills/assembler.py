"""Assemble a workspace: a pure function of scaffold, components, parameters and the installed package versions."""

from __future__ import annotations

import ast
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from vibeserve.core.documents import digest_file, write_document
from vibeserve.errors import SpecError
from vibeserve.skills.card import SEAMS, Parameter, Value
from vibeserve.skills.generate import parameters_module, readme
from vibeserve.skills.loader import IGNORED_NAMES, Scaffold, Skill, load_scaffold
from vibeserve.skills.resolve import card_of, declared_parameters, file_owners, ordered, parameter_values

ASSEMBLY_PATH = "runtime/assembly.json"
SCAFFOLD_ORIGIN = "scaffold"
SCAFFOLD_WEIGHT_BITS = 32
"""the scaffold computes from f32 copies of the bf16 weights"""
NO_BUILD, NATIVE_BUILD = "build: null\n", 'build: ["{python}", "-m", "runtime.build"]\n'
"""the line of `service.yaml` without and with native sources"""
KEPT_NAMES = (".git",)
"""of a destination that is assembled again"""


@dataclass(frozen=True, kw_only=True)
class ComponentRecord:
    name: str
    digest: str
    """over every file of its skill"""


@dataclass(frozen=True, kw_only=True)
class FileRecord:
    """One file of the workspace. Generated files count as the scaffold's."""

    path: str
    origin: str
    """scaffold or component:<skill>"""
    digest: str
    num_lines: int


@dataclass(frozen=True, kw_only=True)
class Assembly:
    """Document `runtime/assembly.json`: what the workspace was made of, and which lines came from where."""

    schema_version: int = 1
    scaffold_digest: str
    components: tuple[ComponentRecord, ...]
    parameters: dict[str, Value]
    seams: dict[str, str]
    """seam -> origin of its module"""
    weight_bits: int
    """bits per weight that decode reads"""
    files: tuple[FileRecord, ...]


def assemble(
    scaffold: Path, components: Sequence[Skill], parameters: Mapping[str, Value], destination: Path
) -> Assembly:
    """Write the workspace made of `scaffold` and `components` to `destination`.

    `components` holds everything that they extend (see `resolve`); their order does not matter. Parameters that are not
    given take their declared default. The same inputs give the same bytes. A destination that is an earlier assembly or
    holds nothing but `.git` is replaced; any other that is not empty is refused. Raises SpecError.
    """
    base = load_scaffold(scaffold)
    chosen = ordered(components)
    _refuse_foreign_seams(base, chosen)
    declared = declared_parameters(base, chosen)
    values = parameter_values(declared, parameters)
    _clear(destination)
    origins = _copy_files(base, chosen, destination)
    _write_generated(base, chosen, declared, values, destination)
    assembly = Assembly(
        scaffold_digest=base.digest,
        components=tuple(ComponentRecord(name=skill.name, digest=skill.digest) for skill in chosen),
        parameters=values,
        seams={seam: origins.get(f"runtime/{seam}.py", SCAFFOLD_ORIGIN) for seam in SEAMS if _has_seam(base, seam)},
        weight_bits=min((card_of(s).weight_bits or SCAFFOLD_WEIGHT_BITS for s in chosen), default=SCAFFOLD_WEIGHT_BITS),
        files=_file_records(destination, origins),
    )
    write_document(destination / ASSEMBLY_PATH, assembly)
    return assembly


def _has_seam(base: Scaffold, seam: str) -> bool:
    return (base.path / f"runtime/{seam}.py").is_file()


def _refuse_foreign_seams(base: Scaffold, components: Sequence[Skill]) -> None:
    """A component replaces modules; where the scaffold has none of that name, nothing would use it."""
    problems = [
        f"'{skill.name}' fills seam '{seam}', which this scaffold has not"
        for skill in components
        for seam in card_of(skill).seams
        if not _has_seam(base, seam)
    ]
    if problems:
        raise SpecError("the components do not fit the scaffold", problems=problems)


def _clear(destination: Path) -> None:
    present = [path for path in destination.iterdir() if path.name not in KEPT_NAMES] if destination.is_dir() else []
    if present and not (destination / ASSEMBLY_PATH).is_file():
        raise SpecError(f"{destination} is not empty and no earlier assembly; choose another folder")
    for path in present:
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()


def _copy_files(base: Scaffold, components: Sequence[Skill], destination: Path) -> dict[str, str]:
    """Copy scaffold and component files; returns the origin by path of what came from components."""
    for path in sorted(base.path.rglob("*")):
        relative = path.relative_to(base.path)
        is_ignored = path.name == "scaffold.yaml" or any(part in IGNORED_NAMES for part in relative.parts)
        if path.is_file() and not is_ignored:
            _copy_file(path, destination / relative)
    origins: dict[str, str] = {}
    owners = file_owners(components)
    for skill in components:
        for source, target in card_of(skill).files.items():
            if owners[target] is skill:
                _copy_file(skill.path / source, destination / target)
                origins[target] = f"component:{skill.name}"
    return origins


def _copy_file(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(source, target)
    target.chmod(0o644)


def _write_generated(
    base: Scaffold,
    components: Sequence[Skill],
    declared: Mapping[str, Parameter],
    values: Mapping[str, Value],
    destination: Path,
) -> None:
    (destination / "runtime/parameters.py").write_text(parameters_module(declared, values), encoding="utf-8")
    text = (destination / "README.md").read_text(encoding="utf-8")
    (destination / "README.md").write_text(readme(text, components, declared, values), encoding="utf-8")
    if any(card_of(skill).native for skill in components):
        service = destination / "service.yaml"
        text = service.read_text(encoding="utf-8")
        service.write_text(text.replace(NO_BUILD, NATIVE_BUILD), encoding="utf-8")
    lock = requirements_lock(destination / "runtime", extra=base.requires)
    (destination / "requirements.lock").write_text(lock, encoding="utf-8")


def requirements_lock(package: Path, *, extra: Sequence[str]) -> str:
    """Pins of what the package imports, and of `extra`, in the versions that are installed here.

    Every allowed distribution has its module's name. Local version labels such as `+cpu` are dropped: they name a build
    of the same release. Raises SpecError for an import that is not installed.
    """
    names = set(extra)
    for path in sorted(package.rglob("*.py")):
        names |= third_party_imports(path.read_text(encoding="utf-8"))
    pins = []
    for name in sorted(names):
        try:
            pins.append(f"{name}=={metadata.version(name).partition('+')[0]}")
        except metadata.PackageNotFoundError as error:
            raise SpecError(f"the runtime imports '{name}', which is not an installed distribution") from error
    return "\n".join(pins) + "\n"


def third_party_imports(source: str) -> set[str]:
    """Top-level names of the absolute imports of a module that are not in the standard library."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module is not None:
            names.add(node.module.partition(".")[0])
    return names - set(sys.stdlib_module_names)


def _file_records(destination: Path, origins: Mapping[str, str]) -> tuple[FileRecord, ...]:
    records = []
    for path in sorted(destination.rglob("*")):
        relative = path.relative_to(destination)
        if path.is_file() and relative.parts[0] not in KEPT_NAMES:
            name = relative.as_posix()
            num_lines = len(path.read_text(encoding="utf-8").splitlines())
            origin = origins.get(name, SCAFFOLD_ORIGIN)
            records.append(FileRecord(path=name, origin=origin, digest=digest_file(path), num_lines=num_lines))
    return tuple(records)
