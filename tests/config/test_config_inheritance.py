"""A target that inherits from another: what wins, where it is found, which files go with it."""

from __future__ import annotations

from pathlib import Path

import pytest

from vibeserve.config import check_target, compose_spec, find_target, list_targets
from vibeserve.core.paths import data_dir
from vibeserve.errors import SpecError
from vibeserve.spec import Level, SourceKind

BASE = """\
defaults:
  - override /model: tiny_llama
  - override /hardware: cpu
  - override /workload: chat_short
  - override /budget: smoke
target: {description: the base, twin: tiny_cpu}
budget: {attempts: 5, wall_s: 100}
goals:
  - {metric: output_throughput, min_ratio: 1.1, against: competent}
  - {metric: peak_memory, max_gib: 4}
"""


@pytest.fixture
def targets(tmp_path: Path) -> Path:
    folder = tmp_path / "targets"
    folder.mkdir()
    (folder / "base.yaml").write_text(BASE)
    return folder


def test_the_childs_values_win_and_its_lists_replace(targets: Path) -> None:
    (targets / "child.yaml").write_text(
        "defaults: [base, _self_]\nbudget: {attempts: 7}\n"
        "goals: [{metric: output_throughput, min_ratio: 2, against: competent}]\n"
    )
    spec = compose_spec(["+target=child"], cwd=targets.parent)
    assert (spec.budget.attempts, spec.budget.wall_s, spec.budget.level) == (7, 100, Level.quick)
    assert [goal.min_ratio for goal in spec.goals] == [2]


def test_name_folder_and_description_are_the_childs(targets: Path) -> None:
    (targets / "child").mkdir()
    (targets / "child" / "target.yaml").write_text("defaults: [base]\n")
    info = compose_spec(["+target=child"], cwd=targets.parent).target
    assert (info.name, info.dir, info.inherited_dirs) == ("child", str(targets / "child"), [str(targets)])
    assert (info.description, info.twin) == ("", "")


@pytest.mark.parametrize(
    "defaults",
    [
        "[base, {override /budget: large}, _self_]",
        "[{override /budget: large}, base, _self_]",
        "[base, {/budget: large}]",
        "[base, _self_, {override /budget: large}]",
    ],
)
def test_the_childs_option_wins_wherever_it_stands_in_the_list(targets: Path, defaults: str) -> None:
    (targets / "child.yaml").write_text(f"defaults: {defaults}\n")
    budget = compose_spec(["+target=child"], cwd=targets.parent).budget
    assert (budget.level, budget.rounds, budget.attempts) == (Level.full, 16, 5)


def test_the_command_line_wins_over_all_of_them(targets: Path) -> None:
    (targets / "child.yaml").write_text("defaults: [base, {override /budget: large}]\n")
    budget = compose_spec(["+target=child", "budget=smoke", "budget.attempts=2"], cwd=targets.parent).budget
    assert (budget.level, budget.attempts) == (Level.quick, 2)


def test_chains_of_three_with_parts_that_are_no_targets(targets: Path) -> None:
    (targets / "_fast.yaml").write_text("defaults: [base]\nbudget: {rounds: 1}\nsearch: {patience: 9}\n")
    faster = "defaults: [_fast, {override /evaluation: fake_clock}]\nbudget: {attempts: 1}\n"
    (targets / "_faster.yaml").write_text(faster)
    (targets / "child.yaml").write_text("defaults: [_faster]\nsearch: {patience: 2}\n")
    spec = compose_spec(["+target=child"], cwd=targets.parent)
    assert (spec.budget.rounds, spec.budget.attempts, spec.search.patience) == (1, 1, 2)
    assert spec.evaluation.clock.value == "fake"
    assert [target.name for target in list_targets(targets.parent) if target.name.startswith("_")] == []


def test_a_repository_inherits_from_the_package_from_any_folder_below(targets: Path) -> None:
    (targets / "child.yaml").write_text("defaults: [tiny_cpu, _self_]\nbudget: {rounds: 1}\n")
    deep = targets.parent / "src" / "deep"
    deep.mkdir(parents=True)
    spec = compose_spec(["+target=child"], cwd=deep)
    assert (spec.target.name, spec.model.id, spec.budget.rounds) == ("child", "tiny_llama", 1)
    assert spec.evaluation.clock.value == "fake"
    assert len(spec.target.inherited_dirs) == 1


def test_a_repositorys_target_hides_the_packages_as_a_base_too(targets: Path) -> None:
    (targets / "tiny_cpu.yaml").write_text(BASE)
    (targets / "child.yaml").write_text("defaults: [tiny_cpu]\n")
    assert compose_spec(["+target=child"], cwd=targets.parent).budget.attempts == 5


def test_files_are_looked_for_beside_the_child_then_beside_what_it_inherits(targets: Path) -> None:
    (targets / "parent" / "weights").mkdir(parents=True)
    (targets / "parent" / "target.yaml").write_text(BASE + "model: {source: {kind: folder, path: weights}}\n")
    (targets / "child").mkdir()
    (targets / "child" / "target.yaml").write_text("defaults: [parent]\n")
    spec = compose_spec(["+target=child"], cwd=targets.parent)
    assert spec.model.source.kind is SourceKind.folder
    assert spec.target.folder_of("weights") == targets / "parent"
    (targets / "child" / "weights").mkdir()
    assert spec.target.folder_of("weights") == targets / "child"
    assert spec.target.folder_of("absent") == targets / "child"


def test_a_trace_is_found_beside_the_target_that_is_inherited(targets: Path) -> None:
    (targets / "parent").mkdir()
    lines = '{"prompt_tokens": 32, "output_tokens": 8}\n' * 4
    (targets / "parent" / "requests.jsonl").write_text(lines)
    text = BASE + "workload: {kind: trace, trace: requests.jsonl}\n"
    (targets / "parent" / "target.yaml").write_text(text)
    (targets / "child.yaml").write_text("defaults: [parent]\n")
    spec = compose_spec(["+target=child"], cwd=targets.parent)
    assert spec.workload.trace == str(targets / "parent" / "requests.jsonl")


def test_faults_of_every_file_of_the_chain_are_told_at_once(targets: Path) -> None:
    (targets / "middle.yaml").write_text("defaults: [base]\nbudget: {round: 1}\n")
    (targets / "child.yaml").write_text("defaults: [middle]\nsearch: {patiense: 1}\n")
    (targets / "base.yaml").write_text(BASE + "seeds: 1\n")
    errors = check_target(find_target("child", cwd=targets.parent), cwd=targets.parent).errors
    assert [error.split(": ")[0] for error in errors] == [
        "targets/base.yaml:11:1",
        "targets/child.yaml:2:10",
        "targets/middle.yaml:2:10",
    ]


def test_a_broken_rule_is_told_where_its_value_was_stated_last(targets: Path) -> None:
    (targets / "middle.yaml").write_text("defaults: [base]\nworkload: {headline_load: c9}\n")
    (targets / "child.yaml").write_text("defaults: [middle]\nbudget: {attempts: 0}\n")
    errors = check_target(find_target("child", cwd=targets.parent), cwd=targets.parent).errors
    assert errors == (
        "targets/child.yaml:2:10: budget.attempts: 0 is below 1",
        "targets/middle.yaml:2:12: workload.headline_load: 'c9' is no declared load; valid: c1, c4",
    )


def test_what_hydra_composes_by_itself_is_refused_too(targets: Path) -> None:
    """A sweep over `glob(*)` names targets that nobody has checked before."""
    from hydra import compose, initialize_config_dir

    from vibeserve.config.plugins import register, searching_from

    (targets / "child.yaml").write_text("defaults: [base]\nbudget: {round: 1}\n")
    register()
    with searching_from(targets.parent), initialize_config_dir(version_base="1.3", config_dir=str(data_dir("conf"))):
        with pytest.raises(SpecError) as caught:
            compose("config", overrides=["+target=child"])
    assert "targets/child.yaml:2:10: budget.round: unknown key 'round'" in caught.value.problems[0]
