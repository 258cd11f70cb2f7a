"""Child process of the judge: load a bundle's reference once, score records or faults with it.

`python -m vibeserve.accuracy.rescorer JOB.json` reads a `Job` and prints an `Answer`. What the bundle's files print
goes to stderr: it is never evidence.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from vibeserve.accuracy.documents import Answer, Job, JobKind, Problem, unpacked
from vibeserve.accuracy.scoring import expected_of, score_records
from vibeserve.accuracy.trial import try_out
from vibeserve.core.children import die_with_parent
from vibeserve.core.documents import read_document, to_data
from vibeserve.errors import SpecError
from vibeserve.modalities import Bundle, open_bundle


def main(argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m vibeserve.accuracy.rescorer")
    parser.add_argument("job", type=Path)
    parser.add_argument("--cpus", default="")
    parser.add_argument("--parent", type=int, default=os.getppid(), help="process that this one ends with")
    options = parser.parse_args(argv)
    die_with_parent(options.parent, number=signal.SIGKILL)
    if options.cpus:
        os.sched_setaffinity(0, [int(cpu) for cpu in options.cpus.split(",")])
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    try:
        answer = run_job(read_document(options.job, Job))
    except SpecError as error:
        message = str(error).splitlines()[0]
        answer = Answer(problem=Problem(message=message, problems=error.problems, hint=error.hint))
    with answers:
        json.dump(to_data(answer), answers, allow_nan=False)
    return 0


def run_job(job: Job) -> Answer:
    bundle = open_bundle(job.bundle)
    if job.kind is JobKind.FAULTS:
        tried = try_out(
            bundle, seed=job.seed, num_requests=job.num_requests, only=job.only, device=job.device, dtype=job.dtype
        )
        return Answer(faults=tried)
    if job.kind is JobKind.EXPECTED:
        return Answer(logprobs=_logprobs(bundle, job))
    scores = score_records(
        bundle, unpacked(job.records, bundle=bundle), max_replies=job.max_replies, seed=job.seed,
        load=lambda: bundle.load_reference(device=job.device, dtype=job.dtype),
    )  # fmt: skip
    return Answer(scores=scores)


def _logprobs(bundle: Bundle, job: Job) -> tuple[tuple[float, ...], ...]:
    reference = bundle.load_reference(device=job.device, dtype=job.dtype)
    pairs = [(record.request, record.served) for record in unpacked(job.records, bundle=bundle)]
    return tuple(tuple(found.get("logprobs", ())) for found in expected_of(bundle, reference, pairs))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
