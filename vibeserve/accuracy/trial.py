"""Try a bundle's faults on its own reference and check: what each of them would send, scored like served outputs.

Two more are tried that no bundle can leave out: the reference's own output, which is right, and its output for another
request, which is wrong wherever the two outputs differ.
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import replace
from itertools import islice
from typing import Any

from vibeserve.accuracy.documents import FaultScores, Scores
from vibeserve.accuracy.scoring import compared, expected_of, grouped, inspected, judged
from vibeserve.contract import Fault, Pool, Record, Reference, Request
from vibeserve.core.documents import canonical_json, to_data
from vibeserve.errors import SpecError
from vibeserve.modalities import Bundle

NUM_DRAWN = 16
"""requests that the shortest are chosen from"""
RIGHT_OUTPUT = "reference_output"
OTHER_OUTPUT = "output_of_another_request"


class Remembered:
    """A reference that runs no request twice. Everything else of it is there as it is."""

    def __init__(self, reference: Reference) -> None:
        self._reference = reference
        self._outputs: dict[str, Any] = {}

    def run(self, request: Request) -> Any:
        key = canonical_json(request)
        if key not in self._outputs:
            self._outputs[key] = self._reference.run(request)
        return self._outputs[key]

    def __getattr__(self, name: str) -> Any:
        return getattr(self._reference, name)


class LoadedReferences:
    """See `contract.References`. Each is loaded when it is first asked for."""

    def __init__(self, bundle: Bundle, *, device: str, dtype: str) -> None:
        self._bundle = bundle
        self._device = device
        self._dtypes = {"exact": dtype, "rounded": "bfloat16"}
        self._loaded: dict[str, Reference] = {}

    def exact(self) -> Reference:
        return self._get("exact")

    def rounded(self) -> Reference:
        return self._get("rounded")

    def forget_rounded(self) -> None:
        """Its memory is needed for scoring."""
        self._loaded.pop("rounded", None)

    def _get(self, name: str) -> Reference:
        if name not in self._loaded:
            reference = self._bundle.load_reference(device=self._device, dtype=self._dtypes[name])
            self._loaded[name] = Remembered(reference)
        return self._loaded[name]


def try_out(
    bundle: Bundle, *, seed: int, num_requests: int, only: Sequence[str], device: str, dtype: str
) -> tuple[FaultScores, ...]:
    """Every fault's outputs for the same few requests, scored. The check's `inspect` looks at wrong ones alone: its
    rules are over many replies, so that a handful of right ones may break them."""
    references = LoadedReferences(bundle, device=device, dtype=dtype)
    requests = _requests(bundle, seed=seed, num_requests=num_requests)
    faults = [fault for fault in (*_own_faults(), *bundle.faults) if not only or fault.name in only]
    outputs: dict[str, list[tuple[Request, Any]]] = {}
    seconds: dict[str, float] = {}
    for fault in faults:
        started_s = time.monotonic()
        outputs[fault.name] = _outputs(bundle, fault, references, requests)
        seconds[fault.name] = time.monotonic() - started_s
    references.forget_rounded()
    expected = _expected(bundle, references, [pair for pairs in outputs.values() for pair in pairs])
    return tuple(
        FaultScores(
            name=fault.name, is_wrong=fault.is_wrong, seconds=round(seconds[fault.name], 3),
            scores=_scores(bundle, outputs[fault.name], expected, is_wrong=fault.is_wrong),
        )
        for fault in faults
        if outputs[fault.name]
    )  # fmt: skip


def _own_faults() -> tuple[Fault, ...]:
    return (
        Fault(name=RIGHT_OUTPUT, is_wrong=False, make=lambda references, request, _: references.exact().run(request)),
        Fault(name=OTHER_OUTPUT, is_wrong=True, make=lambda references, _, other: references.exact().run(other)),
    )


def _requests(bundle: Bundle, *, seed: int, num_requests: int) -> list[Request]:
    """The shortest of those that are drawn, one of every kind at least."""
    with bundle.blamed("workload"):
        drawn = list(islice(bundle.workload.requests(seed, Pool.visible), NUM_DRAWN * max(1, num_requests // 4)))
    cheap = sorted((bundle.cheap(request) for request in drawn), key=lambda request: len(json.dumps(to_data(request))))
    if len(cheap) < 2:
        raise SpecError(f"{bundle.ref.workload}: requests() ends after {len(cheap)}", hint="docs/contract.md")
    groups = grouped(bundle, [bundle.record_type(request=request) for request in cheap])
    first = [members[0].request for members in groups.values()]
    others = [request for request in cheap if not any(request is each for each in first)]
    return [*first, *others][: max(num_requests, len(first), 2)]


def _outputs(
    bundle: Bundle, fault: Fault, references: LoadedReferences, requests: Sequence[Request]
) -> list[tuple[Request, Any]]:
    """(request, output) as a server would send it: JSON data. For the own wrong one only where it is wrong."""
    made = []
    for number, request in enumerate(requests):
        other = requests[(number + 1) % len(requests)]
        with bundle.blamed("faults" if fault.name not in (RIGHT_OUTPUT, OTHER_OUTPUT) else "reference"):
            output = json.loads(json.dumps(fault.make(references, request, other)))
        made.append((request, output))
    if fault.name == OTHER_OUTPUT:
        with bundle.blamed("reference"):
            right = [json.loads(json.dumps(references.exact().run(request))) for request in requests]
        return [(request, output) for (request, output), own in zip(made, right, strict=True) if output != own]
    return made


def _expected(bundle: Bundle, references: LoadedReferences, pairs: Sequence[tuple[Request, Any]]) -> dict[str, Any]:
    """What the reference says to each different pair, by `_key`."""
    different = {_key(request, output): (request, output) for request, output in pairs}
    answers = expected_of(bundle, references.exact(), list(different.values()))
    return dict(zip(different, answers, strict=True))


def _scores(
    bundle: Bundle, pairs: Sequence[tuple[Request, Any]], expected: dict[str, Any], *, is_wrong: bool
) -> Scores:
    records: list[Record] = [bundle.record(request, output) for request, output in pairs]
    replies = tuple(
        compared(bundle, expected[_key(request, output)], record)
        for (request, output), record in zip(pairs, records, strict=True)
    )
    return replace(
        Scores(replies=replies, num_offered=len(records), limits=bundle.limits),
        inspected=inspected(bundle, records) if is_wrong else (), judgement=judged(bundle, replies),
    )  # fmt: skip


def _key(request: Request, output: Any) -> str:
    return json.dumps([to_data(request), output], sort_keys=True)
