"""Random predictions through scheduler and engine; the model's next token depends on all that is in the cache."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Sequence as Items
from dataclasses import replace

import pytest
import torch
from edit_scripts import any_prediction, edited
from runtime.drafting import Drafter
from runtime.engine import Engine, Parts
from runtime.interfaces import Batch, ModelConfig, SamplingParams, Sequence
from runtime.kv_cache import KVCache
from runtime.metrics import Metrics
from runtime.parameters import Parameters
from runtime.sampler import Sampler
from runtime.scheduler import Scheduler
from runtime.spans import Spans
from torch import Tensor

VOCAB_SIZE = 48
PARAMETERS = replace(
    Parameters(), max_num_seqs=4, max_context_tokens=256, max_draft_tokens=24, max_step_draft_tokens=64,
    min_draft_chance=0.35, fixed_point_min_rows=32,
)
EOS = 7
NUM_BATCHES = 500
BATCH = 4


def next_token(context: Items[int]) -> int:
    """Of a language in which every token before matters."""
    return hash(tuple(context)) % VOCAB_SIZE


class HashModel:
    """Its cache is a list of ids per slot; a row sees what lies there up to its own position."""

    def __init__(self) -> None:
        self.rows: dict[int, dict[int, int]] = {}
        self.num_steps = 0
        self.num_rows = 0

    def forward(self, batch: Batch, kv_cache: KVCache) -> Tensor:
        self.num_steps += 1
        self.num_rows += batch.num_rows
        ids = batch.token_ids.tolist()
        logits = torch.zeros(len(batch.logits_rows), VOCAB_SIZE)
        wanted = {row: number for number, row in enumerate(batch.logits_rows)}
        for segment in batch.segments:
            assert segment.stop_position <= PARAMETERS.max_context_tokens
            slot = self.rows.setdefault(segment.slot, {})
            for row in range(segment.start_row, segment.stop_row):
                slot[segment.start_position + row - segment.start_row] = ids[row]
            for row in range(segment.start_row, segment.stop_row):
                if row in wanted:
                    position = segment.start_position + row - segment.start_row
                    logits[wanted[row], next_token([slot[index] for index in range(position + 1)])] = 1.0
        return logits


class Quiet:
    is_stopped = False

    def add(self, token_id: int) -> str:
        return "x"

    def flush(self) -> str:
        return ""


class Rig:
    """The engine without its thread."""

    def __init__(self, config: ModelConfig, **changes: object) -> None:
        parameters = replace(PARAMETERS, **changes)  # type: ignore[arg-type]
        config = replace(config, vocab_size=VOCAB_SIZE, eos_token_ids=(EOS,))
        self.model = HashModel()
        kv_cache = KVCache(config, parameters=parameters)
        self.scheduler = Scheduler(kv_cache, parameters=parameters)
        parts = Parts(
            config=config, model=self.model, kv_cache=kv_cache, scheduler=self.scheduler,
            sampler=Sampler(config, parameters=parameters), parameters=parameters,
        )  # fmt: skip
        self.engine = Engine(parts, metrics=Metrics(), spans=Spans())
        self.max_segment_rows = 0

    def run(self, sequences: list[Sequence]) -> None:
        for sequence in sequences:
            self.engine._add(sequence)
        while any(sequence in self.engine._live for sequence in sequences):
            step = self.scheduler.plan()
            assert step is not None
            drafted = [segment.num_rows for segment in step.batch.segments if segment.num_draft_rows]
            self.max_segment_rows = max(self.max_segment_rows, *drafted, 0)
            assert sum(segment.num_draft_rows for segment in step.batch.segments) <= 64
            self.engine._execute(step)
        assert not self.scheduler.drafters


def make(prompt: list[int], prediction: Items[int] = (), *, max_tokens: int = 64, ignore_eos: bool = True) -> Sequence:
    return Sequence(
        request_id="a",
        index=0,
        prompt_token_ids=prompt,
        params=SamplingParams(max_tokens=max_tokens, temperature=0.0, ignore_eos=ignore_eos),
        detokenizer=Quiet(),
        sink=asyncio.Queue(),
        prediction_token_ids=tuple(prediction),
    )


def greedy(prompt: list[int], num_tokens: int) -> list[int]:
    ids = list(prompt)
    for _ in range(num_tokens):
        ids.append(next_token(ids))
    return ids[len(prompt) :]


def answer(generator: random.Random, *, num_tokens: int = 64) -> tuple[list[int], list[int]]:
    """A prompt and its greedy answer."""
    prompt = [generator.randrange(VOCAB_SIZE) for _ in range(generator.randint(1, 12))]
    return prompt, greedy(prompt, num_tokens)


def num_common(first: Items[int], second: Items[int]) -> int:
    return sum((Counter(first) & Counter(second)).values())


def test_no_prediction_changes_a_token(config: ModelConfig) -> None:
    """2,000 scripts, four sequences at a time."""
    generator = random.Random(11)
    rig = Rig(config)
    for _ in range(NUM_BATCHES):
        sequences, expected = [], []
        for _ in range(BATCH):
            prompt, ids = answer(generator, num_tokens=generator.randint(1, 48))
            prediction = any_prediction(ids, generator=generator, vocab_size=VOCAB_SIZE)
            ignore_eos = generator.random() < 0.7
            end = len(ids) if ignore_eos or EOS not in ids else ids.index(EOS) + 1
            sequences.append(make(prompt, prediction, max_tokens=len(ids), ignore_eos=ignore_eos))
            expected.append(ids[:end])
        rig.run(sequences)
        for sequence, ids in zip(sequences, expected, strict=True):
            assert sequence.output_token_ids == ids
            accepted = sequence.num_accepted_prediction_tokens
            assert 0 <= accepted <= num_common(ids, sequence.prediction_token_ids)
    assert rig.max_segment_rows == 25


def test_an_exact_prediction_takes_a_tenth_of_the_steps(config: ModelConfig) -> None:
    generator = random.Random(3)
    for _ in range(20):
        rig = Rig(config)
        prompt, ids = answer(generator, num_tokens=160)
        sequence = make(prompt, ids, max_tokens=160)
        rig.run([sequence])
        assert rig.model.num_steps <= 16
        assert sequence.num_accepted_prediction_tokens == 160


@pytest.mark.parametrize(("share", "most"), [(0.05, 0.25), (0.10, 0.4)])
def test_edits_are_overcome(config: ModelConfig, share: float, most: float) -> None:
    """Steps a token, in the mean of 60 answers."""
    generator = random.Random(5)
    num_steps = num_tokens = 0
    for _ in range(60):
        rig = Rig(config)
        prompt, ids = answer(generator, num_tokens=160)
        prediction = edited(ids, share=share, generator=generator, vocab_size=VOCAB_SIZE)
        rig.run([make(prompt, prediction, max_tokens=160)])
        num_steps += rig.model.num_steps
        num_tokens += 160
    assert num_steps <= most * num_tokens


@pytest.mark.parametrize("kind", ["insert", "delete", "replace", "move"])
def test_a_long_difference_is_overcome(config: ModelConfig, kind: str) -> None:
    """50 tokens that are new, gone or others, or a half that is in another place: some 12 steps beyond the new ones."""
    generator = random.Random(8)
    for _ in range(20):
        rig = Rig(config)
        prompt, ids = answer(generator, num_tokens=180)
        other = [generator.randrange(VOCAB_SIZE) for _ in range(50)]
        prediction, num_new = {
            "insert": ([*ids[:60], *other, *ids[60:]], 0),
            "delete": ([*ids[:60], *ids[110:]], 50),
            "replace": ([*ids[:60], *other, *ids[110:]], 50),
            "move": ([*ids[90:], *ids[:90]], 0),
        }[kind]
        sequence = make(prompt, prediction, max_tokens=180)
        rig.run([sequence])
        assert sequence.output_token_ids == ids
        assert rig.model.num_steps <= num_new + 36
        assert sequence.num_accepted_prediction_tokens >= 110


def test_a_useless_prediction_costs_few_rows_and_no_step(config: ModelConfig) -> None:
    generator = random.Random(9)
    num_rows = num_tokens = 0
    for _ in range(40):
        rig = Rig(config)
        prompt, _ = answer(generator, num_tokens=160)
        rig.run([make(prompt, [generator.randrange(VOCAB_SIZE) for _ in range(160)], max_tokens=160)])
        assert rig.model.num_steps <= 160
        num_rows += rig.model.num_rows - len(prompt)
        num_tokens += 160
    assert num_rows <= 1.2 * num_tokens


def test_a_prediction_that_becomes_useful_is_found_again(config: ModelConfig) -> None:
    generator = random.Random(10)
    rig = Rig(config)
    prompt, ids = answer(generator, num_tokens=230)
    useless = [generator.randrange(VOCAB_SIZE) for _ in range(120)]
    sequence = make(prompt, [*useless, *ids[120:]], max_tokens=230)
    rig.run([sequence])
    assert sequence.output_token_ids == ids
    assert rig.model.num_steps <= 120 + 40


def test_who_samples_or_has_a_grammar_gets_no_guesses(config: ModelConfig) -> None:
    rig = Rig(config)
    sampled = make([1, 2], [3] * 20)
    sampled.params = replace(sampled.params, temperature=0.5)
    constrained = make([1, 2], [3] * 20)
    constrained.constraint = object()  # type: ignore[assignment]
    for sequence in (sampled, constrained):
        rig.scheduler.add(sequence)
    assert not rig.scheduler.drafters


def test_guesses_stay_below_the_rows_of_another_kernel(config: ModelConfig) -> None:
    generator = random.Random(3)
    prompt, ids = answer(generator, num_tokens=100)
    for min_rows, most in ((8, 7), (0, 25)):
        rig = Rig(config, fixed_point_min_rows=min_rows)
        rig.run([make(prompt, ids, max_tokens=100)])
        assert rig.max_segment_rows == most


def test_an_aborted_sequence_is_forgotten(config: ModelConfig) -> None:
    rig = Rig(config)
    prompt, ids = answer(random.Random(1))
    sequence = make(prompt, ids)
    rig.engine._add(sequence)
    for _ in range(3):
        step = rig.scheduler.plan()
        assert step is not None
        rig.engine._execute(step)
    rig.engine._finish(sequence, "abort", "")
    assert not rig.scheduler.drafters
    assert 0 < sequence.num_accepted_prediction_tokens < 64


def test_what_the_prediction_lacks_is_guessed_from_the_prompt_and_the_output() -> None:
    """A function that is copied from the prompt, between the parts that were predicted."""
    copied = list(range(200, 260))
    output = [*range(40), *copied, *range(40, 80), *copied[:30]]
    drafter = Drafter(range(80), prompt=[1, 2, *copied, 3], min_chance=0.35)
    num_steps = place = 0
    while place < len(output):
        drafter.observe(output[:place])
        draft = drafter.propose(24)
        num_right = 0
        while num_right < len(draft) and draft[num_right : num_right + 1] == output[place + num_right :][:1]:
            num_right += 1
        place += num_right + 1
        num_steps += 1
    drafter.observe(output)
    assert num_steps <= 36
    # what came from the prompt is not the prediction's merit
    assert 70 <= drafter.num_accepted <= 80


def test_a_repeated_token_is_searched_in_bounded_time() -> None:
    """Two same tokens in a row are everywhere here; only the nearest places are compared."""
    drafter = Drafter([5] * 50_000, min_chance=0.35)
    output: list[int] = []
    for _ in range(50):
        output += [5, 9]
        drafter.observe(output)
        drafter.propose(24)
    assert len(drafter._anchored((5, 5))) <= 64
