"""The four files of one target: where each comes from, and the objects that they define."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from vibeserve import contract
from vibeserve.core.documents import to_data
from vibeserve.errors import SpecError
from vibeserve.modalities.folder import load_file
from vibeserve.spec import Modality, Spec

if TYPE_CHECKING:
    from types import ModuleType

FILES = ("reference", "workload", "check", "faults")
"""of a target folder, with `.py`; each replaces the built-in one of the model's modality"""

BUILT_IN: dict[Modality, str] = {Modality.text: "vibeserve.modalities.text"}
"""modality -> package that holds its four modules"""

MIN_WRONG_FAULTS = 3


@dataclass(frozen=True, kw_only=True)
class BundleRef:
    """Where the four files lie, as JSON data: child processes open the same bundle.

    A source is `module:NAME` or `file:PATH`.
    """

    reference: str
    workload: str
    check: str
    faults: str
    context: contract.Context
    schema_version: int = 1


def bundle_ref(spec: Spec, *, model_dir: Path | None = None) -> BundleRef:
    """The bundle of a spec. Files of the target's folder come before the built-in ones of its modality.

    Raises SpecError (exit 2) where a file is neither in the folder nor built in.
    """
    folder = target_folder(spec)
    package = BUILT_IN.get(spec.model.modality)
    sources = {name: _source(name, folder=folder, package=package) for name in FILES}
    built_in = ", ".join(item.value for item in BUILT_IN)
    missing = [name for name, source in sources.items() if not source]
    if missing:
        raise SpecError(
            f"target '{spec.target.name}': {', '.join(f'{name}.py' for name in missing)} not found",
            problems=[
                f"model.modality is {spec.model.modality.value}; built in: {built_in}",
                f"searched: {folder or '(the target is a single file, it has no folder)'}",
            ],
            hint="write them beside target.yaml (docs/contract.md), or start with `vibeserve init --from`",
        )
    context = contract.Context(
        model_dir=str(model_dir or ""), target_dir=str(folder or ""), workload=to_data(spec.workload),
        tolerances=to_data(spec.evaluation.tolerances),
    )  # fmt: skip
    return BundleRef(
        reference=sources["reference"], workload=sources["workload"], check=sources["check"], faults=sources["faults"],
        context=context,
    )  # fmt: skip


def target_folder(spec: Spec) -> Path | None:
    """Folder of a target that brings files of its own: the one that holds its `target.yaml`."""
    folder = Path(spec.target.dir) if spec.target.dir else None
    return folder if folder is not None and (folder / "target.yaml").is_file() else None


def contract_files(spec: Spec) -> list[Path]:
    """Every file of the target's folder that can change what is asked, served first or judged, sorted."""
    folder = target_folder(spec)
    if folder is None:
        return []
    found = [path for path in folder.rglob("*") if path.is_file() and "__pycache__" not in path.parts]
    return sorted(path for path in found if path.name != "target.yaml")


def _source(name: str, *, folder: Path | None, package: str | None) -> str:
    if folder is not None and (folder / f"{name}.py").is_file():
        return f"file:{folder / f'{name}.py'}"
    return f"module:{package}.{name}" if package else ""


def open_bundle(ref: BundleRef) -> Bundle:
    """The bundle's objects, each imported when it is first used."""
    return Bundle(ref)


class Bundle:
    """One target's reference, workload, check and faults."""

    def __init__(self, ref: BundleRef) -> None:
        self.ref = ref

    @cached_property
    def workload(self) -> contract.Workload:
        """SpecError where the file does not define what the contract asks for."""
        found = self._configured(self.ref.workload, needs=("METRICS", "requests", "send", "measure"))
        return cast(contract.Workload, found)

    @cached_property
    def check(self) -> contract.Check:
        return cast(contract.Check, self._configured(self.ref.check, needs=("LIMITS", "compare")))

    @cached_property
    def faults(self) -> Sequence[contract.Fault]:
        module = self._module(self.ref.faults)
        _require(module, ("FAULTS",), source=self.ref.faults)
        faults = tuple(module.FAULTS)
        num_wrong = sum(fault.is_wrong for fault in faults)
        if num_wrong < MIN_WRONG_FAULTS or num_wrong == len(faults):
            raise SpecError(
                f"{_shown(self.ref.faults)}: FAULTS: {num_wrong} wrong outputs, {len(faults) - num_wrong} noisy ones",
                problems=[f"needed: at least {MIN_WRONG_FAULTS} with is_wrong=True, and one with is_wrong=False"],
                hint="docs/contract.md",
            )
        return faults

    def load_reference(self, *, device: str, dtype: str) -> contract.Reference:
        """The model itself; takes its time and memory."""
        module = self._module(self.ref.reference)
        _require(module, ("load",), source=self.ref.reference)
        reference = module.load(self.ref.context.model_dir, device, dtype)
        if not callable(getattr(reference, "run", None)):
            text = f"{_shown(self.ref.reference)}: what load() returns has no run(request)"
            raise SpecError(text, hint="docs/contract.md")
        return cast(contract.Reference, reference)

    @cached_property
    def request_type(self) -> type[contract.Request]:
        """What the generator rebuilds a request's JSON to: the workload's `REQUEST`, or the contract's own."""
        return cast(type[contract.Request], getattr(self.workload, "REQUEST", contract.Request))

    @cached_property
    def record_type(self) -> type[contract.Record]:
        return cast(type[contract.Record], getattr(self.workload, "RECORD", contract.Record))

    def problems(self) -> Iterator[str]:
        """Every file that does not define what the contract asks for, without loading the model."""
        for name in ("workload", "check", "faults"):
            try:
                getattr(self, name)
            except SpecError as error:
                yield "; ".join([str(error).splitlines()[0], *error.problems])
        try:
            _require(self._module(self.ref.reference), ("load",), source=self.ref.reference)
        except SpecError as error:
            yield "; ".join([str(error).splitlines()[0], *error.problems])

    def _configured(self, source: str, *, needs: Sequence[str]) -> Any:
        module = self._module(source)
        configure = getattr(module, "configure", None)
        found = configure(self.ref.context) if callable(configure) else module
        _require(found, needs, source=source)
        return found

    def _module(self, source: str) -> ModuleType:
        kind, _, place = source.partition(":")
        return import_module(place) if kind == "module" else load_file(Path(place))


def _require(found: object, names: Sequence[str], *, source: str) -> None:
    absent = [name for name in names if not hasattr(found, name)]
    if absent:
        raise SpecError(
            f"{_shown(source)}: does not define {', '.join(absent)}",
            problems=[f"the contract asks for: {', '.join(names)}"],
            hint="docs/contract.md",
        )


def _shown(source: str) -> str:
    return source.partition(":")[2]
