"""Child process: greedy answers of a model in f32, many at a time (`python -m ... MODEL_DIR`).

Reads JSON lines, each a list of `{"prompt", "max_tokens", "ignore_eos"}`, and writes for each a line with the lists of
answer ids, in order. It ends at the end of its input.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from vibeserve.weights import end_token_ids, load_tokenizer

MAX_BATCH = 16
PADDED_MODELS = ("llama", "mistral", "qwen2", "qwen3")
"""`model_type` of models that ignore what the attention mask hides; a recurrent state would take padding in"""


class Answerer:
    """The loaded model."""

    def __init__(self, model_dir: Path) -> None:
        import torch
        from transformers import AutoModelForCausalLM, GenerationConfig

        self._tokenizer = load_tokenizer(model_dir)
        self._end_ids = end_token_ids(model_dir)
        self._model = AutoModelForCausalLM.from_pretrained(model_dir / "f32", dtype=torch.float32).eval()
        # what generate() is not told it takes from here: neither sampling nor the end token may come in that way
        self._model.generation_config = GenerationConfig()
        self._max_batch = MAX_BATCH if self._model.config.model_type in PADDED_MODELS else 1

    def answers(self, asked: Sequence[dict[str, Any]]) -> list[list[int]]:
        """Greedy ids of every request, in order."""
        prompts = [self._tokenizer.encode(request["prompt"]).ids for request in asked]
        found: dict[int, list[int]] = {}
        # of alike lengths together: little is padded, and little made that nobody asked for
        order = sorted(range(len(asked)), key=lambda index: (asked[index]["max_tokens"], len(prompts[index])))
        for batch in _batches(order, size=self._max_batch):
            num_tokens = max(asked[index]["max_tokens"] for index in batch)
            for index, ids in zip(batch, self._greedy([prompts[i] for i in batch], num_tokens), strict=True):
                found[index] = self._cut(ids, asked[index])
        return [found[index] for index in range(len(asked))]

    def _greedy(self, prompts: Sequence[list[int]], num_tokens: int) -> list[list[int]]:
        import torch
        from transformers import GenerationConfig

        width = max(map(len, prompts))
        ids = torch.zeros(len(prompts), width, dtype=torch.long)
        mask = torch.zeros(len(prompts), width, dtype=torch.long)
        for row, prompt in enumerate(prompts):
            ids[row, width - len(prompt) :] = torch.tensor(prompt)
            mask[row, width - len(prompt) :] = 1
        config = GenerationConfig(do_sample=False, max_new_tokens=num_tokens, pad_token_id=0, eos_token_id=None)
        with torch.inference_mode():
            made = self._model.generate(ids, attention_mask=mask, generation_config=config)
        return [row[width:].tolist() for row in made]

    def _cut(self, ids: list[int], request: dict[str, Any]) -> list[int]:
        """As long as asked; with the end token where it is not ignored."""
        kept = ids[: request["max_tokens"]]
        if request["ignore_eos"]:
            return kept
        end = next((index for index, token in enumerate(kept) if token in self._end_ids), len(kept) - 1)
        return kept[: end + 1]


def _batches(order: Sequence[int], *, size: int) -> Iterator[Sequence[int]]:
    for start in range(0, len(order), size):
        yield order[start : start + size]


def main(argv: Sequence[str]) -> int:
    # what libraries print must not be taken for an answer
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    answerer = Answerer(Path(argv[0]))
    for line in sys.stdin:
        answers.write(json.dumps(answerer.answers(json.loads(line))) + "\n")
        answers.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
