"""Parent side of re-scoring: choose the replies, hand them to one child with the reference loaded, read its answer."""

from __future__ import annotations

import json
import math
import os
import random
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from vibeserve.accuracy.scores import ReplyScores, Scores
from vibeserve.core.documents import write_text_atomic
from vibeserve.core.nouns import Reply
from vibeserve.errors import InfraError

TIMEOUT_S = 1800.0


def rescore(
    replies: Sequence[Reply],
    *,
    model_dir: Path,
    num_threads: int,
    max_replies: int,
    seed: int,
    run_dir: Path,
    cpus: Sequence[int] = (),
) -> Scores:
    """Teacher-force up to `max_replies` replies (0 = all) under the f32 reference on the ids they were served with.

    Cut replies take part with the ids they have; failed ones and cut ones without ids do not. A finished reply without
    ids is listed in `unscored`, which refuses. The sample is drawn by `seed` and holds replies with
    log-probabilities in their declared share, at least one where there is one. `cpus`: cores of the child; empty =
    inherited. The job and the child's log stay in `run_dir`. Raises `InfraError` when the child fails: a judge that
    could not run is never a score.
    """
    offered = [reply for reply in replies if reply.error is None or (reply.error == "cut" and reply.chunks)]
    chosen = _sample(offered, max_replies=max_replies, seed=seed)
    mute = {
        reply.request.request_id: "a reply carries no token ids" for reply in chosen if not reply.token_ids
    }
    scorable = [reply for reply in chosen if reply.token_ids]
    if not scorable:
        return Scores(unscored=mute, num_offered=len(offered))
    started_s = time.monotonic()
    job = _job(scorable, model_dir=model_dir, num_threads=num_threads)
    entries = _run_child(job, run_dir=run_dir, num_threads=num_threads, cpus=cpus)["replies"]
    answered = list(zip(scorable, entries, strict=True))
    return Scores(
        replies=tuple(_reply_scores(reply, entry) for reply, entry in answered if not entry["error"]),
        unscored=mute | {reply.request.request_id: entry["error"] for reply, entry in answered if entry["error"]},
        num_offered=len(offered),
        wall_s=time.monotonic() - started_s,
    )


def _sample(offered: Sequence[Reply], *, max_replies: int, seed: int) -> list[Reply]:
    if not max_replies or len(offered) <= max_replies:
        return list(offered)
    generator = random.Random(f"rescore-{seed}")
    with_logprobs = [reply for reply in offered if reply.request.logprobs]
    without = [reply for reply in offered if not reply.request.logprobs]
    share = round(max_replies * len(with_logprobs) / len(offered))
    num_with = min(len(with_logprobs), max(1, share))
    num_without = min(len(without), max_replies - num_with)
    return generator.sample(with_logprobs, num_with) + generator.sample(without, num_without)


def _job(replies: Sequence[Reply], *, model_dir: Path, num_threads: int) -> dict[str, Any]:
    entries = [{"prompt": reply.request.prompt, "token_ids": list(reply.token_ids)} for reply in replies]
    return {"schema_version": 1, "model_dir": str(model_dir), "num_threads": num_threads, "replies": entries}


def _run_child(job: dict[str, Any], *, run_dir: Path, num_threads: int, cpus: Sequence[int]) -> dict[str, Any]:
    run_dir.mkdir(parents=True, exist_ok=True)
    path = run_dir / "rescore_job.json"
    write_text_atomic(path, json.dumps(job))
    log = run_dir / "rescore.log"
    environment = {
        **os.environ,
        "HF_HUB_OFFLINE": "1",
        "OMP_NUM_THREADS": str(num_threads),
        "TOKENIZERS_PARALLELISM": "false",
    }
    argv = [
        sys.executable,
        "-m",
        "vibeserve.accuracy.rescorer",
        str(path),
        *(["--cpus", ",".join(map(str, cpus))] if cpus else []),
    ]
    with log.open("wb") as stream:
        try:
            done = subprocess.run(
                argv, stdout=subprocess.PIPE, stderr=stream, env=environment, timeout=TIMEOUT_S, check=False
            )
        except subprocess.TimeoutExpired as error:
            raise InfraError(f"re-scoring did not finish in {TIMEOUT_S:.0f} s; log: {log}") from error
    if done.returncode != 0:
        tail = "\n".join(f"  | {line}" for line in log.read_text(errors="replace").splitlines()[-12:])
        raise InfraError(f"re-scoring under the reference failed (exit {done.returncode})\n{tail}")
    try:
        answer: dict[str, Any] = json.loads(done.stdout)
    except ValueError as error:
        raise InfraError(f"re-scoring answered no JSON; log: {log}") from error
    return answer


def _reply_scores(reply: Reply, entry: dict[str, Any]) -> ReplyScores:
    return ReplyScores(
        request_id=reply.request.request_id,
        margins=tuple(entry["margins"]),
        logprobs=tuple(entry["logprobs"]),
        # what is not a number is as good as missing, and documents hold no NaN
        served_logprobs=reply.token_logprobs if all(map(math.isfinite, reply.token_logprobs)) else (),
        asked_logprobs=reply.request.logprobs > 0,
    )
