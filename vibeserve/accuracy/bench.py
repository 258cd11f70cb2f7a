"""`invoke bench-accuracy`: what the accuracy gate of text finds, what it misses, and what it refuses of the right ones.

`python -m vibeserve.accuracy.bench --target tiny_cpu` serves planted faults and admissible precisions with a
transformers model, judges them as servers are judged, and prints detection, false refusals and ROC. Deterministic by
`--seed` on one machine. Of the package this program alone knows a modality.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from vibeserve.accuracy.distributions import compare_distributions
from vibeserve.accuracy.sampling_study import sampling_rows
from vibeserve.accuracy.scoring import score_records
from vibeserve.accuracy.study import Design, Served, Study, make_study
from vibeserve.accuracy.study_text import render
from vibeserve.config import compose_spec
from vibeserve.contract import Pool
from vibeserve.core.documents import finite_data, to_data
from vibeserve.core.nouns import PromptRequest, Reply
from vibeserve.core.paths import cache_dir
from vibeserve.modalities import Bundle, bundle_ref, open_bundle
from vibeserve.modalities.text.faults_planted import Kind, Plant, decode, planted, plants
from vibeserve.spec import Workload
from vibeserve.weights import load_tokenizer, materialise
from vibeserve.workloads import request_stream

if TYPE_CHECKING:
    from tokenizers import Tokenizer

FIXED_TEXTS = 2
FIXED_TEXT_TOKENS = 128
"""of one text whose whole distributions are compared"""
NUM_SAMPLED_PROMPTS = 3
"""whose next token is drawn in many ways"""


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """Of a study that takes a minute on the tiny model and some minutes on the real one, on two cores."""

    num_replies: int
    prompt_tokens: int
    output_tokens: int
    num_trials: int


SIZES = {
    "tiny_cpu": Sizes(num_replies=96, prompt_tokens=40, output_tokens=32, num_trials=40),
    "smollm2_cpu": Sizes(num_replies=16, prompt_tokens=32, output_tokens=32, num_trials=40),
}
"""target -> sizes: the targets whose weights are here without a hub"""


def main(argv: Sequence[str]) -> int:
    options = _parse(argv)
    sizes = SIZES[options.target]
    sizes = replace(
        sizes, num_replies=options.replies or sizes.num_replies, output_tokens=options.tokens or sizes.output_tokens,
        num_trials=options.trials or sizes.num_trials,
    )  # fmt: skip
    torch.set_num_threads(options.threads)
    study = run_study(options.target, sizes=sizes, seed=options.seed, only=options.only)
    text = json.dumps(finite_data(to_data(study)), indent=2) if options.json else render(study)
    sys.stdout.write(text + "\n")
    return 0


def _parse(argv: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="invoke bench-accuracy", description=__doc__.partition("\n")[0])
    parser.add_argument("--target", choices=sorted(SIZES), default="tiny_cpu")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--replies", type=int, default=0, help="of each plant; 0 = the target's own number")
    parser.add_argument("--tokens", type=int, default=0, help="of each reply; 0 = the target's own number")
    parser.add_argument("--trials", type=int, default=0, help="of each plant; 0 = the target's own number")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--only", nargs="*", default=[], help="plants by name; the honest ones are always served")
    parser.add_argument("--json", action="store_true", help="the document instead of tables")
    return parser.parse_args(argv)


def run_study(target: str, *, sizes: Sizes, seed: int, only: Sequence[str] = ()) -> Study:
    """Serve, score, judge and compare everything that there is for `target`."""
    started_s = time.monotonic()
    spec = compose_spec([f"+target={target}"])
    bundle = open_bundle(bundle_ref(spec, model_dir=materialise(spec.model, cache=cache_dir()).path))
    bench = Bench(bundle, sizes=sizes, seed=seed, has_packed_q4_1="Q4_1" in spec.model.source.file)
    served = []
    for plant in bench.plants(only):
        served.append(bench.serve(plant))
        sys.stderr.write(f"{plant.name}: {served[-1].seconds:.0f} s\n")
    sampling_s = time.monotonic()
    sampling = sampling_rows(bench.next_logprobs(), seed=seed)
    sampling_s = time.monotonic() - sampling_s
    design = Design(trial_replies=spec.evaluation.num_rescored, num_trials=sizes.num_trials, seed=seed)
    study = make_study(bundle, served, target=target, design=design, num_tokens=sizes.output_tokens, sampling=sampling)
    return replace(study, sampling_seconds=round(sampling_s, 1), wall_s=round(time.monotonic() - started_s, 1))


class Bench:
    """The model that is damaged, and the reference that scores what it serves."""

    def __init__(self, bundle: Bundle, *, sizes: Sizes, seed: int, has_packed_q4_1: bool) -> None:
        from transformers import AutoModelForCausalLM

        folder = Path(bundle.ref.context.model_dir)
        self._bundle = bundle
        self._sizes = sizes
        self._seed = seed
        self._has_packed_q4_1 = has_packed_q4_1
        self._tokenizer: Tokenizer = load_tokenizer(folder)
        self._model = AutoModelForCausalLM.from_pretrained(folder / "f32", dtype=torch.float32).eval()
        self._reference = bundle.load_reference(device="cpu", dtype="float32")
        self._requests = self._stream(
            sizes.num_replies, prompt_tokens=sizes.prompt_tokens, output_tokens=sizes.output_tokens
        )
        self._texts = self._encoded(self._stream(FIXED_TEXTS, prompt_tokens=FIXED_TEXT_TOKENS, output_tokens=1))
        self._right = self._logits()

    def plants(self, only: Sequence[str]) -> list[Plant]:
        known = plants(num_layers=len(self._model.model.layers), has_packed_q4_1=self._has_packed_q4_1)
        return [plant for plant in known if not only or plant.kind is Kind.HONEST or plant.name in only]

    def serve(self, plant: Plant) -> Served:
        """Replies of the damaged model, scored by the reference."""
        started_s = time.monotonic()
        with planted(self._model, plant, seed=self._seed):
            ids, logprobs = decode(
                self._model, self._encoded(self._requests), num_tokens=self._sizes.output_tokens,
                how=plant.decoding, seed=self._seed,
            )  # fmt: skip
            component = self._component() if plant.is_in_forward else {}
        records = [
            Reply.of_output(request, {"token_ids": row, "text": self._tokenizer.decode(row), "logprobs": values})
            for request, row, values in zip(self._requests, ids, logprobs, strict=True)
        ]
        scores = score_records(self._bundle, records, load=lambda: self._reference, max_replies=0, seed=self._seed)
        return Served(
            name=plant.name, family=plant.family, is_wrong=plant.kind is Kind.FAULT, strength=plant.strength,
            replies=scores.replies, component=component, seconds=round(time.monotonic() - started_s, 1),
        )  # fmt: skip

    def next_logprobs(self) -> list[list[float]]:
        """The reference's distributions of the next token after some prompts."""
        reference: Any = self._reference
        return [reference.next_logprobs(ids) for ids in self._encoded(self._requests[:NUM_SAMPLED_PROMPTS])]

    def _stream(self, num: int, *, prompt_tokens: int, output_tokens: int) -> list[PromptRequest]:
        """Requests of one length each way, all with log-probabilities: a trial chooses whose it sees."""
        workload = Workload(
            kind="chat", prompt_tokens_min=prompt_tokens, prompt_tokens_max=prompt_tokens,
            output_tokens_min=output_tokens, output_tokens_max=output_tokens,
        )  # fmt: skip
        stream = request_stream(
            workload, tokenizer=self._tokenizer, pool=Pool.visible, seed=self._seed, logprobs_share=1
        )
        return list(islice(stream, num))

    def _encoded(self, requests: Sequence[PromptRequest]) -> list[list[int]]:
        return [self._tokenizer.encode(request.prompt).ids for request in requests]

    def _component(self) -> dict[str, float]:
        """Whole distributions on fixed text."""
        next_ids = [token for ids in self._texts for token in ids[1:]]
        return compare_distributions(self._right, self._logits(), next_ids)

    @torch.inference_mode()
    def _logits(self) -> torch.Tensor:
        """[positions of all texts but the last of each, vocabulary]"""
        rows: torch.Tensor = self._model(input_ids=torch.tensor(self._texts), use_cache=False).logits[:, :-1]
        return rows.flatten(0, 1)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
