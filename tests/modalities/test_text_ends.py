"""Where replies end: end tokens, stop strings, and ends that the reference would not have made."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from served_replies import make_reply

from vibeserve.contract import Context, ReplyDistances
from vibeserve.core.documents import to_data
from vibeserve.core.nouns import PromptRequest, Reply
from vibeserve.modalities.text.check import TextCheck
from vibeserve.modalities.text.check_ends import MAX_MEAN_END_MARGIN, MIN_ENDS, stop_findings
from vibeserve.spec import Tolerances

EOS = 25


class Letters:
    """One letter per id; `z` is the end token and no text."""

    def decode(self, ids: Sequence[int], *, skip_special_tokens: bool = False) -> str:
        return "".join(chr(97 + number) for number in ids if number != EOS or not skip_special_tokens)


def reply(ids: Sequence[int], *, reason: str, text: str | None = None, **asked: Any) -> Reply:
    request = PromptRequest(
        request_id="r", prompt="x", num_prompt_tokens=1, **{"max_tokens": 8, "ignore_eos": False, **asked}
    )
    made = make_reply(request, ids, tokenizer=Letters(), finish_reason=reason)
    if text is None:
        return made
    chunks = (made.chunks[0]._replace(text=text, token_ids=tuple(ids)),)
    return replace(made, chunks=chunks)


def found(*replies: Reply) -> dict[str, str]:
    return {each.reason_class: each.text for each in stop_findings(replies, tokenizer=Letters(), eos_ids={EOS})}


def test_an_end_token_a_stop_string_and_a_full_length_are_ends() -> None:
    assert found(reply([0, 1, EOS], reason="stop")) == {}
    assert found(reply([0, 1, 2, 3], reason="stop", text="ab", stop=("cd",))) == {}
    assert found(reply(range(8), reason="length")) == {}


def test_a_stop_that_nothing_justifies_is_truncation() -> None:
    expected = {"truncated": "r says 'stop' without an end token or a stop string (1 of 1 replies)"}
    assert found(reply([0, 1, 2], reason="stop")) == expected
    assert found(reply([0, 1, 2], reason="stop", stop=("xy",))) == expected
    # an end token does not end a reply that ignores it
    assert found(reply([0, 1, EOS], reason="stop", ignore_eos=True, stop=("xy",))) == expected


def test_text_behind_a_stop_string_is_padding() -> None:
    shown = reply([0, 1, 2], reason="stop", stop=("bc",))
    assert found(shown) == {"padded": "r shows its stop string (1 of 1 replies)"}
    late = reply([0, 1, 2, 3, 4], reason="stop", text="a", stop=("bc",))
    assert found(late) == {"padded": "r goes on after its stop string (1 of 1 replies)"}


def test_a_format_may_end_a_reply_without_an_end_token() -> None:
    assert found(reply([0, 1], reason="stop", payload={"response_format": {"type": "json_object"}})) == {}


def test_a_cut_reply_has_no_end() -> None:
    assert found(replace(reply([0, 1], reason="stop"), error="cut")) == {}


def check() -> TextCheck:
    tolerances = to_data(Tolerances(logprob_share=0))
    return TextCheck(Context(model_dir="", target_dir="", workload={}, tolerances=tolerances))


def judged(rows: Sequence[tuple[Reply, list[float], list[float]]]) -> tuple[dict[str, str], dict[str, float]]:
    own = check()
    replies = []
    for each, margins, ends in rows:
        expected = {"margins": margins, "logprobs": [-1.0] * len(margins), "end_margins": ends, "problem": ""}
        replies.append(ReplyDistances(request_id="r", distances=tuple(own.compare(expected, each))))
    judgement = own.judge(replies)
    return {each.reason_class: each.text for each in judgement.findings}, dict(judgement.figures)


ENDED = reply([0, 1, EOS], reason="stop")
GOES_ON = reply(range(8), reason="length")


def test_ends_that_the_reference_would_make_pass() -> None:
    findings, figures = judged([(ENDED, [0.0] * 3, [2.0, 2.0, 0.0])] * MIN_ENDS)
    assert findings == {} and figures["mean_end_margin"] == 0.0 and figures["num_ends"] == MIN_ENDS


def test_replies_that_end_early_by_less_than_any_token_may_be_off_are_refused_together() -> None:
    early = (ENDED, [0.0, 0.0, 0.2], [2.0, 2.0, 0.2])
    right = (GOES_ON, [0.0] * 8, [2.0] * 8)
    findings, figures = judged([early] * 4 + [right] * 8)
    assert figures["mean_end_margin"] == pytest.approx(0.2 / 3) and figures["num_far_disagreements"] == 0
    assert findings["wrong_ends"] == (
        f"replies end 0.067 nats from where the reference ends in the mean, at most {MAX_MEAN_END_MARGIN:g} is allowed "
        "(12 replies)"
    )
    assert "wrong_ends" not in judged([early] * 2 + [right] * 10)[0]


def test_replies_that_go_on_where_the_reference_ends_count_as_much() -> None:
    late = (GOES_ON, [0.0, 0.3, *[0.0] * 6], [2.0, 0.0, *[2.0] * 6])
    assert "wrong_ends" in judged([late] * MIN_ENDS)[0]


def test_a_few_ends_are_left_to_the_tokens() -> None:
    assert "wrong_ends" not in judged([(ENDED, [0.0, 0.0, 0.9], [2.0, 2.0, 0.9])] * (MIN_ENDS - 1))[0]


def test_replies_of_fixed_length_have_no_ends() -> None:
    fixed = reply(range(8), reason="length", ignore_eos=True)
    _, figures = judged([(fixed, [0.0] * 8, [0.0] * 8)] * MIN_ENDS)
    assert "mean_end_margin" not in figures
    # nor has a reference that knows no end token
    assert "num_ends" not in judged([(ENDED, [0.0] * 3, [])] * MIN_ENDS)[1]
