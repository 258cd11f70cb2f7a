"""The schema under the real yaml-language-server: what a user sees while a target is written."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from language_server import VARIABLE, LanguageServer, find_server

from vibeserve.cli.main import main

pytestmark = pytest.mark.slow

MODELINE = "# yaml-language-server: $schema=.target.schema.json\n"
GOOD = """\
defaults:
  - override /model: my_model
  - override /hardware: cpu
  - override /workload: chat_short
budget:
  rounds: 3
goals:
  - {metric: output_throughput, min_ratio: 1.1, against: competent}
"""


@pytest.fixture
def targets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user's repository with a model of its own and the schema beside its targets."""
    (tmp_path / "targets").mkdir()
    (tmp_path / "conf" / "model").mkdir(parents=True)
    (tmp_path / "conf" / "model" / "my_model.yaml").write_text("id: mine\narchitecture: llama\n")
    monkeypatch.chdir(tmp_path)
    assert main(["schema", "target", "--output", "targets/.target.schema.json"]) == 0
    return tmp_path / "targets"


@pytest.fixture
def server(targets: Path) -> Iterator[LanguageServer]:
    program = find_server()
    if program is None:
        pytest.skip(f"no yaml-language-server: npm install yaml-language-server, and name it in {VARIABLE}")
    with LanguageServer(program, root=targets.parent) as running:
        yield running


def written(targets: Path, text: str) -> Path:
    path = targets / "mine.yaml"
    path.write_text(MODELINE + text)
    return path


def test_a_good_target_has_no_diagnostics(server: LanguageServer, targets: Path) -> None:
    assert server.diagnostics(written(targets, GOOD)) == []


@pytest.mark.parametrize(
    ("old", "new", "line", "message"),
    [
        ("rounds: 3", "round: 3", 6, "Property round is not allowed."),
        ("rounds: 3", "rounds: many", 6, 'Incorrect type. Expected "integer".'),
        ("rounds: 3", "rounds: -1", 6, "Value is below the minimum of 0."),
        ("rounds: 3", "level: fast", 6, 'Value is not accepted. Valid values: "quick", "standard", "full".'),
        ("my_model", "my_modle", 2, '"my_model"'),
        ("override /hardware", "override /hardwear", 3, "Property override /hardwear is not allowed."),
        ("goals:", "gaols:", 7, "Property gaols is not allowed."),
    ],
)
def test_faults_are_marked_where_they_are(
    server: LanguageServer, targets: Path, old: str, new: str, line: int, message: str
) -> None:
    found = server.diagnostics(written(targets, GOOD.replace(old, new)))
    assert [each for each in found if each["range"]["start"]["line"] == line and message in each["message"]], found


def test_keys_are_offered_where_they_may_stand(server: LanguageServer, targets: Path) -> None:
    path = written(targets, GOOD + "search:\n  \n")
    server.diagnostics(path)
    in_budget = server.completions(path, line=6, character=2)
    assert {"attempts", "level", "wall_s", "usd", "tokens"} <= set(in_budget)
    assert "the whole run; search stops in time for certification" in str(in_budget["wall_s"]["documentation"])
    assert {"policy", "patience", "seed"} <= set(server.completions(path, line=10, character=2))


def test_groups_are_offered_at_the_top(server: LanguageServer, targets: Path) -> None:
    path = written(targets, GOOD)
    server.diagnostics(path)
    offered = server.completions(path, line=9, character=0)
    assert {"model", "workload", "evaluation"} <= set(offered)
    assert "budget" not in offered


def test_options_of_the_repository_are_offered(server: LanguageServer, targets: Path) -> None:
    path = written(targets, GOOD.replace("my_model", ""))
    server.diagnostics(path)
    offered = server.completions(path, line=2, character=len("  - override /model: "))
    assert {"my_model", "tiny_llama", "smollm2_135m"} <= set(offered)


def test_what_a_key_means_is_shown(server: LanguageServer, targets: Path) -> None:
    path = written(targets, GOOD)
    server.diagnostics(path)
    assert "what a run may take" in server.hover(path, line=5, character=2)
    assert "rounds after round 0" in server.hover(path, line=6, character=4)
    assert "selects the model" in server.hover(path, line=2, character=8)
