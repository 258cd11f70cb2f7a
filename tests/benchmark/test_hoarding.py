"""Schedules of honest servers pass, whatever their bursts; one that saves its output up for the window does not."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from vibeserve.benchmark import Span, held_back
from vibeserve.contract import Record, Request
from vibeserve.core.nouns import Chunk, PromptRequest, Reply

WARMUP_S, WINDOW_S = 2.0, 8.0
SLICE_S = WARMUP_S + WINDOW_S
NUM_SLICES = 7
SPANS = [
    Span(resumed_s=n * SLICE_S, start_s=n * SLICE_S + WARMUP_S, end_s=(n + 1) * SLICE_S) for n in range(NUM_SLICES)
]
Schedule = Callable[[random.Random], Iterator[tuple[float, int]]]
END_S = NUM_SLICES * SLICE_S


def serial(generator: random.Random) -> Iterator[tuple[float, int]]:
    """One request at a time: a prefill without output, then a token after the other."""
    now_s = 0.0
    while now_s < END_S:
        now_s += generator.uniform(0.2, 0.6)
        for _ in range(generator.randint(16, 32)):
            now_s += generator.uniform(0.02, 0.03)
            yield now_s, 1


def batched(generator: random.Random) -> Iterator[tuple[float, int]]:
    """Eight streams step together; whenever one ends, its next prompt holds all of them up."""
    now_s = 0.0
    left = [generator.randint(1, 96) for _ in range(8)]
    while now_s < END_S:
        now_s += 0.1
        left = [each - 1 for each in left]
        yield now_s, 8
        for place, each in enumerate(left):
            if each <= 0:
                left[place] = generator.randint(64, 96)
                now_s += generator.uniform(0.3, 0.8)


def slow_prefills(generator: random.Random) -> Iterator[tuple[float, int]]:
    """Long prompts: silent for seconds, then all streams at once, over and over."""
    now_s = generator.uniform(0, 4)
    while now_s < END_S:
        now_s += generator.uniform(2.0, 3.0)
        for _ in range(20):
            now_s += 0.1
            yield now_s, 4


def speculative(generator: random.Random) -> Iterator[tuple[float, int]]:
    """Tokens come in bursts as drafts are accepted."""
    now_s = 0.0
    while now_s < END_S:
        now_s += generator.uniform(0.05, 0.2)
        yield now_s, generator.choice((1, 1, 2, 5, 8))


def hoarding(schedule: Schedule, *, share: float) -> Schedule:
    """The same server, which shows only a part of what it computes in a warm-up, and the rest right behind it."""

    def held(generator: random.Random) -> Iterator[tuple[float, int]]:
        for at_s, num in schedule(generator):
            into_s = at_s % SLICE_S
            is_held = into_s < WARMUP_S and generator.random() < share
            yield (at_s - into_s + WARMUP_S + 0.1 if is_held else at_s), num

    return held


def replies(schedule: Schedule, *, seed: int) -> list[Reply]:
    request = PromptRequest(request_id="r", prompt="p", num_prompt_tokens=1, max_tokens=1)
    chunks = sorted(
        (Chunk(at_s, "x", (7,) * num) for at_s, num in schedule(random.Random(seed))), key=lambda chunk: chunk.at_s
    )
    return [Reply(request=request, chunks=tuple(chunks))]


@pytest.mark.parametrize("schedule", [serial, batched, slow_prefills, speculative])
def test_honest_schedules_pass(schedule: Schedule) -> None:
    assert [seed for seed in range(40) if held_back(replies(schedule, seed=seed), SPANS, seed=seed)] == []


@pytest.mark.parametrize("schedule", [serial, batched, slow_prefills, speculative])
def test_what_is_saved_up_for_the_window_is_refused(schedule: Schedule) -> None:
    found = [held_back(replies(hoarding(schedule, share=1.0), seed=seed), SPANS, seed=seed) for seed in range(5)]
    assert {(each.gate, each.reason_class) for each in found if each} == {("timing", "held_back")} and all(found)


def test_the_refusal_says_what_came_when() -> None:
    refusal = held_back(replies(hoarding(speculative, share=1.0), seed=1), SPANS, seed=1)
    assert refusal is not None
    assert refusal.text.startswith("0 of ") and "came in the warm-ups, which are 18% of the time" in refusal.text
    assert refusal.text.endswith("above that from resume to pause (7 slices)")


def test_a_half_of_the_warm_up_saved_up_is_refused_too() -> None:
    assert held_back(replies(hoarding(speculative, share=0.5), seed=3), SPANS, seed=3) is not None


def test_what_starts_cold_for_a_moment_is_left_alone() -> None:
    """Nothing in the first 150 ms behind every stop."""

    def cold(generator: random.Random) -> Iterator[tuple[float, int]]:
        return ((at_s, num) for at_s, num in speculative(generator) if at_s % SLICE_S > 0.15)

    assert held_back(replies(cold, seed=1), SPANS, seed=1) is None


def test_too_little_says_nothing() -> None:
    poor = replies(hoarding(speculative, share=1.0), seed=1)
    assert held_back(poor, SPANS[:2], seed=1) is None
    assert held_back([], SPANS, seed=1) is None
    brief = [replace(span, start_s=span.resumed_s + 0.5) for span in SPANS]
    assert held_back(poor, brief, seed=1) is None, "half a second of warm-up hides next to nothing"


def test_replies_of_any_workload_count_when_they_end() -> None:
    """Images that are all finished behind the warm-up."""
    ends = [n * SLICE_S + WARMUP_S + 0.1 + k * 0.9 for n in range(NUM_SLICES) for k in range(8)]
    records = [
        Record(request=Request(request_id=f"r{n}"), output="x", scheduled_s=0, sent_s=0, end_s=end_s)
        for n, end_s in enumerate(ends)
    ]
    assert held_back(records, SPANS, seed=1) is not None
    spread = [replace(record, end_s=END_S * (n + 0.5) / len(records)) for n, record in enumerate(records)]
    assert held_back(spread, SPANS, seed=1) is None
