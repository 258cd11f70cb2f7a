"""The generated JSON schemas."""

from __future__ import annotations

from enum import Enum

import pytest
from jsonschema import Draft202012Validator

from vibeserve import spec as spec_module
from vibeserve.config import compose_spec, list_targets
from vibeserve.config.schema import composed_schema, field_notes, target_schema
from vibeserve.config.schema_files import schema_texts
from vibeserve.core.documents import to_data
from vibeserve.core.paths import data_dir
from vibeserve.spec import Load


def test_the_checked_in_schemas_are_the_generated_ones() -> None:
    folder = data_dir("targets").parent / "docs" / "schemas"
    for name, text in schema_texts().items():
        again = "from vibeserve.config.schema_files import write_schemas; write_schemas(Path('docs/schemas'))"
        assert (folder / name).read_text() == text, f"{name} has drifted from spec.py; regenerate: {again}"


@pytest.mark.parametrize("name", [target.name for target in list_targets()])
def test_a_composed_target_fits_the_strict_schema(name: str) -> None:
    document = to_data(compose_spec([f"+target={name}"]))
    Draft202012Validator(composed_schema()).validate(document)
    del document["seed"]
    document["surprise"] = 1
    messages = [error.message for error in Draft202012Validator(composed_schema()).iter_errors(document)]
    assert any("'seed' is a required property" in message for message in messages)
    assert any("surprise" in message for message in messages)


def test_both_are_valid_draft_2020_12() -> None:
    for schema in (composed_schema(), target_schema({"model": ["a"]})):
        Draft202012Validator.check_schema(schema)
        assert schema["$schema"] == "https://json-schema.org/draft/2020-12/schema"


def test_notes_below_fields_become_descriptions() -> None:
    assert field_notes(Load)["concurrency"] == "closed loop: requests in flight"
    loads = composed_schema()["properties"]["workload"]["properties"]["loads"]
    properties = loads["additionalProperties"]["properties"]
    assert properties["rate_per_s"]["description"] == "open loop: mean Poisson arrivals per second"
    assert properties["rate_per_s"]["default"] == 0.0


def test_enums_are_named_as_they_are_valued() -> None:
    """OmegaConf reads members by name, documents hold their values."""
    enums = [item for item in vars(spec_module).values() if isinstance(item, type) and issubclass(item, Enum)]
    wrong = [f"{enum.__name__}.{member.name}" for enum in enums for member in enum if member.name != member.value]
    assert wrong == []
