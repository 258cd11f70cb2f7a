"""The check of images token by token: codes behind codes, the picture of the codes, and faults of all kinds."""

from __future__ import annotations

import math
import zlib
from typing import Any

import pytest
from token_samples import NUM_TOKENS, context, output, record_of, request_of, scored

from vibeserve.accuracy.documents import Scores
from vibeserve.accuracy.judging import refusals_of
from vibeserve.contract import ReplyDistances, Request
from vibeserve.core.nouns import Refusal
from vibeserve.modalities.image_tokens.check import FAR, FAR_SHARE, MARGIN_MAX, MARGIN_MEAN, configure
from vibeserve.modalities.image_tokens.faults import configure as configure_faults

RIGHT = output(1)


def refused(*pairs: tuple[Any, Any]) -> set[str]:
    """Pairs of what the reference says and what was served -> reason classes."""
    return {refusal.reason_class for refusal in refusals(*pairs)}


def figures_over(*pairs: tuple[Any, Any]) -> set[str]:
    """Which figures are over their bounds."""
    return {refusal.text.partition(" is ")[0] for refusal in refusals(*pairs)}


def refusals(*pairs: tuple[Any, Any]) -> list[Refusal]:
    check = configure(context())
    replies = [
        ReplyDistances(request_id=str(number), distances=tuple(check.compare(expected, record_of(served))))
        for number, (expected, served) in enumerate(pairs)
    ]
    scores = Scores(replies=tuple(replies), limits=tuple(check.LIMITS), judgement=check.judge(replies))
    return list(refusals_of(scores)[0])


def margins(*values: float) -> dict[str, Any]:
    return scored(RIGHT, margins=[*values, *[0.0] * (NUM_TOKENS - len(values))])


def test_the_right_image_passes_and_so_does_rounding() -> None:
    assert not refused((scored(RIGHT), RIGHT))
    assert not refused((margins(0.9 * MARGIN_MAX), RIGHT), *[(margins(0.1, 0.05), RIGHT)] * 4)


def test_codes_are_held_one_by_one_together_and_by_their_share() -> None:
    right = (scored(RIGHT), RIGHT)
    assert figures_over((margins(1.1 * MARGIN_MAX), RIGHT), *[right] * 9) == {"token_margin_max"}
    assert figures_over((margins(*[1.2 * MARGIN_MEAN] * NUM_TOKENS), RIGHT)) == {"token_margin_mean"}
    far = figures_over((margins(*[FAR] * math.ceil(2 * FAR_SHARE * NUM_TOKENS)), RIGHT))
    assert far == {"token_margin_share_at_least_0.25", "token_margin_mean"}
    assert refused((margins(*[FAR] * NUM_TOKENS), RIGHT)) == {"wrong_tokens"}


def test_the_picture_is_that_of_the_codes() -> None:
    assert refused((scored(RIGHT), RIGHT | {"png": output(2)["png"]})) == {"wrong_image"}
    assert refused((scored(RIGHT), RIGHT | {"png": "%%%"})) == {"missing_pixel_error"}
    problem = scored(RIGHT, margins=[], png="", problem="63 token ids, not 64")
    assert refused((problem, RIGHT)) == {"missing_token_margin", "missing_pixel_error"}


def test_one_picture_for_several_seeds_is_found_without_a_reference() -> None:
    records = [record_of(output(1), name=str(seed), seed=seed) for seed in (1, 2)]
    (finding,) = configure(context()).inspect(records)
    assert finding.reason_class == "repeated_image"
    assert not configure(context()).inspect([records[0], record_of(output(2), seed=2), record_of(error="cut")])


def test_two_records_of_one_request_have_the_same_codes() -> None:
    check = configure(context())
    first, other = record_of(output(1)), record_of(output(2))
    assert [distance.values for distance in check.same(first, first)] == [(0.0,), (0.0,)]
    assert check.same(first, other)[0].values == (math.inf,)


def code_of(*parts: Any) -> int:
    return zlib.crc32(str(parts).encode()) % 256


class Exact:
    """A reference whose codes are decided by every field of the request, and its picture by its codes."""

    def run(self, request: Request) -> dict[str, Any]:
        key = sorted((name, str(value)) for name, value in request.payload.items())
        codes = [code_of(key, position) for position in range(NUM_TOKENS)]
        return {"png": output(code_of(codes))["png"], "token_ids": codes}

    def score(self, request: Request, served: Any) -> dict[str, Any]:
        codes, right = served["token_ids"], self.run(request)["token_ids"]
        if len(codes) != NUM_TOKENS or max(codes) > 255:
            return scored(served, margins=[], png="", problem="no codes")
        wrong = [0.0 if code == other else 3.0 for code, other in zip(codes, right, strict=True)]
        return scored({"png": output(code_of(codes))["png"]}, margins=wrong)


class References:
    def exact(self) -> Any:
        return Exact()

    rounded = exact


def test_every_wrong_fault_is_refused_and_the_noisy_one_is_not() -> None:
    request, other = request_of(), request_of("other", prompt="a lake", seed=9)
    faults = configure_faults(context()).FAULTS
    assert len(faults) == 22 and len({fault.name for fault in faults}) == 22
    for fault in faults:
        made = fault.make(References(), request, other)
        assert bool(refused((Exact().score(request, made), made))) is fault.is_wrong, fault.name


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_another_temperature_is_another_request(temperature: float) -> None:
    fault = next(each for each in configure_faults(context()).FAULTS if each.name == "other_temperature")
    request = request_of(temperature=temperature)
    assert fault.make(References(), request, request) != Exact().run(request)
