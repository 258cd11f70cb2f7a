"""The proof that a bundle's check can refuse: its faults, tried under its reference, judged like a server's replies."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from vibeserve.accuracy.documents import FaultScores, Job, JobKind
from vibeserve.accuracy.judging import refusals_of
from vibeserve.accuracy.rescore import run_child
from vibeserve.errors import SpecError
from vibeserve.modalities import BundleRef

NUM_REQUESTS = 3
"""outputs of each fault; a wrong one is refused over so few, or the check is too mild to find one bad server"""
NUM_REQUESTS_AGAIN = 16
"""right outputs that a few replies refuse are tried once more over so many: shares of a handful are coarse"""
TIMEOUT_S = 900.0
MAX_FIGURES = 6


@dataclass(frozen=True, kw_only=True)
class FaultResult:
    """One fault and what the judge said."""

    name: str
    is_wrong: bool
    refused: bool
    reasons: tuple[str, ...] = ()
    """gate/class: text"""
    figures: dict[str, float] = field(default_factory=dict)
    seconds: float = 0.0
    """to make its outputs"""

    @property
    def is_as_declared(self) -> bool:
        return self.refused == self.is_wrong

    @property
    def line(self) -> str:
        """`bfloat16 (noisy): passed; margin_mean 0.0003`."""
        kind = "wrong" if self.is_wrong else "right" if self.name == "reference_output" else "noisy"
        figures = ", ".join(f"{name} {value:.4g}" for name, value in list(self.figures.items())[:MAX_FIGURES])
        return f"{self.name} ({kind}): {'refused' if self.refused else 'passed'}; {figures or 'no figures'}"


def try_faults(
    bundle: BundleRef,
    *,
    num_threads: int,
    run_dir: Path,
    seed: int = 0,
    device: str = "cpu",
    only: Sequence[str] = (),
) -> list[FaultResult]:
    """Make and judge every fault of the bundle, in a child process. Takes the reference's time for a few requests.

    `only`: these alone, by name; empty = all. Raises SpecError for what a target's own file does wrong, InfraError when
    the child fails. What the results say is the caller's to judge, or `refuse_unproven`'s.
    """
    job = Job(bundle=bundle, kind=JobKind.FAULTS, seed=seed, num_requests=NUM_REQUESTS, only=tuple(only), device=device)
    answer = run_child(job, run_dir=run_dir, num_threads=num_threads, timeout_s=TIMEOUT_S)
    results = {scores.name: _result(scores) for scores in answer.faults}
    doubtful = tuple(name for name, result in results.items() if result.refused and not result.is_wrong)
    if doubtful:
        again = Job(
            bundle=bundle, kind=JobKind.FAULTS, seed=seed, num_requests=NUM_REQUESTS_AGAIN, only=doubtful, device=device
        )
        repeated = run_child(again, run_dir=run_dir / "again", num_threads=num_threads, timeout_s=TIMEOUT_S)
        results |= {scores.name: _result(scores) for scores in repeated.faults}
    return list(results.values())


def refuse_unproven(results: Sequence[FaultResult]) -> None:
    """SpecError that names every wrong output that passed and every right one that was refused, with the figures."""
    wrong = [result for result in results if not result.is_as_declared]
    if not wrong:
        return
    problems = []
    for result in wrong:
        problems.append(result.line)
        problems += [f"  {reason}" for reason in result.reasons[:2]] if result.refused else []
    is_mild = any(result.is_wrong for result in wrong)
    raise SpecError(
        "the accuracy gate passes outputs that are wrong" if is_mild else "the accuracy gate refuses right outputs",
        problems=problems,
        hint="LIMITS and judge of check.py, or evaluation.tolerances of the target, between noise and wrong outputs",
    )


def _result(scores: FaultScores) -> FaultResult:
    refusals, figures = refusals_of(scores.scores)
    return FaultResult(
        name=scores.name, is_wrong=scores.is_wrong, refused=bool(refusals), seconds=scores.seconds, figures=figures,
        reasons=tuple(refusal.feedback for refusal in refusals),
    )  # fmt: skip
