"""Where a target's four files come from, and what each of them must define."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from numbers_target import CHECK, FAULTS, REFERENCE, WORKLOAD, numbers_bundle, numbers_ref, numbers_spec, write_target

from vibeserve.contract import Limit, Request, Statistic
from vibeserve.core.documents import from_data, to_data
from vibeserve.errors import ContractError, SpecError
from vibeserve.modalities import BundleRef, bundle_ref, contract_files, open_bundle
from vibeserve.modalities.limits import key_of, milder, with_overrides
from vibeserve.spec import Modality, ModelSource, Spec, TargetInfo


def test_a_files_of_the_folder_comes_before_the_built_in_one(tmp_path: Path) -> None:
    folder = write_target(tmp_path / "mine", reference="", workload="", faults="")
    ref = bundle_ref(Spec(target=TargetInfo(name="mine", dir=str(folder))))
    assert ref.own_files == ("check",)
    assert ref.check == f"file:{folder}/check.py"
    assert ref.reference == "module:vibeserve.modalities.text.reference"
    assert ref.probes == "vibeserve.modalities.text"


def test_files_of_an_inherited_target_come_between_the_two(tmp_path: Path) -> None:
    base = write_target(tmp_path / "base")
    own = write_target(tmp_path / "own", reference="", workload="", faults="", check=CHECK + "\n# own\n")
    spec = numbers_spec(own)
    spec.target.inherited_dirs = [str(base)]
    ref = bundle_ref(spec)
    assert ref.check == f"file:{own}/check.py" and ref.reference == f"file:{base}/reference.py"
    assert {path.parent.name for path in contract_files(spec)} == {"base", "own"}


def test_a_single_file_target_brings_nothing_though_files_lie_beside_it(tmp_path: Path) -> None:
    folder = write_target(tmp_path / "targets")
    (folder / "target.yaml").unlink()
    ref = bundle_ref(Spec(target=TargetInfo(name="mine", dir=str(folder))))
    assert ref.own_files == ()
    assert contract_files(Spec(target=TargetInfo(name="mine", dir=str(folder)))) == []


def test_what_is_neither_in_the_folder_nor_built_in_is_asked_for(tmp_path: Path) -> None:
    folder = write_target(tmp_path / "numbers", check="", faults="")
    with pytest.raises(SpecError) as info:
        numbers_ref(folder)
    text = str(info.value)
    assert "target 'numbers': check.py, faults.py not found" in text
    assert "model.modality is custom; built in: text" in text and f"searched: {folder}" in text


def test_a_reference_to_a_bundle_is_a_document(tmp_path: Path) -> None:
    ref = numbers_ref(write_target(tmp_path / "numbers"), limits={"error/max": 0.5})
    assert from_data(BundleRef, to_data(ref)) == ref
    assert ref.context.tolerances["limits"] == {"error/max": 0.5}


def test_contract_files_are_all_but_the_target_caches_and_the_weights(tmp_path: Path) -> None:
    folder = write_target(tmp_path / "numbers")
    for name in ("data/words.txt", "__pycache__/check.pyc", ".git/HEAD", "model/f32/model.safetensors"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("x", encoding="utf-8")
    spec = numbers_spec(folder)
    spec.model.source = ModelSource(path="model")
    found = [path.relative_to(folder).as_posix() for path in contract_files(spec)]
    assert found == ["check.py", "data/words.txt", "faults.py", "reference.py", "workload.py"]


def test_files_import_each_other_and_share_their_classes(tmp_path: Path) -> None:
    shared = "from dataclasses import dataclass\n\nfrom vibeserve.contract import Request\n\n\n"
    shared += "@dataclass(frozen=True, kw_only=True)\nclass Clip(Request):\n    seconds: float = 0.0\n"
    bundle = numbers_bundle(
        tmp_path / "numbers", shapes=shared, workload=WORKLOAD + "\nfrom shapes import Clip as REQUEST\n",
        check="from shapes import Clip\nfrom workload import REQUEST\n" + CHECK + "\nassert REQUEST is Clip\n",
    )  # fmt: skip
    assert bundle.check.LIMITS
    assert bundle.request_type(request_id="a", seconds=1.0) == bundle.request_type(request_id="a", seconds=1.0)  # type: ignore[call-arg]
    assert issubclass(bundle.request_type, Request) and not list((tmp_path / "numbers").rglob("__pycache__"))


def test_each_file_says_what_it_lacks(tmp_path: Path) -> None:
    bundle = numbers_bundle(
        tmp_path / "numbers", workload=WORKLOAD.replace("async def send", "async def sent"),
        check=CHECK.replace("def compare", "def compared"), faults=FAULTS.replace("FAULTS =", "FAULT ="),
        reference=REFERENCE.replace("def load", "def loaded"),
    )  # fmt: skip
    assert [text.split("/numbers/")[1].split(";")[0] for text in bundle.problems()] == [
        "workload.py: does not define send",
        "check.py: does not define compare",
        "faults.py: does not define FAULTS",
        "reference.py: does not define load",
    ]


def test_a_whole_target_has_no_problems(tmp_path: Path) -> None:
    assert list(numbers_bundle(tmp_path / "numbers").problems()) == []


def test_limits_are_the_contracts(tmp_path: Path) -> None:
    bundle = numbers_bundle(tmp_path / "numbers", check=CHECK.replace("LIMITS = (", "LIMITS = (0.5,"))
    with pytest.raises(SpecError, match=r"check\.py: LIMITS holds float"):
        bundle.limits  # noqa: B018


ERROR = Limit(distance="error", statistic=Statistic.max, bound=0.1)
SHARE = Limit(distance="error", statistic=Statistic.share_at_least, bound=0.03, at=0.5)


def test_overrides_replace_bounds_or_add_limits() -> None:
    assert [key_of(limit) for limit in (ERROR, SHARE)] == ["error/max", "error/share_at_least/0.5"]
    limits = with_overrides(
        [ERROR, SHARE],
        {"error/max": 0.2, "error/share_at_least/0.5": 0.01, "other/p99": 3, "error/share_at_least/1": 0},
    )
    assert limits == (
        replace(ERROR, bound=0.2), replace(SHARE, bound=0.01),
        Limit(distance="other", statistic=Statistic.p99, bound=3.0),
        Limit(distance="error", statistic=Statistic.share_at_least, bound=0.0, at=1.0),
    )  # fmt: skip


@pytest.mark.parametrize(
    "key", ["error", "error/", "/max", "error/most", "error/max/1", "error/share_at_least", "error/share_at_least/half"]
)
def test_a_key_that_names_no_limit_is_refused(key: str) -> None:
    with pytest.raises(SpecError) as info:
        with_overrides([ERROR], {key: 1.0})
    assert f"tolerances.limits.{key}: expected DISTANCE/STATISTIC, the statistic one" in str(info.value)


@pytest.mark.parametrize("bound", [float("nan"), float("inf")])
def test_a_bound_that_is_no_number_is_refused(bound: float) -> None:
    with pytest.raises(SpecError, match=r"limits\.error/max: (nan|inf) is no finite number"):
        with_overrides([ERROR], {"error/max": bound})


def test_larger_and_absent_limits_are_milder() -> None:
    assert milder([ERROR, SHARE], than=[ERROR]) == []
    assert milder([replace(ERROR, bound=0.05)], than=[ERROR]) == []
    assert milder([replace(ERROR, bound=0.2)], than=[ERROR, SHARE]) == [
        "limits.error/max is 0.2, milder than 0.1",
        "limits lack error/share_at_least/0.5, which is at most 0.03",
    ]


def test_a_syntax_error_is_a_line_of_its_file(tmp_path: Path) -> None:
    bundle = numbers_bundle(tmp_path / "numbers", check="LIMITS = (\n\n")
    with pytest.raises(ContractError, match=r"check\.py:1: SyntaxError"):
        bundle.check  # noqa: B018


def test_a_modality_that_is_built_in_nowhere_needs_a_folder() -> None:
    spec = numbers_spec(Path("/nowhere"))
    with pytest.raises(SpecError, match="the target is a single file, it has no folder"):
        bundle_ref(spec)
    spec.model.modality = Modality.text
    assert open_bundle(bundle_ref(spec)).probes is not None
