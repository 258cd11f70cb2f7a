"""What the documents say exists: files, verbs, targets, tasks, options."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from vibeserve.baselines import PEERS
from vibeserve.cli.table import VERBS
from vibeserve.config import compose_spec, list_targets

ROOT = Path(__file__).resolve().parents[1]
DOCUMENTS = [ROOT / "README.md", ROOT / "AGENTS.md", *sorted((ROOT / "docs").glob("*.md"))]


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_paths_in_backticks_and_links_exist(document: Path) -> None:
    text = document.read_text(encoding="utf-8")
    quoted = re.findall(r"`((?:vibeserve|tests|docs|conf|targets|skills|templates|\.ci)/[^`\s*<>{}]*)`", text)
    links = re.findall(r"\]\(([^)#:]+)\)", text)
    missing = [name for name in quoted if not (ROOT / name).exists()]
    missing += [link for link in links if not (document.parent / link).exists()]
    assert missing == []


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_commands_name_verbs_targets_and_options_that_exist(document: Path) -> None:
    text = document.read_text(encoding="utf-8")
    verbs = {name for name, _, _ in VERBS}
    targets = {target.name for target in list_targets(ROOT)}
    used = set(re.findall(r"(?:^|`|&& |next +)vibeserve ([a-z]+)\b", text, re.MULTILINE))
    assert used <= verbs, f"unknown verbs: {sorted(used - verbs)}"
    # a target that the document itself creates, and the name that `init` takes without one
    created = {"mine", *re.findall(r"vibeserve init ([a-z0-9_]+)", text)} if "vibeserve init" in text else set()
    named = set(re.findall(r"vibeserve \+target=([a-z0-9_]+)", text)) - created
    assert named <= targets, f"unknown targets: {sorted(named - targets)}"
    for peer in re.findall(r"peers install ([a-z_]+)", text):
        assert peer in PEERS


def test_options_named_in_the_documents_compose() -> None:
    spec = compose_spec(["+target=smollm2_cpu", "budget=smoke", "baseline=all"], cwd=ROOT)
    assert spec.budget.level.value == "quick"
    assert set(spec.baseline) == {"transformers", "transformers_cb", "vllm", "llama_cpp", "openvino"}
    assert compose_spec(["+target=smollm2_cpu", "evaluation.loads=all"], cwd=ROOT).evaluation.loads == "all"


def test_every_verb_is_in_the_readme() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert [name for name, _, _ in VERBS if not re.search(rf"`[^`]*\b{name}\b[^`]*`", text)] == []


def test_the_exit_codes_in_the_readme_are_those_of_the_errors() -> None:
    from vibeserve import errors

    text = " ".join((ROOT / "README.md").read_text(encoding="utf-8").split())
    assert "2 bad spec, 3 refused or not certified" in text and "4 budget, 5 infrastructure" in text
    classes = (errors.SpecError, errors.RefusedError, errors.BudgetError, errors.InfraError)
    assert [each.exit_code for each in classes] == [2, 3, 4, 5]
