"""Parent side of scoring: hand a job to one child with the reference loaded, and read its answer."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from vibeserve.accuracy.documents import Answer, Job, JobKind, Scores, packed
from vibeserve.client.records import to_json
from vibeserve.contract import Record
from vibeserve.core.documents import from_data, write_text_atomic
from vibeserve.errors import ContractError, InfraError
from vibeserve.modalities import BundleRef

TIMEOUT_S = 1800.0
TAIL_LINES = 12


def rescore(
    records: Sequence[Record], *, bundle: BundleRef, num_threads: int, max_replies: int, seed: int, run_dir: Path,
    cpus: Sequence[int] = (),
) -> Scores:  # fmt: skip
    """Distances of up to `max_replies` records (0 = all) from what the f32 reference holds right.

    `cpus`: cores of the child; empty = inherited. The job and the child's log stay in `run_dir`. Raises ContractError
    for what a file of the target does wrong, InfraError when the child fails: a judge that could not run is no score.
    """
    started_s = time.monotonic()
    job = Job(
        bundle=bundle, kind=JobKind.RECORDS, records=tuple(map(packed, records)), seed=seed,
        max_replies=max_replies,
    )  # fmt: skip
    answer = run_child(job, run_dir=run_dir, num_threads=num_threads, cpus=cpus)
    if answer.scores is None:
        raise InfraError("re-scoring answered no scores")
    return replace(answer.scores, wall_s=time.monotonic() - started_s)


def reference_logprobs(
    records: Sequence[Record], *, bundle: BundleRef, num_threads: int, run_dir: Path
) -> list[tuple[float, ...]]:
    """Log-probabilities of every record's served ids under the f32 reference of `bundle`, nats; for text. Raises as
    `rescore` does."""
    job = Job(bundle=bundle, kind=JobKind.EXPECTED, records=tuple(map(packed, records)))
    return list(run_child(job, run_dir=run_dir, num_threads=num_threads).logprobs)


def run_child(
    job: Job, *, run_dir: Path, num_threads: int, cpus: Sequence[int] = (), timeout_s: float = TIMEOUT_S
) -> Answer:
    """The child's answer. ContractError where it reports one; InfraError for one that fails, hangs or says nothing."""
    run_dir.mkdir(parents=True, exist_ok=True)
    path = run_dir / f"{job.kind.value}_job.json"
    # NaN may be part of what a server sent: it is the check's to refuse
    write_text_atomic(path, to_json(job).decode())
    log = run_dir / f"{job.kind.value}.log"
    threads = {name: str(num_threads) for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")}
    environment = {**os.environ, **threads, "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
    argv = [sys.executable, "-m", "vibeserve.accuracy.rescorer", str(path), "--parent", str(os.getpid())]
    argv += ["--cpus", ",".join(map(str, cpus))] if cpus else []
    with log.open("wb") as stream:
        try:
            done = subprocess.run(
                argv, stdout=subprocess.PIPE, stderr=stream, stdin=subprocess.DEVNULL, env=environment,
                timeout=timeout_s, check=False, process_group=0,
            )  # fmt: skip
        except subprocess.TimeoutExpired as error:
            raise InfraError(f"re-scoring did not finish in {timeout_s:.0f} s; log: {log}") from error
    if done.returncode != 0:
        lines = log.read_text(errors="replace").splitlines()[-TAIL_LINES:]
        tail = "\n".join(f"  | {line}" for line in lines)
        raise InfraError(f"re-scoring under the reference failed (exit {done.returncode})\n{tail}")
    answer = _read(done.stdout, log=log)
    if answer.problem is not None:
        problem = answer.problem
        raise ContractError(problem.message, problems=problem.problems, hint=problem.hint)
    return answer


def _read(text: bytes, *, log: Path) -> Answer:
    from dacite import DaciteError

    try:
        return from_data(Answer, json.loads(text))
    except (ValueError, DaciteError) as error:
        raise InfraError(f"re-scoring answered no document; log: {log}") from error
