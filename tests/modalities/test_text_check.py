"""Text's check: limits, rules over all tokens, figures, and what is missing."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from served_replies import make_reply

from vibeserve.accuracy.documents import Scores
from vibeserve.accuracy.judging import refusals_of
from vibeserve.contract import Context, ReplyDistances
from vibeserve.core.documents import to_data
from vibeserve.core.nouns import PromptRequest, Refusal, Reply
from vibeserve.modalities.limits import with_overrides
from vibeserve.modalities.text.check import TextCheck, agreement_required, configure, nearest_rank
from vibeserve.spec import Tolerances

WITHOUT_LOGPROBS = Tolerances(logprob_share=0)


class Letters:
    """A tokenizer of one letter per id."""

    def decode(self, ids: Sequence[int], **_: Any) -> str:
        return "".join(chr(97 + number % 26) for number in ids)


def check(tolerances: Tolerances = WITHOUT_LOGPROBS) -> TextCheck:
    return configure(Context(model_dir="", target_dir="", workload={}, tolerances=to_data(tolerances)))


def reply(num: int, *, name: str = "r", logprobs: Sequence[float] | None = None) -> Reply:
    request = PromptRequest(
        request_id=name, prompt="x", num_prompt_tokens=1, max_tokens=num, logprobs=0 if logprobs is None else 5
    )
    return make_reply(request, range(num), tokenizer=Letters(), logprobs=logprobs or ())


def expected(margins: Sequence[float], *, logprobs: Sequence[float] = (), problem: str = "") -> dict[str, Any]:
    return {"margins": list(margins), "logprobs": list(logprobs or [-1.0] * len(margins)), "problem": problem}


def found(replies: Sequence[ReplyDistances], tolerances: Tolerances) -> tuple[list[Refusal], dict[str, float]]:
    own = check(tolerances)
    limits = with_overrides(own.LIMITS, tolerances.limits)
    return refusals_of(Scores(replies=tuple(replies), limits=limits, judgement=own.judge(replies)))


def with_margins(*rows: Sequence[float]) -> list[ReplyDistances]:
    own = check()
    return [
        ReplyDistances(request_id=f"r{n}", distances=tuple(own.compare(expected(row), reply(len(row)))))
        for n, row in enumerate(rows)
    ]


def classes(replies: Sequence[ReplyDistances], tolerances: Tolerances = WITHOUT_LOGPROBS) -> list[str]:
    return [refusal.reason_class for refusal in found(replies, tolerances)[0]]


def test_agreement_at_the_limit_passes_and_one_below_is_refused() -> None:
    assert classes(with_margins([0.02] * 9 + [0.0] * 91)) == []
    refusals, figures = found(with_margins([0.02] * 10 + [0.0] * 90), WITHOUT_LOGPROBS)
    assert [refusal.text for refusal in refusals] == [
        "top-1 agreement 0.9000, at least 0.9100 is required for 0.97 in the long run (100 tokens)"
    ]
    assert figures["num_disagreements"] == 10 and figures["num_tokens"] == 100 and figures["num_replies"] == 1


def test_the_agreement_that_is_required_nears_its_bound_with_the_tokens() -> None:
    required = [agreement_required(0.97, num_tokens=num) for num in (10, 100, 1_000, 10_000, 100_000)]
    assert required == pytest.approx([0.7, 0.91, 0.952, 0.9646, 0.9683], abs=1e-4)
    assert agreement_required(1.0, num_tokens=50) == 1.0 and agreement_required(0.0, num_tokens=50) == 0.0


def test_one_far_disagreement_is_refused_where_none_is_allowed() -> None:
    strict = replace(WITHOUT_LOGPROBS, far_disagreement_share_max=0.0)
    refusals, figures = found(with_margins([0.25] + [0.0] * 999), strict)
    assert [refusal.reason_class for refusal in refusals] == ["wrong_tokens"]
    assert "1 of 1 disagreements lie 0.25 nats or more below the reference's best, the worst 0.250" in refusals[0].text
    assert figures["max_disagreement_margin"] == 0.25
    assert classes(with_margins([0.2499] + [0.0] * 999), strict) == []


def test_a_declared_share_of_far_disagreements_is_allowed_below_twice_the_margin() -> None:
    assert classes(with_margins([0.3] + [0.0] * 99)) == []
    assert classes(with_margins([0.3] * 2 + [0.0] * 998)) == ["wrong_tokens"]
    assert classes(with_margins([0.3] * 2 + [0.0] * 1998)) == []
    assert classes(with_margins([0.5] + [0.0] * 1999)) == ["wrong_tokens"]


def test_the_mean_margin_is_a_limit_that_a_target_may_bound_itself() -> None:
    rows = with_margins([0.09] * 3 + [0.0] * 97)
    refusals, figures = found(rows, replace(WITHOUT_LOGPROBS, mean_margin_max_nats=0.002))
    assert [(refusal.reason_class, refusal.text) for refusal in refusals] == [
        ("wrong_tokens", "margin_mean is 0.0027 nats, at most 0.002 is allowed (100 values)")
    ]
    assert figures["mean_margin"] == figures["margin_mean"] == pytest.approx(0.0027)
    assert classes(rows, replace(WITHOUT_LOGPROBS, limits={"margin/mean": 0.002})) == ["wrong_tokens"]
    assert classes(rows) == []


def test_many_near_disagreements_are_refused_together_where_none_of_them_is_far() -> None:
    """Speculation that is verified loosely: agreement is fine, no token is far off, and yet it is not the model's."""
    loose = with_margins(*[[0.2] * 3 + [0.0] * 97 for _ in range(8)])
    refusals, figures = found(loose, WITHOUT_LOGPROBS)
    assert figures["top1_agreement"] == 0.97 and figures["num_far_disagreements"] == 0
    assert [refusal.text for refusal in refusals] == [
        "margin_mean is 0.006 nats, at most 0.003 is allowed (800 values)"
    ]


def test_wrong_first_tokens_are_named_as_such() -> None:
    assert "fake_first_token" in classes(with_margins(*[(3.0, *([0.0] * 40)) for _ in range(8)]))
    assert "fake_first_token" not in classes(with_margins(*[(3.0,) * 41 for _ in range(8)]))


def test_what_the_reference_cannot_score_refuses() -> None:
    own = check()
    bad = own.compare(expected([], problem="a served id lies outside the vocabulary"), reply(3))
    replies = [*with_margins([0.0]), ReplyDistances(request_id="bad", distances=tuple(bad))]
    refusals, _ = found(replies, WITHOUT_LOGPROBS)
    assert {refusal.reason_class: refusal.text for refusal in refusals} == {
        "missing_margin": "1 of 2 replies have no margin: a served id lies outside the vocabulary",
        "missing_ids": "1 replies could not be re-scored: a served id lies outside the vocabulary",
    }


def test_without_any_reply_nothing_passes() -> None:
    assert {"missing_scores"} <= set(classes([]))
    assert "missing_logprobs" in classes([], Tolerances())


def with_logprobs(*differences: float) -> list[ReplyDistances]:
    served = reply(len(differences), logprobs=[-1.0 + difference for difference in differences])
    distances = check(Tolerances()).compare(expected([0.0] * len(differences)), served)
    return [ReplyDistances(request_id="r", distances=tuple(distances))]


def test_served_logprobs_are_held_to_mean_and_p99() -> None:
    assert classes(with_logprobs(*[0.04] * 100), Tolerances()) == []
    refusals, figures = found(with_logprobs(*[0.06] * 100), Tolerances())
    assert [refusal.text for refusal in refusals] == [
        "logprob_difference_mean is 0.06 nats, at most 0.05 is allowed (100 values)"
    ]
    assert figures["logprob_mean"] == pytest.approx(0.06) and figures["num_logprobs"] == 100
    assert classes(with_logprobs(*[0.0] * 98, -0.4, -0.4), Tolerances()) == ["wrong_logprobs"]
    assert classes(with_logprobs(*[0.0] * 99, -0.4), Tolerances()) == []


@pytest.mark.parametrize("served", [[], [-1.0], [-1.0, math.nan]], ids=["none", "one of two", "not a number"])
def test_missing_logprobs_refuse_unless_waived(served: list[float]) -> None:
    lacking = replace(reply(2, logprobs=[0.0, 0.0]), token_logprobs=tuple(served))
    distances = check(Tolerances()).compare(expected([0.0, 0.0]), lacking)
    replies = [ReplyDistances(request_id="r", distances=tuple(distances))]
    assert {"missing_logprobs", "missing_logprob_difference"} == set(classes(replies, Tolerances()))
    waived = check(WITHOUT_LOGPROBS).compare(expected([0.0, 0.0]), lacking)
    assert classes([ReplyDistances(request_id="r", distances=tuple(waived))]) == []


def test_where_nobody_asked_for_logprobs_there_is_no_evidence_of_them() -> None:
    assert {"missing_logprobs", "missing_logprob_difference"} == set(classes(with_margins([0.0]), Tolerances()))


def test_replies_with_logprobs_are_a_kind_of_their_own() -> None:
    own = check(Tolerances())
    assert own.group(reply(2)) != own.group(reply(2, logprobs=[0.0, 0.0]))


def test_greedy_text_of_one_request_is_the_same_text() -> None:
    own = check()
    assert [distance.values for distance in own.same(reply(3), reply(3))] == [(0.0,)]
    assert [distance.values for distance in own.same(reply(3), reply(4))] == [(math.inf,)]


def test_nearest_rank() -> None:
    assert nearest_rank([1.0], share=0.99) == 1.0
    assert nearest_rank([float(n) for n in range(1, 101)], share=0.99) == 99.0
    assert nearest_rank([float(n) for n in range(1, 102)], share=0.99) == 100.0
