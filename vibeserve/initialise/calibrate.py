"""Limits from measurements: every fault of a new folder is tried under its reference, and honest noise beside it."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from vibeserve.accuracy.documents import FaultScores, Job, JobKind
from vibeserve.accuracy.judging import refusals_of
from vibeserve.accuracy.rescore import run_child
from vibeserve.errors import RefusedError
from vibeserve.initialise.folder_files import Calibration
from vibeserve.initialise.limits import ChosenLimit, Tried, choose_limits
from vibeserve.modalities import BundleRef, bundle_ref
from vibeserve.spec import Spec, Tolerances

NUM_REQUESTS = 16
"""replies of each fault; shares of fewer are coarse"""

TEXT_FIGURES = {
    "top1_agreement_min": "disagreement_share",
    "disagreement_margin_max_nats": "max_disagreement_margin",
    "mean_margin_max_nats": "mean_margin",
    "logprob_mean_max": "logprob_mean",
    "logprob_p99_max": "logprob_p99",
}
"""field of `evaluation.tolerances` -> what it bounds, over all replies of one fault"""
SHARES = ("top1_agreement_min",)
"""fields that bound 1 - figure from below"""


def calibrate_folder(spec: Spec, *, model_dir: Path, run_dir: Path) -> Calibration:
    """Limits for a folder whose check compares with one right output (statistic max).

    Raises RefusedError (exit 3) with the numbers where a fault cannot be told from noise.
    """
    tried = [reply for fault in _scores(spec, model_dir=model_dir, run_dir=run_dir) for reply in _replies(fault)]
    chosen = choose_limits(tried)
    return Calibration(lines=_lines(chosen), limits={f"{limit.distance}/max": limit.bound for limit in chosen})


def calibrate_text(spec: Spec, *, model_dir: Path, run_dir: Path) -> Calibration:
    """Tolerances for a causal language model: the framework's defaults, and stricter ones where a fault asks for them.

    Never milder ones: `verify` holds a built-in check to the defaults. They come from far more tokens than are tried
    here, so that a few quiet replies are no reason to leave them. Raises RefusedError (exit 3) with the numbers where
    honest noise alone lies beyond a default, or a fault cannot be told from noise.
    """
    tried = [_pooled(fault) for fault in _scores(spec, model_dir=model_dir, run_dir=run_dir)]
    defaults = _text_defaults()
    chosen = [_at_most(limit, defaults[limit.distance]) for limit in choose_limits(tried, defaults=defaults)]
    _refuse_noisy(chosen)
    fields = {figure: field for field, figure in TEXT_FIGURES.items()}
    changed = {
        fields[limit.distance]: round(1 - limit.bound, 4) if fields[limit.distance] in SHARES else limit.bound
        for limit in chosen
        if not limit.is_default
    }
    return Calibration(lines=_lines(chosen), tolerances=changed)


def _at_most(limit: ChosenLimit, default: float) -> ChosenLimit:
    return limit if limit.is_default or limit.bound < default else replace(limit, bound=default, is_default=True)


def _refuse_noisy(chosen: Sequence[ChosenLimit]) -> None:
    noisy = [limit for limit in chosen if limit.noise > limit.bound]
    if noisy:
        rows = [f"  {limit.distance}: noise up to {limit.noise:.2g}, at most {limit.bound:.2g}" for limit in noisy]
        raise RefusedError(
            "the model in bfloat16 lies beyond the accuracy gate's own limits:\n"
            + "\n".join(rows)
            + "\nnext: declare model.dtype float32 and a reference that is that exact, or take a larger model:"
            " the text of very small random ones hangs on rounding"
        )


def _scores(spec: Spec, *, model_dir: Path, run_dir: Path) -> Sequence[FaultScores]:
    bundle: BundleRef = bundle_ref(spec, model_dir=model_dir)
    job = Job(bundle=bundle, kind=JobKind.FAULTS, num_requests=NUM_REQUESTS)
    return run_child(job, run_dir=run_dir, num_threads=os.cpu_count() or 1).faults


def _replies(fault: FaultScores) -> Iterator[Tried]:
    for reply in fault.scores.replies:
        distances = {
            distance.name: math.inf if distance.missing else max(distance.values, default=0.0)
            for distance in reply.distances
        }
        yield Tried(fault=fault.name, is_wrong=fault.is_wrong, distances=distances)


def _pooled(fault: FaultScores) -> Tried:
    """Text is judged by shares and means over all tokens."""
    _, figures = refusals_of(fault.scores)
    found = {"disagreement_share": 1 - figures.get("top1_agreement", 0.0), **figures}
    distances = {name: found[name] for name in TEXT_FIGURES.values() if name in found}
    return Tried(fault=fault.name, is_wrong=fault.is_wrong, distances=distances)


def _text_defaults() -> dict[str, float]:
    defaults = Tolerances()
    bounds = {figure: float(getattr(defaults, field)) for field, figure in TEXT_FIGURES.items()}
    return {figure: 1 - bound if figure == "disagreement_share" else bound for figure, bound in bounds.items()}


def _lines(chosen: Sequence[ChosenLimit]) -> list[str]:
    head = f"measured by `vibeserve init` on {NUM_REQUESTS} requests: bfloat16 and every fault of faults.py"
    return [head, *(limit.line() for limit in chosen)]
