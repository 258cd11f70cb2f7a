"""What a target's own files add to the rules: kinds of workload, and metrics that goals may name."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from vibeserve.config.words import suggest
from vibeserve.core.nouns import Metric
from vibeserve.errors import SpecError
from vibeserve.modalities import BundleRef, bundle_ref, known_metrics, open_bundle, target_folder, target_folders
from vibeserve.modalities.sources import FILES
from vibeserve.skills import compose_scaffold
from vibeserve.spec import Modality, Spec


def absent_files(spec: Spec) -> Iterator[str]:
    """One line where the target's folder lacks files that its modality has no built-in ones for."""
    folders = target_folders(spec)
    if not folders or spec.model.modality is not Modality.custom:
        return
    programs = {"reference": spec.contract.reference_argv, "check": spec.contract.check_argv}
    absent = [
        f"{name}.py"
        for name in FILES
        if not programs.get(name) and not any((folder / f"{name}.py").is_file() for folder in folders)
    ]
    if absent:
        *others, last = (f"{name}.py" for name in FILES)
        yield (
            f"model.modality: {', '.join(absent)} not found in {', '.join(map(str, folders))}; a custom target has "
            f"{', '.join(others)} and {last} beside target.yaml (docs/contract.md)"
        )


def refuse_own_files(spec: Spec) -> None:
    """SpecError (exit 2) for files of the target's folder that do not define what the contract asks for."""
    problems = list(own_file_problems(spec))
    if problems:
        raise SpecError(f"target '{spec.target.name}' is not valid", problems=problems, hint="docs/contract.md")


def has_own_workload(spec: Spec) -> bool:
    """The target's folder brings `workload.py`: its kind is a name of its own, and tokens may mean nothing to it."""
    try:
        return "workload" in bundle_ref(spec).own_files
    except SpecError:
        return False


def goal_metrics(spec: Spec) -> dict[str, Metric]:
    """Metrics by name; none where the target's own workload.py is faulty, which `workload_fault` tells."""
    try:
        return known_metrics(spec)
    except SpecError:
        return {}


def workload_fault(spec: Spec) -> Iterator[str]:
    """Why the target's own workload.py cannot be used; nothing where it can."""
    try:
        known_metrics(spec)
    except SpecError as error:
        yield f"workload: {_one_line(error)}"


def own_file_problems(spec: Spec) -> Iterator[str]:
    """Every file of the target's folder that does not define what the contract asks for; imports them."""
    try:
        ref = bundle_ref(spec)
    except SpecError as error:
        # a modality that is not built in yet may be declared; `plan` says so and a run refuses it
        if spec.model.modality is Modality.custom or target_folder(spec) is not None:
            yield _one_line(error)
        return
    if ref.own_files:
        faults = list(open_bundle(ref).problems())
        yield from faults or _misspelt_limits(spec, ref)
    if spec.model.modality is Modality.custom:
        yield from _scaffold_fault(spec)


def _misspelt_limits(spec: Spec, ref: BundleRef) -> Iterator[str]:
    """Limits of the target with nearly the name of a distance that check.py knows: one that nothing measures would
    refuse every reply, and only in the middle of a run."""
    kind, _, place = ref.check.partition(":")
    if kind != "file":
        return
    known = {limit.distance for limit in open_bundle(ref).check.LIMITS} | _distances(Path(place))
    for key in spec.evaluation.tolerances.limits:
        name = key.partition("/")[0]
        guess = "" if name in known else suggest(name, sorted(known))
        if guess:
            yield f"evaluation.tolerances.limits.{key}: check.py has no distance '{name}'{guess}"


def _distances(check: Path) -> set[str]:
    """Names that check.py gives its distances; none where it works one of them out."""
    calls = [
        node
        for node in ast.walk(ast.parse(check.read_bytes()))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Distance"
    ]
    names = [word.value for call in calls for word in call.keywords if word.arg == "name"]
    texts = {name.value for name in names if isinstance(name, ast.Constant) and isinstance(name.value, str)}
    return texts if all(isinstance(name, ast.Constant) for name in names) else set()


def _scaffold_fault(spec: Spec) -> Iterator[str]:
    """Why the target's folder gives round 0 nothing to serve."""
    try:
        compose_scaffold(spec.model, folders=target_folders(spec))
    except SpecError as error:
        yield _one_line(error)


def _one_line(error: SpecError) -> str:
    return "; ".join([str(error).splitlines()[0], *error.problems])
