"""The scaffold of a target, made of layers: the modality's, perhaps a variant of it, and what the target brings.

    templates/runtime/<modality>/           a whole runtime; `architectures` of its scaffold.yaml says for which models
    templates/runtime/<modality>_<name>/    laid over it for the models that its own scaffold.yaml names
    templates/runtime/<modality>_wrapped/   laid over it for all other models: they run inside an engine
    <target's folder>/scaffold/             laid over both: `runtime/` with seams and modules of their own, `tests/`

A later layer's file replaces the earlier one's. What the layers' scaffold.yaml say is put together; `removes` of a
variant names files and parameters of the base that it does without.
"""

from __future__ import annotations

import ast
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from vibeserve.core.documents import write_text_atomic
from vibeserve.core.engines import ENGINES
from vibeserve.core.paths import data_dir
from vibeserve.errors import SpecError
from vibeserve.skills.card import SEAMS, Parameter, parse_parameters
from vibeserve.skills.loader import IGNORED_NAMES, SCAFFOLD_FILE, read_scaffold_file
from vibeserve.spec import Modality, Model

OVERLAY = "scaffold"
"""name of the folder in a target's folder"""
OVERLAY_PARTS = ("runtime", "tests", SCAFFOLD_FILE)
DEFINES: dict[tuple[Modality, str], tuple[str, ...]] = {
    (Modality.custom, "api"): ("PATH", "EXAMPLE", "parse", "render"),
    (Modality.custom, "model"): ("load",),
}
"""names at the top level of modules that a target brings (`templates/runtime/custom/runtime/interfaces.py`)"""
HINT = "docs/contract.md, the scaffold of a target"


@dataclass(frozen=True, kw_only=True)
class Composition:
    """A scaffold as its layers make it. Nothing is copied yet."""

    layers: tuple[Path, ...]
    """base first"""
    files: Mapping[str, Path]
    """path in the scaffold -> the file that is taken"""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """of its scaffold.yaml"""

    @property
    def seams(self) -> tuple[str, ...]:
        """Modules that may be replaced, and those that the target has to bring."""
        return (*(seam for seam in SEAMS if _module(seam) in self.files), *self.settings["brings"])

    @property
    def parameters(self) -> dict[str, Parameter]:
        return parse_parameters(self.settings["parameters"])[0]

    @property
    def engines(self) -> tuple[str, ...]:
        """Engines that its modules and tests import."""
        found = {name for path in self.files.values() if path.suffix == ".py" for name in imported_names(path)}
        return tuple(sorted(found & set(ENGINES)))

    @property
    def is_wrapped(self) -> bool:
        return len(self.layers) > 1 and self.layers[1] == _wrapped(self.layers[0])


def compose_scaffold(model: Model, *, folders: Sequence[Path] = ()) -> Composition:
    """The scaffold of `model`. `folders`: the target's own, then those it inherits from; they may bring files.

    Raises SpecError with everything that is wrong with what they bring.
    """
    built_in = built_in_layers(model)
    base = _composed(built_in)
    overlays = tuple(folder / OVERLAY for folder in reversed(folders) if (folder / OVERLAY).is_dir())
    whole = _composed((*built_in, *overlays))
    problems = [problem for overlay in overlays for problem in _overlay_problems(overlay, base=base, whole=whole)]
    problems += _absent_modules(model, whole, folders=folders)
    if problems:
        raise SpecError("the target's scaffold is not valid", problems=problems, hint=HINT)
    return whole


def built_in_layers(model: Model) -> tuple[Path, ...]:
    """The shipped folders for `model`, base first. SpecError where there are none."""
    root = data_dir("templates") / "runtime"
    base = root / model.modality.value
    if not base.is_dir():
        available = sorted(path.parent.name for path in root.glob(f"*/{SCAFFOLD_FILE}") if _is_base(path.parent))
        raise SpecError(
            f"model.modality: there is no scaffold for '{model.modality.value}'",
            problems=[f"valid: {', '.join(available)}"],
        )
    known = read_scaffold_file(base)["architectures"]
    if not known or model.architecture in known:
        return (base,)
    variants = {path.parent: read_scaffold_file(path.parent)["architectures"] for path in _variant_files(base)}
    wrapped = _wrapped(base)
    chosen = next((variant for variant, those in variants.items() if model.architecture in those), wrapped)
    if not chosen.is_dir():
        valid = sorted({*known, *(name for those in variants.values() for name in those)})
        raise SpecError(
            f"model.architecture: the scaffold has no '{model.architecture}'", problems=[f"valid: {', '.join(valid)}"]
        )
    return (base, chosen)


def _variant_files(base: Path) -> list[Path]:
    return sorted(base.parent.glob(f"{base.name}_*/{SCAFFOLD_FILE}"))


def _wrapped(base: Path) -> Path:
    return base.with_name(f"{base.name}_wrapped")


def write_scaffold(composition: Composition, destination: Path) -> Path:
    """The folder of a scaffold: the base where that is all of it, else the layers' files in the new `destination`."""
    if len(composition.layers) == 1:
        return composition.layers[0]
    draft = destination.with_name(f".{destination.name}.draft")
    shutil.rmtree(draft, ignore_errors=True)
    for name, source in composition.files.items():
        target = draft / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, target)
    write_text_atomic(draft / SCAFFOLD_FILE, _yaml_text(composition.settings))
    shutil.rmtree(destination, ignore_errors=True)
    draft.rename(destination)
    return destination


def engine_problem(composition: Composition, *, allow_engines: Sequence[str], architecture: str) -> str | None:
    """Why the target has to allow more engines before its scaffold may run, with the line to add; else None."""
    missing = [engine for engine in composition.engines if engine not in allow_engines]
    if not missing:
        return None
    line = f"allow_engines: [{', '.join(sorted({*allow_engines, *missing}))}]"
    what = f"the scaffold of architecture '{architecture}' wraps" if composition.is_wrapped else "the scaffold imports"
    return f"allow_engines: {what} {', '.join(missing)}, which the target does not allow; add `{line}` to the target"


def imported_names(path: Path) -> set[str]:
    """Top-level names of the absolute imports of a module, at any depth. SpecError where it does not parse."""
    names: set[str] = set()
    for node in ast.walk(_parsed(path)):
        if isinstance(node, ast.Import):
            names |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module is not None:
            names.add(node.module.partition(".")[0])
    return names


def _composed(layers: Sequence[Path]) -> Composition:
    files: dict[str, Path] = {}
    settings: dict[str, Any] = read_scaffold_file(layers[0])
    for number, layer in enumerate(layers):
        if number:
            settings = _merged(settings, read_scaffold_file(layer), is_built_in=layer.parent == layers[0].parent)
        for name in settings["removes"]:
            files.pop(name, None)
        files.update({name: path for name, path in _files_of(layer) if name != SCAFFOLD_FILE})
    return Composition(layers=tuple(layers), files=dict(sorted(files.items())), settings={**settings, "removes": []})


def _merged(base: Mapping[str, Any], more: Mapping[str, Any], *, is_built_in: bool) -> dict[str, Any]:
    return {
        **base,
        "architectures": more["architectures"] if is_built_in else base["architectures"],
        "requires": sorted({*base["requires"], *more["requires"]}),
        "brings": [*base["brings"], *(name for name in more["brings"] if name not in base["brings"])],
        "removes": more["removes"],
        "parameters": {
            **{name: value for name, value in base["parameters"].items() if name not in more["removes"]},
            **more["parameters"],
        },
    }


def _files_of(layer: Path) -> Iterator[tuple[str, Path]]:
    for path in sorted(layer.rglob("*")):
        relative = path.relative_to(layer)
        if path.is_file() and not any(part in IGNORED_NAMES or part.startswith(".") for part in relative.parts):
            yield relative.as_posix(), path


def _overlay_problems(overlay: Path, *, base: Composition, whole: Composition) -> Iterator[str]:
    """What a target's folder may not bring."""
    seams = ", ".join(base.seams)
    settings = read_scaffold_file(overlay)
    for key in (key for key in ("architectures", "brings", "removes") if settings[key]):
        yield f"{overlay / SCAFFOLD_FILE}: {key}: is the shipped scaffolds' alone; valid: parameters, requires"
    own = dict(_files_of(overlay))
    used = {name for path in own.values() if path.suffix == ".py" for name in _relative_imports(path)}
    for name, path in own.items():
        if path.suffix == ".py" and "vibeserve" in imported_names(path):
            yield f"{path}: imports vibeserve, which a runtime has to do without; its own types are in .interfaces"
        if name.split("/")[0] not in OVERLAY_PARTS:
            yield f"{path}: not part of a scaffold; valid: runtime/, tests/, {SCAFFOLD_FILE}"
        elif not name.startswith("runtime/") or _seam(name) in base.seams:
            continue
        elif name in base.files:
            yield f"{path}: is no seam, so it cannot be replaced; seams: {seams}"
        elif path.suffix == ".py" and path.stem not in used:
            yield f"{path}: is no seam, and no other module of the folder imports it; seams: {seams}"


def _absent_modules(model: Model, whole: Composition, *, folders: Sequence[Path]) -> Iterator[str]:
    """Modules that the target has to bring, and names in them."""
    place = (folders[0] if folders else Path("targets/NAME")) / OVERLAY
    for module in whole.settings["brings"]:
        source = whole.files.get(_module(module))
        if source is None:
            yield f"{place / _module(module)}: missing; {_contract_of(model, module)}"
            continue
        defined = set(_top_level_names(source))
        absent = [name for name in DEFINES.get((model.modality, module), ()) if name not in defined]
        if absent:
            yield f"{source}: does not define {', '.join(absent)}; {_contract_of(model, module)}"


def _contract_of(model: Model, module: str) -> str:
    return f"a module with {', '.join(DEFINES.get((model.modality, module), ()))}"


def _module(name: str) -> str:
    return f"runtime/{name}.py"


def _seam(name: str) -> str:
    return name.removeprefix("runtime/").removesuffix(".py")


def _is_base(folder: Path) -> bool:
    return (folder / "service.yaml").is_file()


def _relative_imports(path: Path) -> Iterator[str]:
    """Names of sibling modules that a module imports."""
    for node in ast.walk(_parsed(path)):
        if isinstance(node, ast.ImportFrom) and node.level:
            yield from (node.module or "").split(".")
            yield from (alias.name for alias in node.names)


def _top_level_names(path: Path) -> Iterator[str]:
    for node in _parsed(path).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.Assign):
            yield from (target.id for target in node.targets if isinstance(target, ast.Name))
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.value is not None:
            yield node.target.id
        elif isinstance(node, ast.Import | ast.ImportFrom):
            yield from (alias.asname or alias.name for alias in node.names)


def _parsed(path: Path) -> ast.Module:
    try:
        return ast.parse(path.read_text(encoding="utf-8"), filename=str(path))
    except (SyntaxError, UnicodeDecodeError) as error:
        line = f":{error.lineno}" if isinstance(error, SyntaxError) else ""
        reason = error.msg if isinstance(error, SyntaxError) else "not UTF-8"
        raise SpecError(f"{path}{line}: {reason}", hint=HINT) from error


def _yaml_text(settings: Mapping[str, Any]) -> str:
    import yaml

    text: str = yaml.safe_dump(dict(settings), sort_keys=True)
    return text
