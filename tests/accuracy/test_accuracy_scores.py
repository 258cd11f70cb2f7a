from __future__ import annotations

import math

import pytest

from vibeserve.accuracy import ReplyScores, Scores, accuracy_refusals
from vibeserve.accuracy.scores import merge, nearest_rank
from vibeserve.spec import Tolerances

WITHOUT_LOGPROBS = Tolerances(logprob_share=0)


def scores(*margins: tuple[float, ...], **changes: object) -> Scores:
    replies = tuple(
        ReplyScores(request_id=f"r{number}", margins=row, logprobs=tuple(-0.5 for _ in row))
        for number, row in enumerate(margins)
    )
    return Scores(replies=replies, num_offered=len(replies), **changes)  # type: ignore[arg-type]


def classes(value: Scores, tolerances: Tolerances = WITHOUT_LOGPROBS) -> list[str]:
    return [refusal.reason_class for refusal in accuracy_refusals(value, tolerances=tolerances)[0]]


def test_agreement_at_the_limit_passes_and_one_below_is_refused() -> None:
    at_limit = scores(tuple([0.1] * 3 + [0.0] * 97))
    assert classes(at_limit) == []
    below = scores(tuple([0.1] * 4 + [0.0] * 96))
    refusals, figures = accuracy_refusals(below, tolerances=WITHOUT_LOGPROBS)
    assert [refusal.text for refusal in refusals] == ["top-1 agreement 0.9600, at least 0.97 is required (100 tokens)"]
    assert figures["num_disagreements"] == 4 and figures["num_tokens"] == 100 and figures["num_replies"] == 1


def test_one_far_disagreement_is_refused_where_none_is_allowed() -> None:
    strict = Tolerances(logprob_share=0, far_disagreement_share_max=0.0)
    value = scores(tuple([0.25] + [0.0] * 999))
    refusals, figures = accuracy_refusals(value, tolerances=strict)
    assert [refusal.reason_class for refusal in refusals] == ["wrong_tokens"]
    assert "1 of 1 disagreements lie 0.25 nats or more below the reference's best, the worst 0.250" in refusals[0].text
    assert figures["max_disagreement_margin"] == 0.25
    assert classes(scores(tuple([0.2499] + [0.0] * 999)), strict) == []


def test_a_declared_share_of_far_disagreements_is_allowed_below_twice_the_margin() -> None:
    tolerances = WITHOUT_LOGPROBS
    assert classes(scores(tuple([0.3] + [0.0] * 99)), tolerances) == []
    assert classes(scores(tuple([0.3] * 2 + [0.0] * 998)), tolerances) == ["wrong_tokens"]
    assert classes(scores(tuple([0.3] * 2 + [0.0] * 1998)), tolerances) == []
    assert classes(scores(tuple([0.5] + [0.0] * 1999)), tolerances) == ["wrong_tokens"]


def test_mean_margin_is_limited() -> None:
    assert classes(scores(tuple([0.2] * 3 + [0.0] * 97)), Tolerances(logprob_share=0, mean_margin_max_nats=0.005)) == [
        "wrong_tokens"
    ]


def test_wrong_first_tokens_are_named_as_such() -> None:
    replies = [(3.0, *([0.0] * 40)) for _ in range(8)]
    assert "fake_first_token" in classes(scores(*replies))
    assert "fake_first_token" not in classes(scores(*[(3.0,) * 41 for _ in range(8)]))


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (Scores(), "missing_scores"),
        (scores((0.0,), unscored={"r9": "a finished reply carries no token ids"}), "missing_ids"),
        (scores((0.0, math.nan)), "missing_scores"),
        (Scores(replies=(ReplyScores(request_id="r", margins=(0.0, 0.0), logprobs=(-1.0,)),)), "missing_scores"),
    ],
    ids=["nothing", "unscored reply", "not a number", "lengths differ"],
)
def test_missing_data_refuses(value: Scores, expected: str) -> None:
    assert expected in classes(value)


def with_logprobs(*differences: float) -> Scores:
    reply = ReplyScores(
        request_id="r",
        margins=tuple(0.0 for _ in differences),
        logprobs=tuple(-1.0 for _ in differences),
        served_logprobs=tuple(-1.0 + difference for difference in differences),
        asked_logprobs=True,
    )
    return Scores(replies=(reply,), num_offered=1)


def test_served_logprobs_are_held_to_mean_and_p99() -> None:
    assert classes(with_logprobs(*[0.04] * 100), Tolerances()) == []
    refusals, figures = accuracy_refusals(with_logprobs(*[0.06] * 100), tolerances=Tolerances())
    found = "mean difference from the reference's 0.0600 nats, at most 0.05 is allowed"
    assert [refusal.text for refusal in refusals] == [f"served log-probabilities: {found} (100 tokens)"]
    assert figures["logprob_mean"] == pytest.approx(0.06) and figures["num_logprobs"] == 100
    assert classes(with_logprobs(*[0.0] * 98, -0.4, -0.4), Tolerances()) == ["wrong_logprobs"]
    assert classes(with_logprobs(*[0.0] * 99, -0.4), Tolerances()) == []


def test_missing_logprobs_refuse_unless_waived() -> None:
    asked = Scores(replies=(ReplyScores(request_id="r", margins=(0.0,), logprobs=(-1.0,), asked_logprobs=True),))
    assert classes(asked, Tolerances()) == ["missing_logprobs"]
    assert classes(scores((0.0,)), Tolerances()) == ["missing_logprobs"]
    assert classes(asked, WITHOUT_LOGPROBS) == []


def test_nearest_rank() -> None:
    assert nearest_rank([1.0], share=0.99) == 1.0
    assert nearest_rank([float(n) for n in range(1, 101)], share=0.99) == 99.0
    assert nearest_rank([float(n) for n in range(1, 102)], share=0.99) == 100.0


def test_merge_keeps_everything() -> None:
    merged = merge([scores((0.0,), (0.1, 0.0)), scores((0.0,), unscored={"x": "why"})])
    assert merged.num_tokens == 4 and merged.num_offered == 3 and merged.unscored == {"x": "why"}
