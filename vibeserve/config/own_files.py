"""What a target's own files add to the rules: kinds of workload, and metrics that goals may name."""

from __future__ import annotations

from collections.abc import Iterator

from vibeserve.core.nouns import Metric
from vibeserve.errors import SpecError
from vibeserve.modalities import bundle_ref, known_metrics, open_bundle, target_folder
from vibeserve.spec import Modality, Spec


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
        yield from open_bundle(ref).problems()


def _one_line(error: SpecError) -> str:
    return "; ".join([str(error).splitlines()[0], *error.problems])
