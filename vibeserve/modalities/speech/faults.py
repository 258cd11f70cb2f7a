"""Planted faults of speech: what a cheating or broken server would send, which must be refused, and bf16, which must
not."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from vibeserve.contract import Context, Fault, References, Request
from vibeserve.modalities.speech.workload import shortened

TRIAL_CHUNKS = 5
"""of one recording: enough that every partial has an earlier and a later one"""
REPLACED_EVERY = 8


def configure(context: Context) -> SpeechFaults:
    return SpeechFaults()


class SpeechFaults:
    """See `contract.FaultsModule`."""

    FAULTS: Sequence[Fault] = ()

    def __init__(self) -> None:
        self.FAULTS = (
            Fault(name="empty_partials", is_wrong=True, make=_changed(lambda right, number: [])),
            Fault(name="repeated_partials", is_wrong=True, make=_changed(_of_chunk_before)),
            Fault(name="partials_of_later_audio", is_wrong=True, make=_changed(_of_chunk_behind)),
            Fault(name="cut_from_the_final", is_wrong=True, make=_changed(_head_of_final)),
            Fault(name="truncated_partials", is_wrong=True, make=_changed(lambda right, n: _ids(right, n)[:-2])),
            Fault(name="one_token_in_eight_replaced", is_wrong=True, make=_changed(_replaced)),
            Fault(name="another_recording", is_wrong=True, make=_another_recording),
            Fault(name="text_unlike_its_ids", is_wrong=True, make=_text_unlike_ids),
            Fault(name="bfloat16", is_wrong=False, make=_bfloat16),
        )

    def shortened(self, request: Request) -> Request:
        return shortened(request, num_chunks=TRIAL_CHUNKS)


def _bfloat16(references: References, request: Request, other: Request) -> Any:
    return references.rounded().run(request)


def _changed(ids_of: Callable[[dict[str, Any], int], Sequence[int]]) -> Callable[[References, Request, Request], Any]:
    """The right output with other ids in its partials; the final transcript stays right."""

    def make(references: References, request: Request, other: Request) -> Any:
        exact = references.exact()
        right = exact.run(request)
        partials = [
            _transcript(exact, partial["audio_end_ms"], ids_of(right, number))
            for number, partial in enumerate(right["partials"])
        ]
        return {"partials": partials, "final": right["final"]}

    return make


def _transcript(reference: Any, end_ms: int, ids: Sequence[int]) -> dict[str, Any]:
    return {"audio_end_ms": end_ms, "text": reference.text_of(ids), "token_ids": list(ids)}


def _ids(right: dict[str, Any], number: int) -> list[int]:
    ids: list[int] = right["partials"][max(0, min(number, len(right["partials"]) - 1))]["token_ids"]
    return ids


def _of_chunk_before(right: dict[str, Any], number: int) -> list[int]:
    """A server that answers with what it had."""
    return _ids(right, number - 1)


def _of_chunk_behind(right: dict[str, Any], number: int) -> list[int]:
    """A server that waits for the next chunk, and claims the one before."""
    return _ids(right, number + 1)


def _head_of_final(right: dict[str, Any], number: int) -> list[int]:
    """A transcript that is known beforehand, told bit by bit: of the right length at every chunk."""
    ids: list[int] = right["final"]["token_ids"]
    return ids[: len(_ids(right, number))]


def _replaced(right: dict[str, Any], number: int) -> list[int]:
    ids = list(_ids(right, number))
    for place in range(0, len(ids), REPLACED_EVERY):
        ids[place] = next(token for token in [*right["final"]["token_ids"], 5, 6] if token != ids[place])
    return ids


def _another_recording(references: References, request: Request, other: Request) -> Any:
    """A canned transcript: right for somebody else, with this recording's ends."""
    exact = references.exact()
    right, canned = exact.run(request), exact.run(other)
    partials = [
        {**partial, "audio_end_ms": own["audio_end_ms"]}
        for own, partial in zip(right["partials"], canned["partials"], strict=False)
    ]
    return {"partials": partials, "final": {**canned["final"], "audio_end_ms": right["final"]["audio_end_ms"]}}


def _text_unlike_ids(references: References, request: Request, other: Request) -> Any:
    """The right ids beside the text of the final transcript."""
    right = references.exact().run(request)
    partials = [{**partial, "text": right["final"]["text"]} for partial in right["partials"]]
    return {"partials": partials, "final": right["final"]}
