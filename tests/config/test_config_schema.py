"""The generated JSON schemas."""

from __future__ import annotations

import json
from enum import Enum
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from vibeserve import spec as spec_module
from vibeserve.cli.main import main
from vibeserve.config import compose_spec, list_targets
from vibeserve.config.key_page import render_key_page
from vibeserve.config.schema import composed_schema, field_notes, group_schema, target_schema
from vibeserve.config.schema_files import schema_texts
from vibeserve.config.wording import schema_faults
from vibeserve.config.yaml_text import read_yaml
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


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user's repository with a model of its own; the working directory is a folder in it."""
    for folder in ("targets", "src", "conf/model"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "conf" / "model" / "own.yaml").write_text("id: own\narchitecture: llama\n")
    monkeypatch.chdir(tmp_path / "src")
    return tmp_path


def printed(capsys: pytest.CaptureFixture[str], *argv: str) -> Any:
    assert main(["schema", *argv]) == 0
    return json.loads(capsys.readouterr().out)


def test_the_options_of_the_repositorys_own_groups_are_in_the_schema(
    repository: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    schema = printed(capsys, "target")
    selection = schema["properties"]["defaults"]["items"]["anyOf"][0]["properties"]
    assert {"own", "tiny_llama"} <= set(selection["override /model"]["enum"])
    assert selection["/model"] == selection["override /model"]
    assert "enum" in selection["override /baseline"]["anyOf"][1]["items"]


def test_the_schema_is_written_where_editors_find_it(repository: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = repository / "targets" / ".target.schema.json"
    assert main(["schema", "target", "--output", str(file)]) == 0
    assert capsys.readouterr().out == f"wrote {file}\n"
    assert json.loads(file.read_text()) == printed(capsys, "target")
    done = printed(capsys, "target", "--output", str(file), "--json")
    assert done == {"schema_version": 1, "name": "target", "file": str(file)}
    assert [target.name for target in list_targets(repository) if target.origin == "repository"] == []


def test_every_schema_that_is_listed_is_one(capsys: pytest.CaptureFixture[str]) -> None:
    names = [row["name"] for row in printed(capsys, "--json")]
    assert {"target", "spec", "manifest", "model", "baseline"} <= set(names)
    for name in names:
        Draft202012Validator.check_schema(printed(capsys, name))
    assert main(["schema"]) == 0
    text = capsys.readouterr().out
    assert [name for name in names if f"\n{name} " not in text] == []


@pytest.mark.parametrize(
    "path", sorted(data_dir("conf").glob("*/*.yaml")), ids=lambda path: f"{path.parent.name}/{path.stem}"
)
def test_every_shipped_option_fits_the_schema_of_its_group(path: Path) -> None:
    data = read_yaml(path, shown=path.name).data or {}
    assert list(schema_faults(data, group_schema(path.parent.name))) == []


def test_numbers_have_bounds_and_groups_say_what_they_are() -> None:
    budget = composed_schema()["properties"]["budget"]
    assert budget["description"].startswith("what a run may take")
    assert (budget["properties"]["rounds"]["minimum"], budget["properties"]["rounds"]["maximum"]) == (0, 10_000)
    docstring = composed_schema()["properties"]["parallelism"]["description"]
    assert docstring.startswith("How a model is spread over `hardware.count` devices")


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


def test_the_page_of_keys_is_the_schemas() -> None:
    page = Path(__file__).parents[2] / "docs" / "keys.md"
    again = "from vibeserve.config.key_page import write_key_page; write_key_page(Path('docs/keys.md'))"
    assert page.read_text() == render_key_page(), f"keys.md has drifted from spec.py; regenerate: {again}"


def test_the_page_of_keys_has_every_kind_of_key_with_its_default() -> None:
    page = render_key_page()
    for row in (
        "| `evaluation.min_effect` | `0.02` | smallest median gain that is accepted, as a share |",
        "| `agents.ROLE.timeout_s` | `0.0` |  |",
        "| `model.id` | *required* | hub id, or a name of one's own for models that are on no hub |",
        "| `goals.0.max_ms` | empty | times: at most |",
        "| `workload.loads.NAME.concurrency` | `0` | closed loop: requests in flight |",
        "| `budget.level` | `standard` | `quick`, `standard`, `full`. how long and how often is measured ",
    ):
        assert row in page
    assert "target.name" not in page
    assert "agents.judge.timeout_s" not in page
