"""Where the four files of a target lie: in its folder, in folders that it inherits from, or in a built-in package."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from vibeserve import contract
from vibeserve.core.documents import canonical_json, to_data
from vibeserve.errors import SpecError
from vibeserve.modalities.program import ProgramSource
from vibeserve.spec import Modality, Model, Spec
from vibeserve.weights import files_of

FILES = ("reference", "workload", "check", "faults")
"""of a target folder, with `.py`; each replaces the built-in one of the model's modality"""

BUILT_IN: dict[Modality, str] = {
    Modality.text: "vibeserve.modalities.text",
    Modality.speech: "vibeserve.modalities.speech",
    Modality.image: "vibeserve.modalities.image",
}
"""modality -> package that holds its four modules, and its probes as `PROBES` where it has some of its own"""

DRAWN_BY_TOKENS = "vibeserve.modalities.image_tokens"
"""package of models whose image head is of kind `tokens`"""

TARGET_FILE = "target.yaml"


@dataclass(frozen=True, kw_only=True)
class BundleRef:
    """Where the four files lie, as JSON data: child processes open the same bundle.

    A source is `module:NAME`, `file:PATH`, or `program:` and a `ProgramSource` as JSON.
    """

    reference: str
    workload: str
    check: str
    faults: str
    context: contract.Context
    probes: str = ""
    """package whose `PROBES` apply; empty = the probes that hold for every workload"""
    schema_version: int = 1

    @property
    def own_files(self) -> tuple[str, ...]:
        """Names of those that are not the framework's."""
        return tuple(name for name in FILES if not getattr(self, name).startswith("module:"))


def bundle_ref(spec: Spec, *, model_dir: Path | None = None) -> BundleRef:
    """The bundle of a spec. Files of the target's folder come before the built-in ones of its modality.

    Raises SpecError (exit 2) where a file is neither in the folder nor built in.
    """
    folders = target_folders(spec)
    folder = target_folder(spec)
    package = built_in_package(spec.model)
    sources = {name: _source(name, folders=folders, package=package) for name in FILES} | _programs(spec)
    built_in = ", ".join(item.value for item in BUILT_IN)
    missing = [name for name, source in sources.items() if not source]
    if missing:
        raise SpecError(
            f"target '{spec.target.name}': {', '.join(f'{name}.py' for name in missing)} not found",
            problems=[
                f"model.modality is {spec.model.modality.value}; built in: {built_in}",
                f"searched: {', '.join(map(str, folders)) or '(the target is a single file, it has no folder)'}",
            ],
            hint="write them beside target.yaml (docs/contract.md), or start with `vibeserve init --from`",
        )
    context = contract.Context(
        model_dir=_given(model_dir, is_built_in=bool(package)), target_dir=str(folder or ""),
        workload=to_data(spec.workload),
        tolerances=to_data(spec.evaluation.tolerances),
    )  # fmt: skip
    return BundleRef(
        reference=sources["reference"], workload=sources["workload"], check=sources["check"], faults=sources["faults"],
        context=context, probes=package or "",
    )  # fmt: skip


def built_in_package(model: Model) -> str | None:
    """Of a model's modality, and of how it draws; None = there is none."""
    is_by_tokens = model.modality is Modality.image and model.image_head.kind == "tokens"
    return DRAWN_BY_TOKENS if is_by_tokens else BUILT_IN.get(model.modality)


def _given(model_dir: Path | None, *, is_built_in: bool) -> str:
    """What the four files are given: a built-in modality's own layout as it is, else the source's files in it."""
    is_materialised = model_dir is not None and (model_dir / "weights.json").is_file()
    return str(files_of(model_dir) if model_dir and is_materialised and not is_built_in else model_dir or "")


def target_folder(spec: Spec) -> Path | None:
    """The nearest folder of a target, its own or an inherited one, that brings files: it holds a `target.yaml`."""
    return next(iter(target_folders(spec)), None)


def target_folders(spec: Spec) -> list[Path]:
    """Folders that the target's files are looked up in: its own, then those of the targets that it inherits from."""
    folders = [Path(folder) for folder in (spec.target.dir, *spec.target.inherited_dirs) if folder]
    return [folder for folder in folders if (folder / TARGET_FILE).is_file()]


def contract_files(spec: Spec) -> list[Path]:
    """Every file of the target's folders that can change what is asked, served first or judged, sorted by folder.

    The folder of a local model is left out: its files are the weights', which have a digest of their own.
    """
    weights = (spec.target.folder_of(spec.model.source.path) or Path()) / Path(spec.model.source.path).expanduser()
    return [
        path
        for folder in target_folders(spec)
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path != folder / TARGET_FILE and _is_kept(path.relative_to(folder))
        and not (spec.model.source.path and path.is_relative_to(weights))
    ]  # fmt: skip


def _is_kept(relative: Path) -> bool:
    return not any(part.startswith(".") or part == "__pycache__" for part in relative.parts)


def _source(name: str, *, folders: Sequence[Path], package: str | None) -> str:
    for folder in folders:
        if (folder / f"{name}.py").is_file():
            return f"file:{folder / f'{name}.py'}"
    return f"module:{package}.{name}" if package else ""


def _programs(spec: Spec) -> dict[str, str]:
    """The files that a program of the target's folder stands for."""
    found = {}
    for name, argv in (("reference", spec.contract.reference_argv), ("check", spec.contract.check_argv)):
        if not argv:
            continue
        folder = target_folder(spec)
        if folder is None:
            problem = "the target is a single file, it has no folder"
            hint = "make it targets/NAME/target.yaml, the program beside it"
            raise SpecError(f"contract.{name}_argv: no folder to run it in", problems=[problem], hint=hint)
        source = ProgramSource(
            key=f"contract.{name}_argv", argv=tuple(argv), folder=str(folder), timeout_s=spec.contract.timeout_s
        )
        found[name] = f"program:{canonical_json(source)}"
    return found
