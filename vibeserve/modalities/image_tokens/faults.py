"""Planted faults of images drawn token by token: what a cheating or broken server would send, which must be refused,
and bf16, which must not."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from vibeserve.contract import Context, Fault, References, Request
from vibeserve.core.documents import digest_of
from vibeserve.modalities.image import faults as pictures
from vibeserve.modalities.image.workload import with_payload

FEWER_TOKENS = 0.9
WRONG_EVERY = 10
"""tokens: one of so many is replaced in `some_tokens_wrong`"""
TEMPERED = 0.85
"""of the temperature; where that is 0 it is drawn at 1"""
Make = Callable[[References, Request, Request], Any]
Change = Callable[[dict[str, Any], dict[str, Any]], dict[str, Any]]
"""(payload, another request's payload) -> what is changed of the first"""


def configure(context: Context) -> TokenImageFaults:
    return TokenImageFaults()


class TokenImageFaults:
    """See `contract.FaultsModule`. The right output of a request is drawn once for all faults that only change it."""

    FAULTS: Sequence[Fault] = ()

    def __init__(self) -> None:
        self._right: dict[str, Any] = {}
        drawn: dict[str, Change] = {
            "other_prompt": lambda asked, other: {"prompt": other["prompt"]},
            "half_the_prompt": lambda asked, other: pictures.half_prompt(asked),
            "no_text": lambda asked, other: {"prompt": ""},
            "lower_guidance": lambda asked, other: pictures.lower_guidance(asked),
            "no_guidance": lambda asked, other: {"guidance": 1.0},
            "other_seed": lambda asked, other: {"seed": asked["seed"] + 1},
            "other_temperature": lambda asked, other: {"temperature": TEMPERED * asked["temperature"] or 1.0},
        }
        changed: dict[str, Callable[[Any], Any]] = {
            "first_token_wrong": _first_token_wrong,
            "some_tokens_wrong": _some_tokens_wrong,
            "tokens_one_late": lambda right: right | {"token_ids": [right["token_ids"][0], *right["token_ids"][:-1]]},
            "fewer_tokens": _fewer_tokens,
            "no_token_ids": lambda right: right | {"token_ids": []},
            "ids_beyond_the_codes": lambda right: right | {"token_ids": [1 << 30] * len(right["token_ids"])},
            "half_the_resolution": lambda right: pictures.changed(right, pictures.blurred),
            "smaller_image": lambda right: pictures.changed(right, pictures.smaller),
            "constant_image": lambda right: pictures.changed(right, pictures.constant),
            "mirrored_image": lambda right: pictures.changed(right, pictures.mirrored),
            "png_header_and_garbage": pictures.garbage,
            "truncated_png": pictures.truncated,
        }
        self.FAULTS = (
            *(Fault(name=name, is_wrong=True, make=_drawn(change)) for name, change in drawn.items()),
            *(Fault(name=name, is_wrong=True, make=self._changed(change)) for name, change in changed.items()),
            Fault(name="image_of_another_request", is_wrong=True, make=self._another_image),
            Fault(name="picture_of_other_tokens", is_wrong=True, make=self._another_picture),
            Fault(name="bfloat16", is_wrong=False, make=lambda references, asked, _: references.rounded().run(asked)),
        )

    def shortened(self, request: Request) -> Request:
        """As it is: an image has all its tokens."""
        return request

    def _changed(self, change: Callable[[Any], Any]) -> Make:
        return lambda references, request, other: change(self._drawn_once(references, request))

    def _another_image(self, references: References, request: Request, other: Request) -> Any:
        """Kept from an earlier request."""
        return self._drawn_once(references, other)

    def _another_picture(self, references: References, request: Request, other: Request) -> Any:
        """The right codes beside a picture that was kept."""
        picture = self._drawn_once(references, other)["png"]
        return self._drawn_once(references, request) | {"png": picture}

    def _drawn_once(self, references: References, request: Request) -> Any:
        key = digest_of(request.payload)
        if key not in self._right:
            self._right[key] = references.exact().run(request)
        return self._right[key]


def _drawn(change: Change) -> Make:
    """What the reference draws for a request that was changed."""
    return lambda references, request, other: references.exact().run(
        with_payload(request, **change(request.payload, other.payload))
    )


def _first_token_wrong(right: Any) -> Any:
    """Sent before anything was computed."""
    first, *rest = right["token_ids"]
    return right | {"token_ids": [first ^ 1, *rest]}


def _some_tokens_wrong(right: Any) -> Any:
    ids = right["token_ids"]
    return right | {"token_ids": [each ^ 1 if place % WRONG_EVERY == 0 else each for place, each in enumerate(ids)]}


def _fewer_tokens(right: Any) -> Any:
    return right | {"token_ids": right["token_ids"][: int(FEWER_TOKENS * len(right["token_ids"]))]}
