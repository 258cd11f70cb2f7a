"""`vibeserve verify PATH`: one verdict line, one exit code per outcome, and the same as JSON, JUnit XML and Markdown.

`docs/verify.md` lists the outcomes, `docs/ci.md` how a pipeline uses them.
"""

from __future__ import annotations

import argparse
import json
import re
import shlex
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from vibeserve.arguments import VerbParser, new_file
from vibeserve.artifact.claims import MAX_REGRESSION
from vibeserve.artifact.junit import error_junit, junit_text
from vibeserve.artifact.open import resolve_artifact
from vibeserve.artifact.signature import refuse_absent_list
from vibeserve.artifact.summary import error_summary, summary_text
from vibeserve.artifact.verification import LEVELS, Origin, Verification, verification_data, verify
from vibeserve.core.documents import write_text_atomic
from vibeserve.core.manifest import VerifyResult
from vibeserve.errors import VibeServeError

AGAINST = ("auto", "baseline", "predecessor")


def main(argv: Sequence[str]) -> int:
    """Command line of `vibeserve verify`. Returns 0 when everything holds, 3 when refused or not certified.

    What cannot be judged is raised: `SpecError` (no artifact there), `InfraError` (this machine cannot do it). The
    files that were asked for are written all the same.
    """
    arguments = _parser().parse_args(argv)
    signers = Path(arguments.allowed_signers) if arguments.allowed_signers else None
    refuse_absent_list(signers, is_required=arguments.is_signature_required)
    origin = Origin(
        expect=arguments.expect, allowed_signers=signers, is_signature_required=arguments.is_signature_required
    )
    started_s, command = time.monotonic(), shlex.join(["vibeserve", "verify", *argv])
    try:
        done = verify(
            resolve_artifact(Path(arguments.path)), level=arguments.level, origin=origin,
            max_regression=arguments.max_regression, identity=_identity,
            reverify=lambda known, artifact: _reverify(known, artifact, against=arguments.against),
        )  # fmt: skip
    except VibeServeError as error:
        _write(arguments, junit=error_junit(error), summary=error_summary(error, command=command))
        raise
    seconds = time.monotonic() - started_s
    _write(arguments, junit=junit_text(done, seconds=seconds), summary=summary_text(done, command=command))
    sys.stdout.write(_answer(done, is_json=arguments.is_json))
    return done.exit_code


def _parser() -> VerbParser:
    parser = VerbParser("verify", description="Check an artifact: its bytes, its gates, its measured claim.")
    parser.add_argument("path", metavar="PATH", help="artifact folder, such as artifacts/smollm2_cpu/latest")
    parser.add_argument(
        "--level", choices=LEVELS,
        help="how much is checked; each level includes those before it (default: performance on the certified "
        "hardware, accuracy elsewhere)",
    )  # fmt: skip
    parser.add_argument(
        "--against", choices=AGAINST, default=AGAINST[0],
        help="what level performance measures beside it: the claim's baselines, the packaged predecessor, or (auto) "
        "the baselines where any is installed, else the predecessor",
    )  # fmt: skip
    parser.add_argument(
        "--max-regression", type=_share, default=MAX_REGRESSION, metavar="SHARE",
        help=f"how far the median may lie below the certified one (default {MAX_REGRESSION})",
    )  # fmt: skip
    _add_origin(parser)
    parser.add_argument("--junit", type=new_file, metavar="FILE", help="also write the result as JUnit XML")
    parser.add_argument("--summary", type=new_file, metavar="FILE", help="also write the result as Markdown")
    return parser


def _add_origin(parser: VerbParser) -> None:
    parser.add_argument(
        "--expect", type=_digest, metavar="DIGEST", help="SHA-256 of SHA256SUMS as the artifact's origin published it"
    )
    parser.add_argument(
        "--allowed-signers", metavar="FILE", help="whose signature counts, as ssh-keygen(1) reads it; checks it"
    )
    parser.add_argument(
        "--require-signature", action="store_true", dest="is_signature_required",
        help="refuse an artifact without a valid one",
    )  # fmt: skip


def _write(arguments: argparse.Namespace, *, junit: str, summary: str) -> None:
    if arguments.junit:
        write_text_atomic(Path(arguments.junit), junit)
    if arguments.summary:
        write_text_atomic(Path(arguments.summary), summary)


def _digest(text: str) -> str:
    if not re.fullmatch(r"(?i:sha256:)?[0-9a-fA-F]{64}", text):
        digits = text.lower().removeprefix("sha256:")
        raise argparse.ArgumentTypeError(f"'{text}' is no SHA-256: it has {len(digits)} characters, not 64 hex digits")
    return text


def _share(text: str) -> float:
    value = float(text)
    if not 0.0 <= value < 1.0:
        raise argparse.ArgumentTypeError(f"{text} is not a share from 0 to below 1, such as 0.05")
    return value


def _identity() -> dict[str, Any]:
    from vibeserve import hardware

    return hardware.identity(hardware.probe())


def _reverify(known: Verification, artifact: Path, *, against: str) -> VerifyResult:
    from vibeserve.artifact.open import read_spec
    from vibeserve.artifact.predecessor import check_out_predecessor
    from vibeserve.progress import LineProgress
    from vibeserve.reverification import Against, Request, reverify

    manifest = known.manifest
    assert manifest is not None, "nothing is run of an artifact whose bytes are not in place"
    request = Request(
        level=known.level, against=Against(against), is_vouched=known.is_origin_known,
        find_predecessor=lambda folder: check_out_predecessor(artifact, manifest, destination=folder),
    )  # fmt: skip
    # the answer is on stdout, so that what it does meanwhile is told on stderr
    return reverify(
        artifact / "runtime", spec=read_spec(artifact), manifest=manifest, request=request,
        contract=artifact / "contract", progress=LineProgress(sys.stderr),
    )  # fmt: skip


def _answer(done: Verification, *, is_json: bool) -> str:
    if is_json:
        return json.dumps(verification_data(done), indent=2) + "\n"
    others = done.reasons[1:] if done.manifest is None else ()
    return "".join(f"  {reason.text}\n" for reason in others) + done.line + "\n"
