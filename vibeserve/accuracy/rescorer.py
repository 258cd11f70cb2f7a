"""Child process: score served ids under the f32 reference.

`python -m vibeserve.accuracy.rescorer JOB.json` reads prompts and ids, answers on stdout one entry per reply:
`margins` and `logprobs` (nats, one per id) and `error` ("" when scored). Only this process imports torch.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM

from vibeserve.weights import load_tokenizer

MAX_BATCH_TOKENS = 4096
"""padded tokens per forward: large enough for full GEMM speed, small enough to bound activations"""
MAX_HEAD_ROWS = 512
"""rows per LM-head call: 512 rows of a 49k vocabulary are 100 MB of f32 logits"""


@dataclass(frozen=True)
class ServedSequence:
    """One reply as ids: the prompt's and the served ones, and its place in the job."""

    index: int
    prompt_ids: list[int]
    served_ids: list[int]

    @property
    def num_input(self) -> int:
        # the last served id predicts nothing that was served
        return len(self.prompt_ids) + len(self.served_ids) - 1


def main(argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m vibeserve.accuracy.rescorer")
    parser.add_argument("job", type=Path)
    parser.add_argument("--cpus", default="")
    options = parser.parse_args(argv)
    if options.cpus:
        os.sched_setaffinity(0, [int(cpu) for cpu in options.cpus.split(",")])
    job = json.loads(options.job.read_text(encoding="utf-8"))
    torch.set_num_threads(int(job["num_threads"]))
    json.dump({"schema_version": 1, "replies": score_job(job)}, sys.stdout)
    return 0


def score_job(job: dict[str, Any]) -> list[dict[str, Any]]:
    model_dir = Path(job["model_dir"])
    model = AutoModelForCausalLM.from_pretrained(model_dir / "f32", dtype=torch.float32).eval()
    tokenizer = load_tokenizer(model_dir)
    answers: list[dict[str, Any]] = [{"margins": [], "logprobs": [], "error": ""} for _ in job["replies"]]
    sequences = []
    for index, entry in enumerate(job["replies"]):
        sequence = ServedSequence(index, tokenizer.encode(entry["prompt"]).ids, list(entry["token_ids"]))
        problem = _problem(
            sequence, vocab_size=model.config.vocab_size, max_tokens=model.config.max_position_embeddings
        )
        if problem:
            answers[index]["error"] = problem
        else:
            sequences.append(sequence)
    for batch in _batches(sequences):
        for sequence, margins, logprobs in _score_batch(model, batch):
            if all(map(math.isfinite, (*margins, *logprobs))):
                answers[sequence.index] |= {"margins": margins, "logprobs": logprobs}
            else:
                answers[sequence.index]["error"] = "the reference gave scores that are not numbers"
    return answers


def _problem(sequence: ServedSequence, *, vocab_size: int, max_tokens: int) -> str:
    if not sequence.prompt_ids or not sequence.served_ids:
        return "the prompt or the reply has no tokens"
    if not all(0 <= token < vocab_size for token in sequence.served_ids):
        return "a served id lies outside the vocabulary"
    if sequence.num_input > max_tokens:
        return f"prompt and reply exceed the model's {max_tokens} positions"
    return ""


def _batches(sequences: Sequence[ServedSequence]) -> Iterator[list[ServedSequence]]:
    """Sorted by length, so that little is padded; each batch within `MAX_BATCH_TOKENS` padded tokens."""
    batch: list[ServedSequence] = []
    for sequence in sorted(sequences, key=lambda item: item.num_input):
        if batch and sequence.num_input * (len(batch) + 1) > MAX_BATCH_TOKENS:
            yield batch
            batch = []
        batch.append(sequence)
    if batch:
        yield batch


@torch.inference_mode()
def _score_batch(
    model: Any, batch: Sequence[ServedSequence]
) -> Iterator[tuple[ServedSequence, list[float], list[float]]]:
    """Right-padded causal forward: padding follows every real token, so no mask is needed and none can be wrong."""
    width = max(sequence.num_input for sequence in batch)
    ids = torch.zeros(len(batch), width, dtype=torch.long)
    for row, sequence in enumerate(batch):
        tokens = sequence.prompt_ids + sequence.served_ids[:-1]
        ids[row, : len(tokens)] = torch.tensor(tokens)
    hidden = model.base_model(input_ids=ids, use_cache=False).last_hidden_state
    for row, sequence in enumerate(batch):
        start = len(sequence.prompt_ids) - 1
        margins, logprobs = _score_rows(
            model, hidden[row, start : start + len(sequence.served_ids)], sequence.served_ids
        )
        yield sequence, margins, logprobs


def _score_rows(model: Any, hidden: torch.Tensor, served_ids: Sequence[int]) -> tuple[list[float], list[float]]:
    """Margins and log-probabilities of served ids from their hidden rows [n, hidden_size]."""
    margins: list[float] = []
    logprobs: list[float] = []
    served = torch.tensor(served_ids)
    head = model.get_output_embeddings()
    for start in range(0, len(served_ids), MAX_HEAD_ROWS):
        rows = head(hidden[start : start + MAX_HEAD_ROWS]).float()
        chosen = rows.gather(1, served[start : start + MAX_HEAD_ROWS, None])[:, 0]
        margins += (rows.max(dim=1).values - chosen).tolist()
        logprobs += (chosen - rows.logsumexp(dim=1)).tolist()
    return margins, logprobs


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
