"""Scaffolds made of layers: which ones a model gets, what a target may lay over them, and what is refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from scaffold_samples import write_target

from vibeserve.audit import scan_workspace
from vibeserve.core.documents import digest_tree
from vibeserve.core.paths import data_dir
from vibeserve.errors import SpecError
from vibeserve.skills import SEAMS, assemble, compose_scaffold, engine_problem, load_scaffold, load_skills, resolve
from vibeserve.skills.scaffolds import Composition, write_scaffold
from vibeserve.spec import Modality, Model

RUNTIME = data_dir("templates") / "runtime"
LLAMA = Model(id="a", architecture="llama")
MAMBA = Model(id="b", architecture="mamba2")
CUSTOM = Model(id="c", architecture="letters", modality=Modality.custom)


def problems_of(model: Model, *folders: Path) -> str:
    with pytest.raises(SpecError) as caught:
        compose_scaffold(model, folders=folders)
    return str(caught.value)


def written(composition: Composition, tmp_path: Path) -> Path:
    return write_scaffold(composition, tmp_path / "scaffold")


def test_a_known_architecture_has_the_shipped_scaffold_itself(tmp_path: Path) -> None:
    composition = compose_scaffold(LLAMA)
    assert composition.layers == (RUNTIME / "text",)
    assert composition.seams == tuple(seam for seam in SEAMS if seam not in ("recurrence", "encoder", "decoder"))
    assert composition.engines == ()
    assert written(composition, tmp_path) == RUNTIME / "text"
    assert not (tmp_path / "scaffold").exists()


def test_another_architecture_is_wrapped(tmp_path: Path) -> None:
    composition = compose_scaffold(MAMBA)
    assert composition.layers == (RUNTIME / "text", RUNTIME / "text_wrapped")
    assert composition.engines == ("transformers",)
    assert set(SEAMS) - set(composition.seams) == {"linear", "attention", "recurrence", "encoder", "decoder"}
    folder = written(composition, tmp_path)
    assert (folder / "runtime/model.py").read_bytes() == (RUNTIME / "text_wrapped/runtime/model.py").read_bytes()
    assert (folder / "runtime/engine.py").read_bytes() == (RUNTIME / "text/runtime/engine.py").read_bytes()
    assert {"test_api.py", "test_wrapped_model.py"} <= {path.name for path in (folder / "tests").iterdir()}
    scaffold = load_scaffold(folder)
    assert set(scaffold.parameters) == {*load_scaffold(RUNTIME / "text").parameters, "compute_dtype"}
    assert scaffold.architectures == ()
    again = write_scaffold(compose_scaffold(MAMBA), tmp_path / "again")
    assert digest_tree(again) == digest_tree(folder)
    assert load_scaffold(again).digest == scaffold.digest


@pytest.mark.parametrize("architecture", ["olmo_hybrid", "qwen3_next"])
def test_a_variant_is_taken_for_the_architectures_that_it_names(architecture: str, tmp_path: Path) -> None:
    composition = compose_scaffold(Model(id="h", architecture=architecture))
    assert composition.layers == (RUNTIME / "text", RUNTIME / "text_hybrid")
    assert (composition.engines, composition.is_wrapped) == ((), False)
    assert set(SEAMS) - set(composition.seams) == {"encoder", "decoder"}
    workspace = tmp_path / "workspace"
    assemble(written(composition, tmp_path), [], {}, workspace)
    assert scan_workspace(workspace, allow_engines=[]) == []
    assert "transformers" not in (workspace / "requirements.lock").read_text()


def test_a_wrapped_workspace_passes_the_scan_where_the_engine_is_allowed(tmp_path: Path) -> None:
    workspace = tmp_path / "workspace"
    assembly = assemble(written(compose_scaffold(MAMBA), tmp_path), [], {}, workspace)
    assert "linear" not in assembly.seams
    assert scan_workspace(workspace, allow_engines=["transformers"]) == []
    refused = scan_workspace(workspace, allow_engines=[])
    assert {refusal.reason_class for refusal in refused} == {"engine_import"}
    assert "transformers==" in (workspace / "requirements.lock").read_text()


def test_components_for_other_seams_than_the_wrapped_ones_still_fit(tmp_path: Path) -> None:
    skills = load_skills(data_dir("skills"))
    chosen = resolve(["continuous-batching", "batched-sampling"], skills)
    assembly = assemble(written(compose_scaffold(MAMBA), tmp_path), chosen, {}, tmp_path / "workspace")
    assert assembly.seams["scheduler"] == "component:continuous-batching"
    assert assembly.seams["sampler"] == "component:batched-sampling"


def test_a_component_for_a_seam_that_is_not_there_is_refused(tmp_path: Path) -> None:
    folder = written(compose_scaffold(MAMBA), tmp_path)
    linears = resolve(["packed-linears"], load_skills(data_dir("skills")))
    with pytest.raises(SpecError, match="'packed-linears' fills seam 'linear', which this scaffold has not"):
        assemble(folder, linears, {}, tmp_path / "workspace")
    assert not (tmp_path / "workspace").exists()


def test_engines_must_be_allowed_and_the_line_to_add_is_said() -> None:
    composition = compose_scaffold(MAMBA)
    assert engine_problem(composition, allow_engines=["transformers"], architecture="mamba2") is None
    assert engine_problem(composition, allow_engines=["vllm"], architecture="mamba2") == (
        "allow_engines: the scaffold of architecture 'mamba2' wraps transformers, which the target does not allow; "
        "add `allow_engines: [transformers, vllm]` to the target"
    )
    assert engine_problem(compose_scaffold(LLAMA), allow_engines=[], architecture="llama") is None


def test_a_target_brings_the_modules_of_a_custom_model(tmp_path: Path) -> None:
    own_test = {"scaffold/tests/test_mine.py": "def test_it() -> None:\n    assert True\n"}
    target = write_target(tmp_path / "target", own_test)
    composition = compose_scaffold(CUSTOM, folders=[target])
    assert composition.layers == (RUNTIME / "custom", target / "scaffold")
    folder = written(composition, tmp_path)
    assert (folder / "runtime/api.py").read_text() == (target / "scaffold/runtime/api.py").read_text()
    assert {"test_mine.py", "test_engine.py"} <= {path.name for path in (folder / "tests").iterdir()}
    assert load_scaffold(folder).brings == ("api", "model")
    assert set(load_scaffold(folder).parameters) == {"device", "dtype", "max_waiting"}


def test_an_inherited_folder_comes_before_the_targets_own(tmp_path: Path) -> None:
    base = write_target(tmp_path / "base")
    own = tmp_path / "own"
    (own / "scaffold/runtime").mkdir(parents=True)
    (own / "scaffold/runtime/api.py").write_text((base / "scaffold/runtime/api.py").read_text() + "\nMORE = 1\n")
    composition = compose_scaffold(CUSTOM, folders=[own, base])
    assert composition.files["runtime/api.py"].is_relative_to(own)
    assert composition.files["runtime/model.py"].is_relative_to(base)


def test_a_target_may_replace_seams_and_bring_modules_that_they_use(tmp_path: Path) -> None:
    own = tmp_path / "target/scaffold/runtime"
    own.mkdir(parents=True)
    (own / "sampler.py").write_text('"""Mine."""\n\nfrom .draws import draw\n')
    (own / "draws.py").write_text('"""Its helper."""\n\n\ndef draw() -> int:\n    return 4\n')
    composition = compose_scaffold(LLAMA, folders=[tmp_path / "target"])
    assert composition.files["runtime/sampler.py"] == own / "sampler.py"
    assert load_scaffold(written(composition, tmp_path)).architectures == ("llama",)


def test_what_a_target_declares_is_added_to_the_parameters(tmp_path: Path) -> None:
    declared = "parameters: {batch: {type: int, default: 4}}\nrequires: [torch]\n"
    target = write_target(tmp_path / "target", {"scaffold/scaffold.yaml": declared})
    scaffold = load_scaffold(written(compose_scaffold(CUSTOM, folders=[target]), tmp_path))
    assert scaffold.parameters["batch"].default == 4
    assert scaffold.requires == ("httptools", "torch", "uvloop")


def test_an_engine_that_the_targets_own_module_imports_counts(tmp_path: Path) -> None:
    target = write_target(tmp_path / "target")
    path = target / "scaffold/runtime/model.py"
    path.write_text(path.read_text().replace("import json", "import json\nimport transformers"))
    composition = compose_scaffold(CUSTOM, folders=[target])
    assert composition.engines == ("transformers",)
    problem = engine_problem(composition, allow_engines=[], architecture="letters")
    assert problem is not None
    assert problem.startswith("allow_engines: the scaffold imports transformers")


def drop_seam_name(target: Path) -> None:
    (target / "scaffold/runtime/modle.py").write_text('"""A slip."""\n')


def replace_the_engine(target: Path) -> None:
    (target / "scaffold/runtime/engine.py").write_text('"""Another one."""\n')


def add_a_stray_folder(target: Path) -> None:
    (target / "scaffold/weights").mkdir()
    (target / "scaffold/weights/a.txt").write_text("x")


def remove_the_model(target: Path) -> None:
    (target / "scaffold/runtime/model.py").unlink()


def forget_the_example(target: Path) -> None:
    path = target / "scaffold/runtime/api.py"
    path.write_text(path.read_text().replace("EXAMPLE:", "SAMPLE:"))


def break_the_syntax(target: Path) -> None:
    (target / "scaffold/runtime/api.py").write_text("PATH = \n")


def import_the_framework(target: Path) -> None:
    path = target / "scaffold/runtime/model.py"
    path.write_text(path.read_text().replace("from .interfaces import", "from vibeserve.contract import"))


def remove_more(target: Path) -> None:
    (target / "scaffold/scaffold.yaml").write_text("removes: [runtime/http.py]\n")


def misspell_a_key(target: Path) -> None:
    (target / "scaffold/scaffold.yaml").write_text("parameter: {}\n")


def declare_half_a_parameter(target: Path) -> None:
    (target / "scaffold/scaffold.yaml").write_text("parameters: {batch: {type: int}}\n")


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (drop_seam_name, "modle.py: is no seam, and no other module of the folder imports it; seams: http, placement"),
        (replace_the_engine, "engine.py: is no seam, so it cannot be replaced; seams: http, placement, api, model"),
        (add_a_stray_folder, "scaffold/weights/a.txt: not part of a scaffold; valid: runtime/, tests/, scaffold.yaml"),
        (remove_the_model, "scaffold/runtime/model.py: missing; a module with load"),
        (forget_the_example, "api.py: does not define EXAMPLE; a module with PATH, EXAMPLE, parse, render"),
        (break_the_syntax, "api.py:1: invalid syntax"),
        (import_the_framework, "model.py: imports vibeserve, which a runtime has to do without"),
        (remove_more, "scaffold.yaml: removes: is the shipped scaffolds' alone; valid: parameters, requires"),
        (misspell_a_key, "scaffold.yaml: parameter: unknown key; valid: schema_version, architectures, requires"),
        (declare_half_a_parameter, "parameters.batch: must be a mapping with at least 'type' and 'default'"),
    ],
)
def test_refused_folders(change: Callable[[Path], None], expected: str, tmp_path: Path) -> None:
    target = write_target(tmp_path / "target")
    change(target)
    assert expected in problems_of(CUSTOM, target)


def test_a_module_that_is_no_text_is_named(tmp_path: Path) -> None:
    target = write_target(tmp_path / "target")
    (target / "scaffold/runtime/api.py").write_bytes(b"PATH = '\xff'\n")
    assert problems_of(CUSTOM, target).splitlines()[0].endswith("scaffold/runtime/api.py: not UTF-8")


def test_a_folder_without_its_file_is_no_scaffold(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match=r"no scaffold\.yaml, so not a scaffold"):
        load_scaffold(tmp_path)


def test_a_scaffold_file_must_be_a_mapping_of_known_shapes(tmp_path: Path) -> None:
    for text, expected in (("- a\n", "must be a mapping"), ("requires: a\n", "requires: must be a list of strings")):
        (tmp_path / "scaffold.yaml").write_text(text)
        with pytest.raises(SpecError, match=expected):
            load_scaffold(tmp_path)


def test_an_architecture_that_nothing_wraps_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    base = tmp_path / "templates/runtime/text"
    base.mkdir(parents=True)
    (base / "scaffold.yaml").write_text("architectures: [llama, qwen3]\n")
    monkeypatch.setattr("vibeserve.skills.scaffolds.data_dir", lambda name: tmp_path / name)
    assert problems_of(MAMBA) == "model.architecture: the scaffold has no 'mamba2'\n  valid: llama, qwen3"


def test_a_custom_model_without_a_folder_is_told_what_to_bring() -> None:
    message = problems_of(CUSTOM)
    assert "targets/NAME/scaffold/runtime/api.py: missing; a module with PATH, EXAMPLE, parse, render" in message
    assert "targets/NAME/scaffold/runtime/model.py: missing; a module with load" in message


def test_a_modality_without_a_scaffold_is_refused_with_those_that_have_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("custom", "text"):
        (tmp_path / "templates/runtime" / name).mkdir(parents=True)
        for file in ("scaffold.yaml", "service.yaml"):
            (tmp_path / "templates/runtime" / name / file).write_text("architectures: []\n")
    monkeypatch.setattr("vibeserve.skills.scaffolds.data_dir", lambda name: tmp_path / name)
    image = Model(id="d", architecture="show_o2", modality=Modality.image)
    assert problems_of(image) == "model.modality: there is no scaffold for 'image'\n  valid: custom, text"


def test_a_variant_does_without_files_and_parameters_of_the_base(tmp_path: Path) -> None:
    """A model that draws token by token has neither a flow's layers nor its steps."""
    flow = compose_scaffold(Model(id="d", architecture="show_o2", modality=Modality.image))
    codes = compose_scaffold(Model(id="d", architecture="janus", modality=Modality.image))
    assert {"runtime/layers.py", "runtime/semantic.py"} <= set(flow.files) - set(codes.files)
    assert set(flow.parameters) - set(codes.parameters) == {"max_steps", "default_steps"}
    assert set(codes.parameters) - set(flow.parameters) == {"default_temperature"}
    workspace = tmp_path / "workspace"
    assemble(written(codes, tmp_path), [], {}, workspace)
    assert scan_workspace(workspace, allow_engines=[]) == []
    assert "default_temperature" in (workspace / "runtime/parameters.py").read_text()
    assert "max_steps" not in (workspace / "runtime/parameters.py").read_text()


def test_an_image_model_that_nothing_draws_is_refused_with_those_that_something_does() -> None:
    dalle = Model(id="d", architecture="dalle", modality=Modality.image)
    assert problems_of(dalle) == "model.architecture: the scaffold has no 'dalle'\n  valid: janus, show_o2"


def test_a_draft_that_was_left_behind_is_no_obstacle(tmp_path: Path) -> None:
    (tmp_path / ".scaffold.draft/runtime").mkdir(parents=True)
    (tmp_path / ".scaffold.draft/runtime/old.py").write_text("")
    folder = written(compose_scaffold(MAMBA), tmp_path)
    assert not (folder / "runtime/old.py").exists()
    assert written(compose_scaffold(MAMBA), tmp_path) == folder


def test_the_assembly_of_a_custom_scaffold_lists_its_own_seams(tmp_path: Path) -> None:
    target = write_target(tmp_path / "target")
    folder = written(compose_scaffold(CUSTOM, folders=[target]), tmp_path)
    assemble(folder, [], {"max_waiting": 7}, tmp_path / "workspace")
    assembly = json.loads((tmp_path / "workspace/runtime/assembly.json").read_text())
    assert set(assembly["seams"]) == {"http", "model", "placement"}
    assert assembly["parameters"] == {"device": "cpu", "dtype": "float32", "max_waiting": 7}
    assert "max_waiting: int = 7" in (tmp_path / "workspace/runtime/parameters.py").read_text()
    assert scan_workspace(tmp_path / "workspace", allow_engines=[]) == []


def names(model: Model) -> list[str]:
    """Components that apply to a model on this kind of CPU."""
    from vibeserve.skills import applicable
    from vibeserve.skills.conditions import TargetFacts

    facts = TargetFacts(
        architecture=model.architecture, modality=model.modality.value, hardware="cpu", precision="any",
        cpu_flags=frozenset({"avx2", "avx512f", "avx512_vnni"}), reuse="none",
    )  # fmt: skip
    cards = [skill.card for skill in load_skills(data_dir("skills")) if skill.card is not None]
    return [card.name for card in cards if applicable(card, facts=facts) is None]


def test_no_card_applies_to_a_custom_model_and_only_the_samplers_to_a_wrapped_one() -> None:
    assert names(CUSTOM) == []
    assert names(Model(id="e", architecture="llama", modality=Modality.custom)) == []
    assert names(MAMBA) == ["batched-sampling"]
    hybrid = names(Model(id="f", architecture="olmo_hybrid"))
    assert {"batched-delta-rule", "continuous-batching", "widened-bf16-linears"} <= set(hybrid)
    assert not {"hybrid-prefix-cache", "native-forward", "batched-decode-attention"} & set(hybrid)
    assert not {"batched-delta-rule", "hybrid-prefix-cache"} & set(names(LLAMA))
    assert "widened-bf16-linears" in names(LLAMA)


def test_components_for_images_apply_to_one_way_to_draw_or_to_both() -> None:
    flow, codes = (names(Model(id="d", architecture=each, modality=Modality.image)) for each in ("show_o2", "janus"))
    assert flow == ["guided-pair-batch", "packed-image-linears", "text-prefix-rows"]
    assert codes == ["guided-token-pair", "packed-image-linears"]
