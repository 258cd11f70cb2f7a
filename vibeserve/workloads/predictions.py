"""What a client predicts of an answer: the answer, exact or edited in places, the file as it was, something useless."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from vibeserve.core.nouns import PromptRequest

if TYPE_CHECKING:
    from tokenizers import Tokenizer

FROM_ANSWER = ("exact", "edits")
"""kinds that need the reference's own answer; the others follow from the request"""
EDITED_SHARE_MIN, EDITED_SHARE_MAX = 0.05, 0.10
"""of the answer's tokens"""
MAX_RUN_TOKENS = 6
"""of one edit: a name, an argument, a short condition"""
EDITS = ("insert", "delete", "replace")


def with_prediction(request: PromptRequest, text: str) -> PromptRequest:
    """The request as a client sends it that predicts `text`."""
    payload: dict[str, Any] = {**(request.payload or {}), "prediction": {"type": "content", "content": text}}
    return replace(request, payload=payload)


def predicted_text(request: PromptRequest) -> str | None:
    """What the request predicts; None where it predicts nothing."""
    prediction = request.payload.get("prediction") if isinstance(request.payload, dict) else None
    return None if prediction is None else str(prediction["content"])


def predict_answer(
    request: PromptRequest, answer_ids: Sequence[int], *, kind: str, tokenizer: Tokenizer
) -> PromptRequest:
    """The request with a prediction of `kind` (one of `FROM_ANSWER`). A function of the arguments alone."""
    ids = list(answer_ids)
    if kind == "edits":
        generator = random.Random(f"edits-{request.request_id}")
        ids = edited(ids, generator=generator, fresh=tokenizer.encode(request.prompt).ids)
    return with_prediction(request, tokenizer.decode(ids, skip_special_tokens=True))


def edited(ids: Sequence[int], *, generator: random.Random, fresh: Sequence[int]) -> list[int]:
    """`ids` with 5 to 10% of them edited, in runs of one to six that are inserted, deleted or replaced.

    The tokens of insertions and replacements are runs of `fresh`. An edit changes as many tokens as its run is long;
    the last one is cut so that the share is met, one token at the least.
    """
    share = generator.uniform(EDITED_SHARE_MIN, EDITED_SHARE_MAX)
    made = list(ids)
    runs = list(_run_lengths(max(1, round(share * len(ids))), generator=generator))
    # from the last to the first, so that the places before stay what they are
    places = sorted(generator.sample(range(len(ids)), min(len(runs), len(ids))), reverse=True)
    limit = len(ids)
    for place, num in zip(places, runs, strict=False):
        kind = generator.choice(EDITS)
        start = generator.randrange(max(1, len(fresh) - num))
        new = [] if kind == "delete" else list(fresh[start : start + num])
        # an edit never reaches into the next one
        stop = place if kind == "insert" else min(place + num, limit)
        made[place:stop] = new
        limit = place
    return made


def _run_lengths(num_tokens: int, *, generator: random.Random) -> Iterator[int]:
    while num_tokens > 0:
        num = min(num_tokens, generator.randint(1, MAX_RUN_TOKENS))
        yield num
        num_tokens -= num
