"""A damaged copy keeps every shape and value of a model's matrices, in another order, by seed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from vibeserve.weights.damaged import damage


@pytest.fixture
def model(tmp_path: Path) -> Path:
    folder = tmp_path / "model"
    generator = np.random.default_rng(0)
    for name, dtype in (("f32", np.float32), ("bf16", np.uint16)):
        (folder / name).mkdir(parents=True)
        tensors = {
            "linear.weight": generator.permutation(24).reshape(6, 4).astype(dtype),
            "norm.weight": np.arange(4, dtype=dtype),
        }
        save_file(tensors, folder / name / "model.safetensors")
        (folder / name / "config.json").write_text("{}")
        (folder / name / "model.safetensors").chmod(0o444)
    (folder / "weights.json").write_text("{}")
    return folder


def test_rows_of_matrices_move_and_nothing_else_does(model: Path, tmp_path: Path) -> None:
    before = load_file(model / "f32" / "model.safetensors")
    assert damage(model, destination=tmp_path / "copy", seed=1) == 2
    for name in ("f32", "bf16"):
        mine, theirs = (load_file(folder / name / "model.safetensors") for folder in (model, tmp_path / "copy"))
        assert not np.array_equal(mine["linear.weight"], theirs["linear.weight"])
        assert sorted(map(tuple, mine["linear.weight"])) == sorted(map(tuple, theirs["linear.weight"]))
        assert np.array_equal(mine["norm.weight"], theirs["norm.weight"])
        assert (tmp_path / "copy" / name / "config.json").read_text() == "{}"
    assert not (tmp_path / "copy" / "weights.json").exists(), "its digests would not hold"
    assert all(
        np.array_equal(before[name], value) for name, value in load_file(model / "f32/model.safetensors").items()
    )


def test_the_same_seed_gives_the_same_order_in_every_format(model: Path, tmp_path: Path) -> None:
    for name, seed in (("one", 1), ("same", 1), ("other", 2)):
        damage(model, destination=tmp_path / name, seed=seed)
    files = {name: (tmp_path / name / "f32/model.safetensors").read_bytes() for name in ("one", "same", "other")}
    assert files["one"] == files["same"] != files["other"]
    order = {}
    for part in ("f32", "bf16"):
        mine, theirs = (load_file(folder / part / "model.safetensors") for folder in (model, tmp_path / "one"))
        rows = [tuple(row) for row in mine["linear.weight"]]
        order[part] = [rows.index(tuple(row)) for row in theirs["linear.weight"]]
    assert order["f32"] == order["bf16"]


def test_rows_of_a_quantised_gguf_move_whole(tmp_path: Path) -> None:
    from gguf import GGMLQuantizationType, GGUFReader, GGUFWriter
    from gguf.quants import quantize

    (tmp_path / "model/original").mkdir(parents=True)
    path = tmp_path / "model/original/model.gguf"
    values = np.random.default_rng(0).standard_normal((8, 64)).astype(np.float32)
    writer = GGUFWriter(path, "llama")
    writer.add_tensor("a.weight", quantize(values, GGMLQuantizationType.Q8_0), raw_dtype=GGMLQuantizationType.Q8_0)
    writer.add_tensor("norm", np.arange(8, dtype=np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    assert damage(tmp_path / "model", destination=tmp_path / "copy", seed=3) == 1
    mine, theirs = (
        {tensor.name: np.array(tensor.data) for tensor in GGUFReader(file).tensors}
        for file in (path, tmp_path / "copy/original/model.gguf")
    )
    assert not np.array_equal(mine["a.weight"], theirs["a.weight"])
    assert sorted(row.tobytes() for row in mine["a.weight"]) == sorted(row.tobytes() for row in theirs["a.weight"])
    assert np.array_equal(mine["norm"], theirs["norm"])


def test_a_model_without_known_weights_is_told(tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    (tmp_path / "model/weights.onnx").write_bytes(b"x")
    assert damage(tmp_path / "model", destination=tmp_path / "copy", seed=1) == 0
