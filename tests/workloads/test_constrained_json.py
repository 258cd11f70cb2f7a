"""`constrained_json`: a text and the schema that the reply has to be valid for."""

from __future__ import annotations

import dataclasses
import json
import re
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator
from stream_samples import assert_function_of_arguments, assert_lengths_are_true, take

from vibeserve.errors import SpecError
from vibeserve.modalities.text.constrained import Grammars
from vibeserve.spec import Workload
from vibeserve.workloads.constrained_json import store_schemas, tasks

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
    own, store = ({entry["name"] for entry in entries} for entries in (tasks(), store_schemas()))
    assert names <= own | store and len(names & own) >= 3 and len(names & store) >= 3


def test_the_schemas_are_schemas_and_accept_no_other_object(tiny_model_dir: Path) -> None:
    grammars = Grammars((tiny_model_dir / "f32" / "tokenizer.json").read_text(), vocab_size=1024, end_ids=[2])
    entries = [*tasks(), *store_schemas()]
    assert len(store_schemas()) >= 200 and len({entry["name"] for entry in entries}) == len(entries)
    for entry in entries:
        Draft202012Validator.check_schema(entry["schema"])
        assert not Draft202012Validator(entry["schema"]).is_valid({"other": 1})
        assert re.fullmatch(r"[A-Za-z0-9_-]{1,64}", entry["name"]), entry["name"]
        assert not grammars.replay(entry["schema"]).is_complete


def test_stream_is_a_function_of_its_arguments(tiny_model_dir: Path) -> None:
    assert_function_of_arguments(tiny_model_dir, JSON)


def test_a_range_below_the_schema_is_refused(tiny_model_dir: Path) -> None:
    told = "no schema of constrained_json leaves room for a text in a prompt of 32 tokens\nnext: raise workload.prompt_"
    with pytest.raises(SpecError, match=told):
        take(1, tiny_model_dir, dataclasses.replace(JSON, prompt_tokens_min=16, prompt_tokens_max=32))
    with pytest.raises(SpecError, match=r"no prompt of 90000 to 90000 tokens for schema '[\w-]+' found in 64 attempts"):
        take(1, tiny_model_dir, dataclasses.replace(JSON, prompt_tokens_min=90000, prompt_tokens_max=90000))


def test_schemas_that_leave_no_room_are_left_out(tiny_model_dir: Path) -> None:
    narrow = dataclasses.replace(JSON, prompt_tokens_min=192, prompt_tokens_max=384)
    requests = take(60, tiny_model_dir, narrow)
    assert {request.num_prompt_tokens for request in requests} <= set(range(192, 385))
