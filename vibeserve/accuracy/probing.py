"""Parent side of the probes: start the bundle's suite beside the server, read its report, refuse by what failed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from vibeserve.core.documents import from_data, write_document
from vibeserve.core.nouns import Refusal
from vibeserve.errors import ContractError, InfraError
from vibeserve.modalities import Bundle
from vibeserve.modalities.probes import ProbeJob, ProbeReport, ProbeSuite

GATE = "probe"
ANY_WORKLOAD = ProbeSuite(
    program="vibeserve.accuracy.generic_probes",
    checks=(
        "health",
        "live",
        "metrics",
        "models",
        "answers",
        "a_b_a",
        "concurrent",
        "disconnect",
        "bad_request",
        "unknown_route",
        "request_id",
    ),
)
"""for bundles whose modality brings no probes of its own"""
GRACE_S = 90.0
"""beyond the child's own deadline: imports and one last request"""


def suite_of(bundle: Bundle) -> ProbeSuite:
    """The probes that apply to servers of this bundle."""
    return bundle.probes or ANY_WORKLOAD


def probe_server(
    base_url: str,
    *,
    bundle: Bundle,
    seed: int,
    run_dir: Path,
    join: Sequence[str] = (),
    timeout_s: float = 240.0,
    is_thorough: bool = False,
) -> ProbeReport:
    """Probe the API at `base_url` (with or without `/v1`) in a child process.

    `join` is a command prefix that enters the server's network namespace, `is_thorough`: as a certification asks. A
    server that hangs fails the checks that are left. ContractError for what a file of the target does wrong, InfraError
    for a child that could not do its work.
    """
    run_dir.mkdir(parents=True, exist_ok=True)
    job = run_dir / "probe_job.json"
    asked = ProbeJob(
        base_url=base_url, bundle=bundle.ref, seed=seed, timeout_s=timeout_s, is_thorough=is_thorough
    )  # fmt: skip
    write_document(job, asked)
    argv = [*join, sys.executable, "-m", suite_of(bundle).program, str(job)]
    log = run_dir / "probes.log"
    environment = {**os.environ, "TOKENIZERS_PARALLELISM": "false"}
    with log.open("wb") as stream:
        try:
            done = subprocess.run(
                argv, stdout=subprocess.PIPE, stderr=stream, env=environment, timeout=timeout_s + GRACE_S, check=False,
                process_group=0,
            )  # fmt: skip
        except subprocess.TimeoutExpired as error:
            raise InfraError(f"the probes did not end in {timeout_s + GRACE_S:.0f} s; log: {log}") from error
    if done.returncode != 0:
        tail = "\n".join(f"  | {line}" for line in log.read_text(errors="replace").splitlines()[-12:])
        raise InfraError(f"the probes could not run (exit {done.returncode})\n{tail}")
    report = read_probe_report(done.stdout.decode(errors="replace"))
    if report.problem:
        raise ContractError(report.problem)
    return report


def read_probe_report(text: str) -> ProbeReport:
    """Parse what the child wrote; `InfraError` when it is no report."""
    from dacite import DaciteError

    try:
        return from_data(ProbeReport, json.loads(text))
    except (ValueError, DaciteError) as error:
        raise InfraError(f"the probes answered no report: {error}") from error


def not_probed(report: ProbeReport) -> tuple[str, ...]:
    """What the probes could not look at of this model or server; each once."""
    return tuple(dict.fromkeys(check.not_run for check in report.checks if check.not_run))


def probe_refusals(report: ProbeReport, *, suite: ProbeSuite) -> list[Refusal]:
    """One refusal per failed or missing check, of gate `probe`; the class is the check's name."""
    found = {check.name: check for check in report.checks}
    refusals = []
    for name in suite.checks:
        check = found.get(name)
        if check is None:
            refusals.append(Refusal(gate=GATE, reason_class=name, text="the check did not run"))
        elif not check.ok:
            refusals.append(Refusal(gate=GATE, reason_class=name, text=check.detail or "failed"))
    return refusals
