"""The four files of one target as the objects that they define."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from vibeserve import contract
from vibeserve.core.documents import from_data
from vibeserve.errors import ContractError, SpecError
from vibeserve.modalities.folder import BlamedFile, load_file
from vibeserve.modalities.limits import with_overrides
from vibeserve.modalities.probes import ProbeSuite
from vibeserve.modalities.program import LineProgram, ProgramCheck, ProgramReference, ProgramSource
from vibeserve.modalities.sources import BundleRef

if TYPE_CHECKING:
    from types import ModuleType

MIN_WRONG_FAULTS = 3


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
        found = self._configured("workload", needs=("METRICS", "requests", "send", "measure"))
        return cast(contract.Workload, found)

    @cached_property
    def check(self) -> contract.Check:
        program = self._program("check", dtype="")
        if program is not None:
            return cast(contract.Check, ProgramCheck(program))
        return cast(contract.Check, self._configured("check", needs=("LIMITS", "compare")))

    @cached_property
    def limits(self) -> tuple[contract.Limit, ...]:
        """The check's LIMITS with the target's own bounds over them. SpecError where no rule is left at all."""
        with self.blamed("check"):
            declared = tuple(self.check.LIMITS)
        _require_type(declared, contract.Limit, what="LIMITS", source=self.ref.check)
        limits = with_overrides(declared, self.ref.context.tolerances.get("limits", {}))
        if not limits and not callable(getattr(self.check, "judge", None)):
            raise SpecError(
                f"{_shown(self.ref.check)}: no limits: nothing would ever be refused",
                problems=["valid: LIMITS and judge of check.py, or evaluation.tolerances.limits of the target"],
                hint="docs/contract.md",
            )
        return limits

    @cached_property
    def faults(self) -> Sequence[contract.Fault]:
        faults = tuple(self._faults_object.FAULTS)
        _require_type(faults, contract.Fault, what="FAULTS", source=self.ref.faults)
        num_wrong = sum(fault.is_wrong for fault in faults)
        if num_wrong < MIN_WRONG_FAULTS or num_wrong == len(faults):
            raise SpecError(
                f"{_shown(self.ref.faults)}: FAULTS: {num_wrong} wrong outputs, {len(faults) - num_wrong} noisy ones",
                problems=[f"needed: at least {MIN_WRONG_FAULTS} with is_wrong=True, and one with is_wrong=False"],
                hint="docs/contract.md",
            )
        return faults

    def cheap(self, request: contract.Request) -> contract.Request:
        """The request as the faults are tried on it: `shortened` of faults.py, else of workload.py, else as it is."""
        shortened = getattr(self._faults_object, "shortened", None)
        if not callable(shortened):
            return self.shortened(request)
        with self.blamed("faults"):
            return cast(contract.Request, shortened(request))

    def shortened(self, request: contract.Request) -> contract.Request:
        """A cheap version for warm-ups, where the workload has one."""
        return self._changed("shortened", request)

    def audited(self, request: contract.Request) -> contract.Request:
        """A version for audits of times, where the workload has one."""
        return self._changed("audited", request)

    def load_requests(self, seed: int, pool: contract.Pool) -> Iterator[contract.Request]:
        """The requests of a load, with all that takes time to make: the first of them are there when this returns."""
        with self.blamed("workload"):
            requests = self.workload.requests(seed, pool)
            prepared = getattr(self.workload, "prepared", None)
            return cast("Iterator[contract.Request]", prepared(requests)) if callable(prepared) else requests

    def plain(self, request: contract.Request) -> contract.Request:
        """The request without what only the check asks for, where the workload tells the two apart."""
        return self._changed("plain", request)

    def _changed(self, name: str, request: contract.Request) -> contract.Request:
        change = getattr(self.workload, name, None)
        if not callable(change):
            return request
        with self.blamed("workload"):
            changed = change(request)
        if not isinstance(changed, self.request_type):
            text = (
                f"{self.file('workload')}: {name} returned {type(changed).__name__}, not {self.request_type.__name__}"
            )
            raise ContractError(text, hint="docs/contract.md")
        return changed

    def load_reference(self, *, device: str, dtype: str) -> contract.Reference:
        """The model itself; takes its time and memory."""
        program = self._program("reference", dtype=dtype, device=device)
        if program is not None:
            return cast(contract.Reference, ProgramReference(program))
        module = self._module(self.ref.reference)
        _require(module, ("load",), source=self.ref.reference)
        with self.blamed("reference"):
            reference = module.load(self.ref.context.model_dir, device, dtype)
        if not callable(getattr(reference, "run", None)):
            text = f"{_shown(self.ref.reference)}: what load() returns has no run(request)"
            raise SpecError(text, hint="docs/contract.md")
        return cast(contract.Reference, reference)

    def blamed(self, name: str) -> AbstractContextManager[None]:
        """Context for a call into one of the four files: what a target's own file raises is a SpecError with file and
        line, what a built-in one raises is the framework's own trouble and passes as it is."""
        kind, _, place = getattr(self.ref, name).partition(":")
        return BlamedFile(Path(place)) if kind == "file" else nullcontext()

    def file(self, name: str) -> str:
        """Where one of the four files lies, for messages."""
        return _shown(getattr(self.ref, name))

    @property
    def probes(self) -> ProbeSuite | None:
        """The modality's own probes; None = the probes that hold for every workload."""
        if not self.ref.probes:
            return None
        return cast("ProbeSuite | None", getattr(import_module(self.ref.probes), "PROBES", None))

    def record(self, request: contract.Request, output: Any) -> contract.Record:
        """The record of a server that sent this output, at no particular time."""
        make = getattr(self.record_type, "of_output", None)
        with self.blamed("workload"):
            made = make(request, output) if callable(make) else self.record_type(request=request, output=output)
        return cast(contract.Record, made)

    @cached_property
    def request_type(self) -> type[contract.Request]:
        """What the generator rebuilds a request's JSON to: the workload's `REQUEST`, or the contract's own."""
        return cast(type[contract.Request], getattr(self.workload, "REQUEST", contract.Request))

    @cached_property
    def record_type(self) -> type[contract.Record]:
        return cast(type[contract.Record], getattr(self.workload, "RECORD", contract.Record))

    def problems(self) -> Iterator[str]:
        """Every file that does not define what the contract asks for, without loading the model."""
        is_check_there = True
        for name in ("workload", "check", "limits", "faults"):
            if name == "limits" and not is_check_there:
                continue
            try:
                getattr(self, name)
            except SpecError as error:
                is_check_there = name != "check"
                yield "; ".join([str(error).splitlines()[0], *error.problems])
        try:
            if self.ref.reference.startswith(("module:", "file:")):
                _require(self._module(self.ref.reference), ("load",), source=self.ref.reference)
        except SpecError as error:
            yield "; ".join([str(error).splitlines()[0], *error.problems])

    def _configured(self, name: str, *, needs: Sequence[str]) -> Any:
        source = getattr(self.ref, name)
        module = self._module(source)
        configure = getattr(module, "configure", None)
        with self.blamed(name):
            found = configure(self.ref.context) if callable(configure) else module
        _require(found, needs, source=source)
        return found

    @cached_property
    def _faults_object(self) -> Any:
        return self._configured("faults", needs=("FAULTS",))

    def _program(self, name: str, *, dtype: str, device: str = "cpu") -> LineProgram | None:
        """The running program that stands for a file, where one does."""
        kind, _, place = getattr(self.ref, name).partition(":")
        if kind != "program":
            return None
        words = {"python": sys.executable, "model_dir": self.ref.context.model_dir, "device": device, "dtype": dtype}
        return LineProgram(from_data(ProgramSource, json.loads(place)), words=words)

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


def _require_type(items: Sequence[object], wanted: type, *, what: str, source: str) -> None:
    wrong = [type(item).__name__ for item in items if not isinstance(item, wanted)]
    if wrong:
        text = f"{_shown(source)}: {what} holds {', '.join(wrong[:3])}"
        raise SpecError(text, problems=[f"valid: vibeserve.contract.{wanted.__name__}"], hint="docs/contract.md")


def _shown(source: str) -> str:
    kind, _, place = source.partition(":")
    return str(json.loads(place)["key"]) if kind == "program" else place
