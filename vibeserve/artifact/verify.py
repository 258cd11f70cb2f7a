"""`vibeserve verify PATH`: bytes first, before anything starts; then gates and measurement again; one verdict line."""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from vibeserve.arguments import VerbParser
from vibeserve.artifact.claims import MAX_REGRESSION, Claim, ClaimState, claim_refusals, judge_claims, overall
from vibeserve.artifact.integrity import verify_bytes
from vibeserve.artifact.junit import write_junit
from vibeserve.artifact.manifest import read_manifest, to_json_data
from vibeserve.artifact.open import resolve_artifact
from vibeserve.core.manifest import Manifest, VerifyResult
from vibeserve.core.nouns import Refusal
from vibeserve.errors import RefusedError

LEVELS = ("bytes", "accuracy", "performance", "full")
DEFAULT_LEVEL = "performance"
MAX_FIGURES = 3
"""of a check that is not text's, on the verdict line"""

Reverify = Callable[[Path, str], VerifyResult]
"""(artifact, level accuracy | performance | full) -> what was found"""


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
    def line(self) -> str:
        """The one verdict line, numbers included."""
        if self.manifest is None:
            return f"refused: {_reasons_text(self.reasons)}; nothing was started"
        parts = [f"{self.status}: {self.manifest.target} {self.manifest.plan_id} level {self.manifest.level}"]
        parts += [_reasons_text(self.reasons)] if self.reasons else ["bytes ok"]
        if not self.reasons and self.manifest.reasons:
            parts.append(_reasons_text(self.manifest.reasons))
        if self.result is not None:
            parts += [text for text in (_accuracy_text(self.result.accuracy), self.result.judged_by) if text]
        parts += [claim.text for claim in self.claims if claim.state is ClaimState.HOLDS]
        detail = f" ({self.hardware_difference})" if self.hardware_difference else ""
        parts.append(f"performance: {self.performance.value}{detail}")
        return "; ".join(parts)


def verify(
    artifact: Path,
    *,
    level: str,
    expect: str | None = None,
    max_regression: float = MAX_REGRESSION,
    identity: Callable[[], dict[str, Any]],
    reverify: Reverify,
) -> Verification:
    """Check the artifact at `level`. `identity` probes this machine, `reverify` runs it; neither is called for bytes.

    On other hardware than the certified one the level falls to accuracy and the answer says `not_comparable`.
    """
    refusals = verify_bytes(artifact, expect=expect)
    if refusals:
        return Verification(level="bytes", reasons=tuple(refusals))
    manifest = read_manifest(artifact)
    if level == "bytes":
        return Verification(level="bytes", reasons=(), manifest=manifest)
    difference = hardware_difference(manifest.hardware, identity()) if level != "accuracy" else ""
    done = Verification(
        level="accuracy" if difference else level, reasons=(), manifest=manifest, hardware_difference=difference,
        performance=ClaimState.NOT_COMPARABLE if difference else ClaimState.NOT_RUN,
    )  # fmt: skip
    try:
        result = reverify(artifact, done.level)
    except RefusedError as error:
        return replace(done, reasons=_typed(error))
    done = replace(done, result=result, reasons=result.reasons)
    if done.level == "accuracy":
        return done
    claims = judge_claims(manifest.metrics, result.metrics, max_regression=max_regression)
    reasons = (*result.reasons, *claim_refusals(claims))
    return replace(done, claims=tuple(claims), performance=overall(claims), reasons=reasons)


def hardware_difference(certified: dict[str, Any], here: dict[str, Any]) -> str:
    """The first facts in which two hardware identities differ, as text; empty when they are the same."""
    certified, here = json.loads(json.dumps(certified)), json.loads(json.dumps(here))
    names = [name for name in sorted(certified.keys() | here.keys()) if certified.get(name) != here.get(name)]
    facts = [f"{name} {_short(certified.get(name))} there, {_short(here.get(name))} here" for name in names[:2]]
    return "; ".join(facts) + (f" and {len(names) - 2} more" if len(names) > 2 else "")


def verification_data(done: Verification) -> dict[str, Any]:
    """`verify --json`: the manifest's field names; `metrics` and `accuracy` are the re-measured ones, if there are."""
    manifest = done.manifest
    data: dict[str, Any] = {
        "schema_version": 1, "target": "", "plan_id": "", "level": "", "not_run": [], "goals": [], "authorship": [],
        "metrics": [], "accuracy": {}, "judged_by": "", "sandbox_tier": "", "hardware": {}, "candidates_tried": 0,
        "usage": {},
    }  # fmt: skip
    if manifest is not None:
        certified = to_json_data(manifest)
        data |= {key: certified[key] for key in data}
    if done.result is not None:
        data |= to_json_data(
            {"not_run": done.result.not_run, "accuracy": done.result.accuracy, "usage": done.result.usage}
        )
        data["sandbox_tier"] = done.result.sandbox_tier or data["sandbox_tier"]
        data["judged_by"] = done.result.judged_by or data["judged_by"]
    is_measured = done.result is not None and bool(done.result.metrics)
    if done.result is not None and is_measured:
        data["metrics"] = to_json_data(done.result.metrics)
    reasons = done.reasons or (manifest.reasons if manifest else ())
    return data | {
        "status": done.status,
        "reasons": to_json_data(reasons),
        "verified_level": done.level,
        "metrics_are": "measured" if is_measured else "certified",
        "performance": done.performance.value,
        "claims": to_json_data(done.claims),
        "verdict": done.line,
    }


def main(argv: Sequence[str]) -> int:
    """Command line of `vibeserve verify`. Returns 0 when everything holds, 3 when refused or not certified.

    What cannot be judged is raised: `SpecError` (no artifact there), `InfraError` (the machine failed).
    """
    arguments = _parser().parse_args(argv)
    done = verify(
        resolve_artifact(Path(arguments.path)), level=arguments.level, expect=arguments.expect,
        max_regression=arguments.max_regression, identity=_identity,
        reverify=lambda artifact, level: _reverify(artifact, level, is_vouched=arguments.expect is not None),
    )  # fmt: skip
    if arguments.junit:
        write_junit(Path(arguments.junit), done)
    sys.stdout.write(_answer(done, is_json=arguments.is_json))
    return done.exit_code


def _parser() -> VerbParser:
    parser = VerbParser("verify", description="Check an artifact: its bytes, its gates, its measured claim.")
    parser.add_argument("path", metavar="PATH", help="artifact folder, such as artifacts/smollm2_cpu/latest")
    parser.add_argument(
        "--level", choices=LEVELS, default=DEFAULT_LEVEL,
        help=f"how much is checked; each level includes those before it (default {DEFAULT_LEVEL})",
    )  # fmt: skip
    parser.add_argument(
        "--expect", type=_digest, metavar="DIGEST", help="SHA-256 of SHA256SUMS as the artifact's origin published it"
    )
    parser.add_argument(
        "--max-regression", type=_share, default=MAX_REGRESSION, metavar="SHARE",
        help=f"how far the median may lie below the certified lower bound (default {MAX_REGRESSION})",
    )  # fmt: skip
    parser.add_argument("--junit", type=_new_file, metavar="FILE", help="also write the result as JUnit XML")
    return parser


def _digest(text: str) -> str:
    if not re.fullmatch(r"(?i:sha256:)?[0-9a-fA-F]{64}", text):
        digits = text.lower().removeprefix("sha256:")
        raise argparse.ArgumentTypeError(f"'{text}' is no SHA-256: it has {len(digits)} characters, not 64 hex digits")
    return text


def _new_file(text: str) -> str:
    path = Path(text)
    if path.is_dir() or not path.parent.is_dir():
        why = f"{path} is a folder" if path.is_dir() else f"there is no folder {path.parent}"
        raise argparse.ArgumentTypeError(f"cannot write {path}: {why}")
    return text


def _share(text: str) -> float:
    value = float(text)
    if not 0.0 <= value < 1.0:
        raise argparse.ArgumentTypeError(f"{text} is not a share from 0 to below 1, such as 0.05")
    return value


def _identity() -> dict[str, Any]:
    from vibeserve import hardware

    return hardware.identity(hardware.probe())


def _reverify(artifact: Path, level: str, *, is_vouched: bool) -> VerifyResult:
    from vibeserve.artifact.open import read_spec
    from vibeserve.progress import LineProgress
    from vibeserve.reverification import reverify

    # the answer is on stdout, so that what it does meanwhile is told on stderr
    return reverify(
        artifact / "runtime", spec=read_spec(artifact), manifest=read_manifest(artifact), level=level,
        progress=LineProgress(sys.stderr), contract=artifact / "contract", is_vouched=is_vouched,
    )  # fmt: skip


def _answer(done: Verification, *, is_json: bool) -> str:
    if is_json:
        return json.dumps(verification_data(done), indent=2) + "\n"
    others = done.reasons[1:] if done.manifest is None else ()
    return "".join(f"  {reason.text}\n" for reason in others) + done.line + "\n"


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
