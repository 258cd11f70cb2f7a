"""The answer of `verify` as a list of checks: what was looked at, what it said, what was not looked at."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from vibeserve.artifact.claims import ClaimState
from vibeserve.artifact.consistency import CONTRADICTION
from vibeserve.artifact.pages import REASON_CLASS, pages_note
from vibeserve.artifact.signature import SignatureState
from vibeserve.core.nouns import Refusal

if TYPE_CHECKING:
    from vibeserve.artifact.verification import Verification

GATES = ("rules", "scan", "build", "start", "probe", "replies", "accuracy", "integrity", "own_tests", "fresh")
"""of level accuracy, in the order in which they are passed"""
_CHECK_OF = {
    "spec": "rules", "reference": "rules", "lengths": "replies", "usage": "replies", "stream": "replies",
    "requests": "replies",
    "audit": "audits",
}  # fmt: skip
"""gate of a reason -> the check that it belongs to, where the names differ"""


class CheckState(Enum):
    PASSED = "passed"
    FAILED = "failed"
    SKIPPED = "skipped"


@dataclass(frozen=True, kw_only=True)
class Check:
    """One line of the answer."""

    level: str
    """bytes, accuracy, audit or performance"""
    name: str
    state: CheckState
    reasons: tuple[Refusal, ...] = ()
    note: str = ""
    """what it measured, or why it was skipped"""


def checks_of(done: Verification) -> list[Check]:
    """Every check of every level, in order."""
    return [*_bytes(done), *_gates(done), *_performance(done)]


def _bytes(done: Verification) -> Iterator[Check]:
    wrong = [reason for reason in done.reasons if done.manifest is None]
    other_bytes = [reason for reason in wrong if reason.reason_class not in (CONTRADICTION, REASON_CLASS)]
    yield _check("bytes", "files", [reason for reason in wrong if reason.reason_class == "digest_mismatch"])
    for name, reason_class in (("documents", CONTRADICTION), ("pages", REASON_CLASS)):
        own = [reason for reason in wrong if reason.reason_class == reason_class]
        is_read = done.manifest is not None or not other_bytes
        note = pages_note(done.manifest) if done.manifest is not None and name == "pages" else ""
        yield _check("bytes", name, own, skipped="" if is_read else "the bytes prove nothing", note=note)
    origin = [reason for reason in wrong if reason.reason_class == "other_origin"]
    yield _check("bytes", "origin", origin, skipped="" if done.has_origin else "no --expect DIGEST was given")
    signed = [reason for reason in wrong if reason.gate == "signature"]
    is_checked = done.signature.state in (SignatureState.VALID, SignatureState.INVALID)
    yield _check(
        "bytes", "signature", signed, skipped="" if is_checked else done.signature.text, note=done.signature.text
    )
    if done.manifest is None:
        yield _check("bytes", "certified", (), skipped="the bytes prove nothing")
        return
    failed: Sequence[Refusal] = ()
    if done.manifest.status != "certified":
        unsaid = Refusal(gate="manifest", reason_class=done.manifest.status, text="the artifact does not say why")
        failed = done.manifest.reasons or (unsaid,)
    yield _check("bytes", "certified", failed, note=f"{done.manifest.status}, level {done.manifest.level}")


def _gates(done: Verification) -> Iterator[Check]:
    reasons = [reason for reason in done.reasons if done.manifest is not None and reason.gate != "performance"]
    by_name: dict[str, list[Refusal]] = {}
    audits = done.result.audits if done.result is not None else ()
    told = "; ".join(audit.text for audit in audits)
    for reason in reasons:
        if reason.gate == "audit" and reason.text in told:
            continue  # it is the word of one of the audits below
        by_name.setdefault(_CHECK_OF.get(reason.gate, reason.gate), []).append(reason)
    ran = set(done.result.checks) | {"rules", "fresh"} if done.result is not None else set()
    why = "level bytes" if done.manifest is None or done.level == "bytes" else "an earlier check refused"
    for name in dict.fromkeys((*GATES, *(done.result.checks if done.result else ()), *by_name)):
        yield _check("accuracy", name, by_name.get(name, ()), skipped="" if name in ran else why)
    for audit in audits:
        own = [reason for reason in reasons if reason.gate == "audit" and reason.text in audit.text]
        unsaid = Refusal(gate="audit", reason_class="refused", text=audit.text)
        yield _check("audit", audit.name, () if audit.passed else own or [unsaid], note=audit.text)


def _performance(done: Verification) -> Iterator[Check]:
    reasons = [reason for reason in done.reasons if reason.gate == "performance"]
    for claim in done.claims:
        name = f"{claim.metric} at {claim.load} against {claim.baseline} ({claim.precision})"
        own = [reason for reason in reasons if reason.text == claim.text]
        skipped = claim.text if claim.state is ClaimState.NOT_MEASURED else ""
        yield _check("performance", name, own, skipped=skipped, note=claim.text)
    if all(claim.state is ClaimState.NOT_MEASURED for claim in done.claims):
        is_run = done.performance not in (ClaimState.NOT_RUN, ClaimState.NOT_COMPARABLE)
        why = f"{done.performance.value} {done.hardware_difference}".strip()
        yield _check("performance", "claim", reasons, skipped="" if is_run else why)


def _check(level: str, name: str, reasons: Sequence[Refusal], *, skipped: str = "", note: str = "") -> Check:
    """Failed where there are reasons, else skipped where there is a word for it, else passed."""
    if reasons:
        return Check(level=level, name=name, state=CheckState.FAILED, reasons=tuple(reasons), note=note)
    if skipped:
        return Check(level=level, name=name, state=CheckState.SKIPPED, note=skipped)
    return Check(level=level, name=name, state=CheckState.PASSED, note=note)
