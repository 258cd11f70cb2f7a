"""What `verify` finds out about an artifact: bytes and signature before anything starts, then gates and claim."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from vibeserve.artifact.checks import checks_of
from vibeserve.artifact.claims import (
    MAX_REGRESSION,
    Claim,
    ClaimState,
    claim_refusals,
    judge_claims,
    not_measured,
    overall,
)
from vibeserve.artifact.consistency import contradictions
from vibeserve.artifact.integrity import verify_bytes
from vibeserve.artifact.manifest import read_manifest, to_json_data
from vibeserve.artifact.open import read_golden_seeds
from vibeserve.artifact.pages import page_refusals
from vibeserve.artifact.signature import Signature, SignatureState, check_signature, signature_refusals
from vibeserve.core.environment import comparable
from vibeserve.core.manifest import Manifest, VerifyResult
from vibeserve.core.nouns import Refusal
from vibeserve.errors import InfraError, RefusedError

LEVELS = ("bytes", "accuracy", "performance", "full")
MEASURED = ("performance", "full")
"""levels whose numbers stand for the certified hardware only"""
MAX_FIGURES = 3
"""of a check that is not text's, on the verdict line"""
NO_SIGNATURE = Signature(state=SignatureState.NONE)


@dataclass(frozen=True, kw_only=True)
class Origin:
    """What the verifier knows of who made the artifact."""

    expect: str | None = None
    """SHA-256 of `SHA256SUMS` as its origin published it"""
    allowed_signers: Path | None = None
    is_signature_required: bool = False


@dataclass(frozen=True, kw_only=True)
class Verification:
    """The answer of `verify`. `manifest` is None when the bytes are not the packaged ones: then it proves nothing."""

    level: str
    reasons: tuple[Refusal, ...]
    manifest: Manifest | None = None
    result: VerifyResult | None = None
    claims: tuple[Claim, ...] = ()
    performance: ClaimState = ClaimState.NOT_RUN
    hardware_difference: str = ""
    signature: Signature = NO_SIGNATURE
    has_origin: bool = False
    """the digest of the list was held against the one that the origin published"""
    max_regression: float = MAX_REGRESSION

    @property
    def status(self) -> str:
        if self.reasons or self.manifest is None:
            return "refused"
        return self.manifest.status

    @property
    def exit_code(self) -> int:
        """0 only when everything that was asked for holds and the artifact is certified."""
        return 0 if self.status == "certified" else RefusedError.exit_code

    @property
    def is_origin_known(self) -> bool:
        return self.has_origin or self.signature.state is SignatureState.VALID

    @property
    def line(self) -> str:
        """The one verdict line, numbers included."""
        signature = f"signature: {self.signature.text}"
        if self.manifest is None:
            return f"refused: {_reasons_text(self.reasons)}; {signature}; nothing was started"
        parts = [f"{self.status}: {self.manifest.target} {self.manifest.plan_id} level {self.manifest.level}"]
        parts += [_reasons_text(self.reasons)] if self.reasons else ["bytes ok"]
        if not self.reasons and self.manifest.reasons:
            parts.append(_reasons_text(self.manifest.reasons))
        parts.append(signature)
        if self.result is not None:
            parts += [text for text in (_accuracy_text(self.result.accuracy), self.result.judged_by) if text]
            parts += [f"against {', '.join(self.result.against)}"] if self.result.against else []
        told = (ClaimState.HOLDS, ClaimState.NOT_MEASURED)
        parts += [claim.text for claim in self.claims if claim.state in told]
        return "; ".join([*parts, f"performance: {self._performance_text}"])

    @property
    def _performance_text(self) -> str:
        if self.performance is ClaimState.HOLDS_IN_PART:
            return f"holds where it was measured; not measured again: {', '.join(not_measured(self.claims))}"
        detail = f" ({self.hardware_difference})" if self.hardware_difference else ""
        return f"{self.performance.value}{detail}"


def verify(
    artifact: Path,
    *,
    level: str | None,
    origin: Origin | None = None,
    max_regression: float = MAX_REGRESSION,
    identity: Callable[[], dict[str, Any]],
    reverify: Callable[[Verification, Path], VerifyResult],
) -> Verification:
    """Check the artifact at `level`. `identity` probes this machine; `reverify` (what is known so far, artifact) runs
    the level that is written there. Neither is called for bytes.

    Level None is performance on the certified hardware and accuracy, said to be `not_comparable`, elsewhere. A level
    that measures and was asked for raises InfraError on other hardware, before anything starts.
    """
    done = _check_bytes(artifact, origin=origin or Origin())
    manifest = done.manifest
    if manifest is None or level == "bytes":
        return done
    done = replace(done, max_regression=max_regression)
    difference = hardware_difference(manifest.hardware, identity()) if level != "accuracy" else ""
    if difference and level in MEASURED:
        raise InfraError(
            f"level {level} cannot be judged on this machine: it is not the certified one ({difference}); "
            "nothing was started\nnext: verify it on such a machine, or --level accuracy"
        )
    done = replace(
        done, level="accuracy" if difference else level or "performance", hardware_difference=difference,
        performance=ClaimState.NOT_COMPARABLE if difference else ClaimState.NOT_RUN,
    )  # fmt: skip
    try:
        result = reverify(done, artifact)
    except RefusedError as error:
        return replace(done, reasons=_typed(error))
    reasons = (*result.reasons, *_stale(result, artifact))
    done = replace(done, result=result, reasons=reasons)
    return done if done.level == "accuracy" else _with_claims(done, manifest=manifest, result=result)


def _check_bytes(artifact: Path, *, origin: Origin) -> Verification:
    """Level bytes. The manifest is read only when every byte is in place and the signature does not refuse."""
    refusals = verify_bytes(artifact, expect=origin.expect)
    signature = check_signature(artifact, allowed_signers=origin.allowed_signers)
    refusals += signature_refusals(signature, is_required=origin.is_signature_required)
    manifest = None if refusals else read_manifest(artifact)
    if manifest is not None:
        refusals = [*contradictions(artifact, manifest), *page_refusals(artifact, manifest)]
    done = Verification(
        level="bytes", reasons=tuple(refusals), signature=signature, has_origin=origin.expect is not None
    )
    return done if refusals else replace(done, manifest=manifest)


def _with_claims(done: Verification, *, manifest: Manifest, result: VerifyResult) -> Verification:
    there, here = manifest.environment, result.environment
    certified = [row for row in (*manifest.metrics, *result.recorded) if comparable(row.name, there, here)]
    claims = judge_claims(certified, result.metrics, max_regression=done.max_regression)
    reasons = (*done.reasons, *claim_refusals(claims))
    return replace(done, claims=tuple(claims), performance=overall(claims), reasons=reasons)


def _stale(result: VerifyResult, artifact: Path) -> list[Refusal]:
    """Traffic that the runtime may have been made for proves nothing."""
    known = read_golden_seeds(artifact)
    reused = sorted(name for name, seed in result.seeds.items() if seed in known.values())
    if not reused:
        return []
    text = f"the seeds of {', '.join(reused)} are among the artifact's own: its traffic was known before"
    return [Refusal(gate="fresh", reason_class="known_seeds", text=text)]


def hardware_difference(certified: dict[str, Any], here: dict[str, Any]) -> str:
    """The first facts in which two hardware identities differ, as text; empty when they are the same.

    An artifact that does not say what it was certified on is like no machine.
    """
    certified, here = json.loads(json.dumps(certified)), json.loads(json.dumps(here))
    if not certified:
        return "the artifact does not say on which hardware it was certified"
    names = [name for name in sorted(certified.keys() | here.keys()) if certified.get(name) != here.get(name)]
    facts = [f"{name} {_short(certified.get(name))} there, {_short(here.get(name))} here" for name in names[:2]]
    return "; ".join(facts) + (f" and {len(names) - 2} more" if len(names) > 2 else "")


def verification_data(done: Verification) -> dict[str, Any]:
    """`verify --json`: the manifest's field names; `metrics` and `accuracy` are the re-measured ones, if there are."""
    manifest, result = done.manifest, done.result
    data: dict[str, Any] = {
        "schema_version": 1, "target": "", "plan_id": "", "level": "", "not_run": [], "goals": [], "authorship": [],
        "metrics": [], "accuracy": {}, "judged_by": "", "sandbox_tier": "", "hardware": {}, "candidates_tried": 0,
        "usage": {}, "environment": None, "audits": [],
    }  # fmt: skip
    if manifest is not None:
        certified = to_json_data(manifest)
        data |= {key: certified[key] for key in data}
    if result is not None:
        data |= to_json_data({"not_run": result.not_run, "accuracy": result.accuracy, "usage": result.usage})
        data["sandbox_tier"] = result.sandbox_tier or data["sandbox_tier"]
        data["judged_by"] = result.judged_by or data["judged_by"]
        data["environment"] = to_json_data(result.environment)
        data["audits"] = to_json_data(result.audits)
    is_measured = result is not None and bool(result.metrics)
    if result is not None and is_measured:
        data["metrics"] = to_json_data(result.metrics)
    return data | _answer_data(done) | {"metrics_are": "measured" if is_measured else "certified"}


def _answer_data(done: Verification) -> dict[str, Any]:
    """What only a verification says."""
    reasons = done.reasons or (done.manifest.reasons if done.manifest else ())
    result = done.result
    return {
        "status": done.status,
        "exit_code": done.exit_code,
        "reasons": to_json_data(reasons),
        "verified_level": done.level,
        "performance": done.performance.value,
        "max_regression": done.max_regression,
        "claims": to_json_data(done.claims),
        "against": list(result.against) if result else [],
        "signature": done.signature.text,
        "is_origin_known": done.is_origin_known,
        "fresh": {"seeds": dict(result.seeds) if result else {}, "built": list(result.built) if result else []},
        "checks": to_json_data(checks_of(done)),
        "verdict": done.line,
    }


def _typed(error: RefusedError) -> tuple[Refusal, ...]:
    typed = tuple(reason for reason in error.reasons if isinstance(reason, Refusal))
    return typed or (Refusal(gate="verify", reason_class="refused", text=str(error)),)


def _accuracy_text(figures: dict[str, float]) -> str:
    """The figure of text, or the first ones of another check; empty without any."""
    if "top1_agreement" in figures:
        return f"accuracy top-1 {figures['top1_agreement']:.4f}"
    shown = [f"{name} {value:.4g}" for name, value in list(figures.items())[:MAX_FIGURES]]
    return f"accuracy {', '.join(shown)}" if shown else ""


def _reasons_text(reasons: Sequence[Refusal]) -> str:
    first = f"{reasons[0].gate}/{reasons[0].reason_class}: {reasons[0].text}"
    return first + (f" (and {len(reasons) - 1} more)" if len(reasons) > 1 else "")


def _short(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 40 else text[:37] + "..."
