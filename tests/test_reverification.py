"""An artifact does not choose the rules by which it is judged."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from numbers_target import CHECK, numbers_spec, write_target

from vibeserve.config import compose_spec
from vibeserve.core.manifest import Manifest
from vibeserve.errors import RefusedError
from vibeserve.modalities import bundle_ref
from vibeserve.modalities.copies import copy_contract, judged_by, own_code
from vibeserve.rules import loosened, refuse_own_rules, take_contract
from vibeserve.spec import Spec, Tolerances


@pytest.fixture(scope="module")
def spec() -> Spec:
    return compose_spec(["+target=tiny_cpu"])


def manifest(**changes: str) -> Manifest:
    facts = {"target": "tiny_cpu", "plan_id": "0" * 16, "status": "certified", "level": "quick", "created_at": ""}
    return Manifest(**{**facts, **changes}, sandbox_tier="A", hardware={})  # type: ignore[arg-type]


def test_the_frameworks_own_tolerances_pass_and_stricter_ones_too(spec: Spec) -> None:
    refuse_own_rules(spec, manifest=manifest(), plan_id="")
    refuse_own_rules(spec, manifest=manifest(), plan_id="0" * 16)
    assert loosened(replace(Tolerances(), top1_agreement_min=0.99, logprob_share=4)) == []


@pytest.mark.parametrize(
    "milder",
    [{"top1_agreement_min": 0.0}, {"mean_margin_max_nats": 9.0}, {"logprob_share": 0}, {"logprob_share": 1000},
     {"disagreement_margin_max_nats": float("nan")}],
)  # fmt: skip
def test_milder_tolerances_are_refused_by_name(spec: Spec, milder: dict[str, float]) -> None:
    forged = replace(spec, evaluation=replace(spec.evaluation, tolerances=replace(Tolerances(), **milder)))
    with pytest.raises(RefusedError, match=f"evaluation[.]tolerances: {next(iter(milder))} is") as info:
        refuse_own_rules(forged, manifest=manifest(), plan_id="")
    assert {reason.reason_class for reason in info.value.reasons} == {"own_rules"}  # type: ignore[attr-defined]


def test_a_spec_of_another_target_or_plan_is_refused(spec: Spec) -> None:
    with pytest.raises(RefusedError, match=r"spec\.yaml is of target 'tiny_cpu', manifest\.json of 'smollm2_cpu'"):
        refuse_own_rules(spec, manifest=manifest(target="smollm2_cpu"), plan_id="")
    with pytest.raises(RefusedError, match=r"compiles to plan 1{16}, manifest\.json claims 0{16}"):
        refuse_own_rules(spec, manifest=manifest(), plan_id="1" * 16)


def test_milder_limits_are_refused_over_those_of_the_check(spec: Spec) -> None:
    def forged(**limits: float) -> Spec:
        tolerances = replace(Tolerances(), limits={key.replace("__", "/"): bound for key, bound in limits.items()})
        return replace(spec, evaluation=replace(spec.evaluation, tolerances=tolerances))

    refuse_own_rules(forged(margin__mean=0.0001, margin__max=1.0), manifest=manifest(), plan_id="")
    with pytest.raises(RefusedError, match=r"limits\.margin/mean is 1, milder than 0\.\d+"):
        refuse_own_rules(forged(margin__mean=1.0), manifest=manifest(), plan_id="")
    with pytest.raises(RefusedError, match=r"limits\.margin/mean: nan is no finite number"):
        refuse_own_rules(forged(margin__mean=float("nan")), manifest=manifest(), plan_id="")


def test_bounds_that_are_gone_are_milder_and_new_ones_are_not() -> None:
    base = replace(Tolerances(), limits={"cosine/max": 0.1})
    assert loosened(Tolerances(), than=base) == ["limits lack cosine/max, which is at most 0.1"]
    assert loosened(replace(base, limits={"cosine/max": 0.2}), than=base) == [
        "limits.cosine/max is 0.2, milder than 0.1"
    ]
    assert loosened(replace(base, limits={"cosine/max": 0.05, "cosine/mean": 9.0}), than=base) == []


# -- an artifact that brings its target's own files


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository of the verifier's, without targets of its own, where the command runs."""
    (tmp_path / "repository/targets").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "repository")
    return tmp_path / "repository"


@pytest.fixture
def packaged(tmp_path: Path) -> Path:
    """`contract/` of an artifact."""
    folder = write_target(tmp_path / "origin/numbers")
    (folder / "data").mkdir()
    (folder / "data/words.txt").write_text("a b c\n", encoding="utf-8")
    assert copy_contract(numbers_spec(folder), tmp_path / "artifact/contract")
    return tmp_path / "artifact/contract"


NUMBERS = """
model: {id: numbers, architecture: none, modality: custom, source: {kind: folder, path: model}}
hardware: {name: cpu}
workload: {kind: custom, loads: {c1: {concurrency: 1}}, headline_load: c1}
baseline: {scaffold: {}}
goals: [{metric: request_throughput, min_ratio: 1.1, against: scaffold}]
"""


def own_copy(repository: Path, **changes: str) -> Path:
    """The same target in the verifier's own repository."""
    folder = write_target(repository / "targets/numbers", **changes)
    (folder / "target.yaml").write_text(NUMBERS, encoding="utf-8")
    for name, text in {"data/words.txt": "a b c\n", "model/config.json": "{}"}.items():
        (folder / name).parent.mkdir()
        (folder / name).write_text(text, encoding="utf-8")
    return folder


def take(packaged: Path, tmp_path: Path, *, is_vouched: bool = False) -> Spec:
    artifact_spec = numbers_spec(tmp_path / "gone/numbers")
    return take_contract(artifact_spec, contract=packaged, is_vouched=is_vouched, destination=tmp_path / "taken")


def test_rules_that_nobody_vouches_for_are_not_run(repository: Path, packaged: Path, tmp_path: Path) -> None:
    with pytest.raises(RefusedError) as info:
        take(packaged, tmp_path)
    text = str(info.value)
    assert "nobody vouches for contract/, which holds rules of the target's own (check.py, data/words.txt, " in text
    assert "next: verify it where your own targets/ hold the target, or name its origin's digest by --expect" in text
    assert [(reason.gate, reason.reason_class) for reason in info.value.reasons] == [("spec", "unvouched_contract")]  # type: ignore[attr-defined]


def test_the_origins_digest_vouches_for_them(repository: Path, packaged: Path, tmp_path: Path) -> None:
    taken = take(packaged, tmp_path, is_vouched=True)
    ref = bundle_ref(taken)
    assert ref.check == f"file:{tmp_path}/taken/check.py"
    assert set(own_code(ref)) == {"reference", "workload", "check", "faults"}
    assert (tmp_path / "taken/data/words.txt").is_file()
    assert judged_by(ref).startswith(f"judged by the target's own check.py, sha256 {own_code(ref)['check']} (beside ")


@pytest.mark.parametrize("is_vouched", [False, True])
def test_the_verifiers_own_target_vouches_for_them_and_an_other_one_refuses(
    repository: Path, packaged: Path, tmp_path: Path, is_vouched: bool
) -> None:
    folder = own_copy(repository)
    assert take(packaged, tmp_path, is_vouched=is_vouched).target.dir == str(tmp_path / "taken")
    (folder / "check.py").write_text(CHECK.replace("0.01", "0.001").lstrip(), encoding="utf-8")
    with pytest.raises(RefusedError, match=r"check\.py of contract/ differ from your own target 'numbers'"):
        take_contract(
            numbers_spec(tmp_path / "gone/numbers"), contract=packaged, is_vouched=is_vouched,
            destination=tmp_path / "again",
        )  # fmt: skip


def test_limits_of_an_own_check_are_held_against_the_verifiers_own_target(
    repository: Path, packaged: Path, tmp_path: Path
) -> None:
    own_copy(repository)
    taken = take(packaged, tmp_path)
    refuse_own_rules(taken, manifest=manifest(target="numbers"), plan_id="")
    taken.evaluation.tolerances.limits = {"error/max": 5.0}
    with pytest.raises(RefusedError, match=r"evaluation\.tolerances: limits\.error/max is 5, milder than 0\.01"):
        refuse_own_rules(taken, manifest=manifest(target="numbers"), plan_id="")


def test_an_artifact_without_files_uses_none_that_lie_here(tmp_path: Path, repository: Path) -> None:
    folder = write_target(repository / "targets/tiny_cpu")
    spec = compose_spec(["+target=tiny_cpu"], cwd=Path(__file__).parents[1])
    spec.target.dir = str(folder)
    taken = take_contract(spec, contract=None, is_vouched=False, destination=tmp_path / "taken")
    assert own_code(bundle_ref(taken)) == {}
    assert judged_by(bundle_ref(taken)) == "judged by vibeserve.modalities.text.check"


def test_weights_beside_the_target_are_found_where_the_verifier_has_them(
    repository: Path, packaged: Path, tmp_path: Path
) -> None:
    own_copy(repository)
    spec = compose_spec(["+target=numbers"])
    spec.target.dir = "/gone"
    taken = take_contract(spec, contract=packaged, is_vouched=False, destination=tmp_path / "taken")
    assert (Path(taken.target.dir) / "model/config.json").is_file()
