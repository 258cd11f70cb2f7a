"""Parent side of the probes: start the child beside the server, read its report, turn what failed into refusals."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from vibeserve.core.documents import from_data
from vibeserve.core.nouns import Refusal
from vibeserve.errors import InfraError

GATE = "probe"
CHECKS = (
    "health",
    "live",
    "metrics",
    "models",
    "completion",
    "stream_equals_whole",
    "max_tokens",
    "token_id_prompt",
    "stop_string",
    "chat",
    "chat_stream_equals_whole",
    "seeded_sampling",
    "top_p",
    "logprobs",
    "long_prompt",
    "prompt_start_matters",
    "a_b_a",
    "disconnect",
    "bad_request",
    "unknown_model",
    "request_id",
    "json_schema",
)
"""every probe, in the order in which they run; a report that lacks one is refused"""
GRACE_S = 90.0
"""beyond the child's own deadline: imports and one last request"""


@dataclass(frozen=True, kw_only=True)
class ProbeCheck:
    name: str
    ok: bool
    detail: str = ""
    """why it failed; counts and classes only, never prompt text"""
    wall_s: float = 0.0


@dataclass(frozen=True, kw_only=True)
class ProbeReport:
    """Document: what the probes found."""

    checks: tuple[ProbeCheck, ...] = ()
    schema_version: int = 1


def probe_argv(base_url: str, *, model_dir: Path, seed: int, timeout_s: float) -> list[str]:
    """Command line of the child; it reads only the tokenizer from `model_dir` and writes a `ProbeReport` to stdout."""
    options = [
        "--base-url",
        base_url,
        "--model-dir",
        str(model_dir),
        "--seed",
        str(seed),
        "--timeout-s",
        f"{timeout_s:g}",
    ]
    return [sys.executable, "-m", "vibeserve.accuracy.probes", *options]


def probe_server(
    base_url: str, *, model_dir: Path, seed: int, run_dir: Path, join: Sequence[str] = (), timeout_s: float = 240.0
) -> ProbeReport:
    """Probe the API at `base_url` (with or without `/v1`) with the stock `openai` client, in a child process.

    `join` is a command prefix that enters the server's network namespace. A server that hangs fails the checks that
    are left; `InfraError` is only for a child that could not do its work.
    """
    run_dir.mkdir(parents=True, exist_ok=True)
    argv = [*join, *probe_argv(base_url, model_dir=model_dir, seed=seed, timeout_s=timeout_s)]
    log = run_dir / "probes.log"
    environment = {**os.environ, "TOKENIZERS_PARALLELISM": "false"}
    with log.open("wb") as stream:
        try:
            done = subprocess.run(
                argv, stdout=subprocess.PIPE, stderr=stream, env=environment, timeout=timeout_s + GRACE_S, check=False
            )
        except subprocess.TimeoutExpired as error:
            raise InfraError(f"the probes did not end in {timeout_s + GRACE_S:.0f} s; log: {log}") from error
    if done.returncode != 0:
        tail = "\n".join(f"  | {line}" for line in log.read_text(errors="replace").splitlines()[-12:])
        raise InfraError(f"the probes could not run (exit {done.returncode})\n{tail}")
    return read_probe_report(done.stdout.decode(errors="replace"))


def read_probe_report(text: str) -> ProbeReport:
    """Parse what the child wrote; `InfraError` when it is no report."""
    from dacite import DaciteError

    try:
        return from_data(ProbeReport, json.loads(text))
    except (ValueError, DaciteError) as error:
        raise InfraError(f"the probes answered no report: {error}") from error


def probe_refusals(report: ProbeReport) -> list[Refusal]:
    """One refusal per failed or missing check, of gate `probe`; the class is the check's name."""
    found = {check.name: check for check in report.checks}
    refusals = []
    for name in CHECKS:
        check = found.get(name)
        if check is None:
            refusals.append(Refusal(gate=GATE, reason_class=name, text="the check did not run"))
        elif not check.ok:
            refusals.append(Refusal(gate=GATE, reason_class=name, text=check.detail or "failed"))
    return refusals
