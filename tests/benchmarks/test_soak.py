"""The soak: what it asks, what it refuses, and a short one of a real runtime."""

from __future__ import annotations

import json
from itertools import islice
from pathlib import Path

import pytest

from benchmarks.soak.command import judged, main
from benchmarks.soak.traffic import KINDS, Tally, requests
from vibeserve.errors import SpecError

FLAT = [(number * 200, 0.5) for number in range(1, 51)]


def tally(num: int = 10_000, *, faults: tuple[str, ...] = ()) -> Tally:
    made = Tally(num_sent=num, faults=list(faults), num_faults=len(faults))
    made.outcomes.update({"streamed": num})
    return made


def judge(made: Tally, samples: list[tuple[int, float]]) -> list[str]:
    return judged(made, samples, name="x", num_requests=10_000, seconds=1.0).problems


def test_prompts_differ_and_every_kind_has_its_turn() -> None:
    drawn = list(islice(requests(), 3 * len(KINDS)))
    assert [name for name, _, _ in drawn[: len(KINDS)]] == [name for name, _, _ in KINDS]
    prompts = [body["prompt"] for _, _, body in drawn if body["prompt"]]
    assert len(set(prompts)) == len(prompts)


def test_a_clean_soak_has_no_problem() -> None:
    assert judge(tally(), FLAT) == []
    # what fills caches in the first tenth is no growth, and little of a small server is no leak
    assert judge(tally(), [(100, 0.1), *FLAT]) == []
    small = [(number * 200, 0.1 + number * 0.0005) for number in range(1, 51)]
    assert judge(tally(), small) == []


def test_what_spoils_a_soak() -> None:
    assert judge(tally(9_000), FLAT) == ["9000 of 10000 requests in the time that there was"]
    assert judge(tally(faults=("whole: status 500: no",)), FLAT) == [
        "1 answers are not as they have to be; whole: status 500: no"
    ]
    leaking = [(number * 200, 0.5 + number * 0.01) for number in range(1, 51)]
    (problem,) = judge(tally(), leaking)
    assert problem.startswith("memory grew by 5")
    assert "at most 10% or 0.05 GiB are allowed" in problem
    # memory that nobody could read is not flat
    (problem,) = judge(tally(), [])
    assert problem.startswith("memory grew by inf")


def test_bad_options_are_refused(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="soak: argument --requests: 0 is no number from 1 on"):
        main(["--requests", "0"])
    with pytest.raises(SpecError, match="is no artifact: there is no such folder"):
        main(["--artifact", str(tmp_path / "gone")])


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("components", ["", "continuous-batching,batched-sampling"])
def test_a_short_soak_of_a_real_runtime(components: str, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--requests", "240", "--concurrency", "24", "--limit-s", "200", "--json"]
    assert main([*words, *(["--components", components] if components else [])]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["num_sent"], found["num_faults"], found["is_flat"]) == (240, 0, True)
    assert set(found["outcomes"]) == {name for name, _, _ in KINDS}
    assert len(found["memory_gib"]) > 20
