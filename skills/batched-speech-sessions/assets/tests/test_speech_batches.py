"""Who is in a step, and that speakers who share steps hear their own words."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from conftest import make_speech
from local_server import TRANSCRIPTION, LocalServer, Speaker
from runtime.parameters import Parameters
from runtime.scheduler import Scheduler

CHUNK = 8000


@dataclass
class Waits:
    waiting_since_s: float


@pytest.mark.parametrize(("times", "chosen"), [([3.0], [3.0]), ([3.0, 1.0, 2.0], [1.0, 2.0, 3.0])])
def test_all_who_wait_are_taken_the_longest_first(times: list[float], chosen: list[float]) -> None:
    found = Scheduler(parameters=Parameters()).choose([Waits(each) for each in times])
    assert [each.waiting_since_s for each in found] == chosen


def test_no_more_than_the_parameter_says() -> None:
    most = Parameters().max_batch_sessions
    found = Scheduler(parameters=Parameters()).choose([Waits(float(-number)) for number in range(most + 3)])
    assert [each.waiting_since_s for each in found] == [float(-number) for number in range(most + 2, 2, -1)]


def test_speakers_who_share_steps_hear_their_own_words(server: LocalServer) -> None:
    recordings = [make_speech(1.5, seed=seed) for seed in (61, 62, 63)]
    alone = []
    for samples in recordings:
        with Speaker(server) as speaker:
            speaker.update()
            speaker.append(samples)
            alone.append(speaker.commit()["token_ids"])
    speakers = [Speaker(server).__enter__() for _ in recordings]
    for speaker in speakers:
        speaker.update()
    for place in range(0, 3 * CHUNK, CHUNK):
        for speaker, samples in zip(speakers, recordings, strict=True):
            speaker.append(samples[place : place + CHUNK])
        for speaker in speakers:
            speaker.wait(f"{TRANSCRIPTION}partial")
    together = [speaker.commit()["token_ids"] for speaker in speakers]
    for speaker in speakers:
        speaker.leave()
    assert together == alone
