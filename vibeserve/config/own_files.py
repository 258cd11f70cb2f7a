"""What a target's own files add to the rules: kinds of workload, and metrics that goals may name."""

from __future__ import annotations

from collections.abc import Iterator

from vibeserve.core.nouns import METRICS, Metric
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
    """Metrics by name; the built-in ones where workload.py is faulty, which `own_file_problems` tells."""
    try:
        return known_metrics(spec)
    except SpecError:
        return dict(METRICS)


def own_file_problems(spec: Spec) -> Iterator[str]:
    """Every file of the target's folder that does not define what the contract asks for; imports them."""
    try:
        ref = bundle_ref(spec)
    except SpecError as error:
        # a modality that is not built in yet may be declared; `plan` says so and a run refuses it
        if spec.model.modality is Modality.custom or target_folder(spec) is not None:
            yield "; ".join([str(error).splitlines()[0], *error.problems])
        return
    if not ref.own_files:
        return
    yield from open_bundle(ref).problems()
    try:
        known_metrics(spec)
    except SpecError as error:
        yield "; ".join([str(error).splitlines()[0], *error.problems])
