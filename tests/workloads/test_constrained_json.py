"""`constrained_json`: a text and the schema that the reply has to be valid for."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator
from stream_samples import assert_function_of_arguments, assert_lengths_are_true, take

from vibeserve.errors import SpecError
from vibeserve.spec import Workload
from vibeserve.workloads.constrained_json import tasks

JSON = Workload(
    kind="constrained_json", prompt_tokens_min=320, prompt_tokens_max=640, output_tokens_min=64, output_tokens_max=96
)


def test_every_request_carries_the_schema_that_its_prompt_shows(tiny_model_dir: Path) -> None:
    requests = take(30, tiny_model_dir, JSON)
    assert_lengths_are_true(requests, model_dir=tiny_model_dir)
    assert {request.num_prompt_tokens for request in requests} <= set(range(320, 641))
    names = set()
    for request in requests:
        asked = request.payload["response_format"]
        assert asked["type"] == "json_schema" and asked["json_schema"]["strict"] is True
        assert json.dumps(asked["json_schema"]["schema"], separators=(",", ":")) in request.prompt
        assert not request.ignore_eos
        names.add(asked["json_schema"]["name"])
    assert names == {task["name"] for task in tasks()}


def test_the_schemas_are_schemas_and_accept_no_other_object() -> None:
    for task in tasks():
        Draft202012Validator.check_schema(task["schema"])
        assert not Draft202012Validator(task["schema"]).is_valid({"other": 1})


def test_stream_is_a_function_of_its_arguments(tiny_model_dir: Path) -> None:
    assert_function_of_arguments(tiny_model_dir, JSON)


def test_a_range_below_the_schema_is_refused(tiny_model_dir: Path) -> None:
    with pytest.raises(SpecError, match=r"no prompt of 16 to 32 tokens for schema '\w+' found in 64 attempts"):
        take(1, tiny_model_dir, dataclasses.replace(JSON, prompt_tokens_min=16, prompt_tokens_max=32))
