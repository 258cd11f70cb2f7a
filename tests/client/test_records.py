"""Records as JSON between two processes: the same data as everywhere else, rebuilt or refused."""

from __future__ import annotations

import dataclasses
import json
import math
from enum import Enum
from typing import Any, NamedTuple

import pytest
from load_samples import requests, steady_reply

from vibeserve.client.records import HARNESS_FIELDS, reader, record_data, record_reader, request_reader, to_json
from vibeserve.contract import Record
from vibeserve.core.documents import to_data
from vibeserve.core.nouns import PromptRequest, Reply


class Kind(Enum):
    up = "up"


class Point(NamedTuple):
    x: float
    label: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class Part:
    number: int


def harness_of(record: Record) -> dict[str, Any]:
    return {name: getattr(record, name) for name in HARNESS_FIELDS}


def test_a_reply_survives_the_pipe() -> None:
    steady = steady_reply(scheduled_s=1.0, ttft_s=0.5, tpot_s=0.1, num_tokens=5)
    reply = dataclasses.replace(steady, token_logprobs=(-0.5, math.inf), error="cut")
    sent = json.loads(to_json(record_data(reply)))
    assert sent == {name: value for name, value in to_data(reply).items() if name not in HARNESS_FIELDS}
    assert record_reader(Reply)(sent, **harness_of(reply)) == reply


def test_a_request_survives_the_pipe() -> None:
    request = dataclasses.replace(next(requests()), stop=("a", "b"), logprobs=5, payload={"x": [1, None]})
    sent = json.loads(to_json(request))
    assert sent == to_data(request)
    assert request_reader(PromptRequest)(sent) == request


@pytest.mark.parametrize(
    ("kind", "data", "value"),
    [
        (Any, {"a": [1, "x", None]}, {"a": [1, "x", None]}),
        (float, 1, 1),
        (str | None, None, None),
        (int | str, "x", "x"),
        (tuple[int, ...], [1, 2], (1, 2)),
        (tuple[int, str], [1, "x"], (1, "x")),
        (list[float | None], [0.5, None], [0.5, None]),
        (dict[str, Part], {"a": {"number": 1}}, {"a": Part(number=1)}),
        (dict[str, tuple[Point, ...]], {"a": [[1.0, "x"]]}, {"a": (Point(1.0, "x"),)}),
        (tuple[Kind, ...], ["up"], (Kind.up,)),
        (dict, {"a": 1}, {"a": 1}),
        (bool, True, True),
    ],
)
def test_values_of_every_kind_are_rebuilt(kind: Any, data: Any, value: Any) -> None:
    assert reader(kind)(data) == value


@pytest.mark.parametrize(
    ("kind", "data"),
    [
        (int, True), (int, 1.5), (float, "1"), (str, 1), (bool, 1), (type(None), 0), (str | None, 1),
        (tuple[int, ...], "12"), (tuple[int, ...], [1, "2"]), (tuple[int, str], [1]), (list[int], {"a": 1}),
        (dict[str, int], [1]), (dict[str, int], {"a": "b"}), (Part, {"number": "x"}), (Part, {"other": 1}), (Part, {}),
        (Part, [1]), (Point, [1.0]), (Point, {"x": 1.0, "label": "y"}), (Kind, "down"),
    ],
)  # fmt: skip
def test_data_of_another_shape_is_refused(kind: Any, data: Any) -> None:
    with pytest.raises((TypeError, ValueError)):
        reader(kind)(data)


@pytest.mark.parametrize("value", [b"x", {1, 2}, object(), 1 + 2j])
def test_what_is_no_json_is_refused(value: Any) -> None:
    with pytest.raises(TypeError, match="is no JSON data"):
        to_json({"value": [value]})
