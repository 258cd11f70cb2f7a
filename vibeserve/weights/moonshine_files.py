"""Moonshine as its own library ships it (PyPI `moonshine-voice` up to 0.0.73): `.ort` files of 8 bits, by transformers'
names.

The files are an export of transformers' class, so names map one to one. Matrices are stored as
`(q - zero) * scale`, [in, out], by tensor or by column; what comes out is f32, and exactly what the library multiplies.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vibeserve.errors import WeightsError
from vibeserve.weights.ort_files import Node, OrtGraph, read_ort

if TYPE_CHECKING:
    from numpy.typing import NDArray

ENCODER_FILE, DECODER_FILE = "encoder_model.ort", "decoder_model_merged.ort"
QUANTISED = "_quantized"
MULTIPLIES = ("DynamicQuantizeMatMul", "MatMulIntegerToFloat")
_MERGED = re.compile(r"_merged_[01](?=$|_quantized$|_scale$|_zero_point$)")
_PRODUCT = re.compile(r"/MatMul.*$")
_NORMS = {"onnx::Mul": "groupnorm.weight", "onnx::Add": "groupnorm.bias"}
"""the group norm's affine part, which the export left nameless"""


def read_moonshine(folder: Path) -> dict[str, NDArray[Any]]:
    """Tensors by transformers' name, f32. WeightsError where the folder holds no such files."""
    tensors: dict[str, NDArray[Any]] = {}
    for name, prefix in ((ENCODER_FILE, "model.encoder."), (DECODER_FILE, "")):
        path = folder / name
        if not path.is_file():
            raise WeightsError(f"{path}: missing; Moonshine's own files are {ENCODER_FILE} and {DECODER_FILE}")
        for key, values in _named(read_ort(path)):
            tensors.setdefault(prefix + key, values)
    return tensors


def _named(graph: OrtGraph) -> Iterator[tuple[str, NDArray[Any]]]:
    for name, values in graph.tensors.items():
        plain = _MERGED.sub("", name)
        if plain.endswith("embed_tokens.weight" + QUANTISED):
            yield plain.removesuffix(QUANTISED), _dequantised(graph, name)
        elif re.fullmatch(r"(conv\d|.*norm|.*\.fc\d|layer_norm)\.(weight|bias)", plain) and values.dtype.kind == "f":
            yield plain, values
        elif re.fullmatch(r"conv\d\.weight_add_tensor", plain):
            yield plain.removesuffix("_add_tensor"), values
        elif plain.partition("_")[0] in _NORMS and values.dtype.kind == "f" and values.ndim == 2:
            yield _NORMS[plain.partition("_")[0]], values.reshape(-1)
    for node in graph.nodes:
        if node.kind in MULTIPLIES and (path := _path_of(node)):
            yield f"{path}.weight", _dequantised(graph, node.inputs[1]).T.copy()


def _path_of(node: Node) -> str:
    """`/model/decoder/layers.0/mlp/fc1/MatMul_quant` -> `model.decoder.layers.0.mlp.fc1`; empty for other products."""
    path = _PRODUCT.sub("", _MERGED.sub("", node.name)).strip("/").replace("/", ".")
    return path if re.search(r"(_proj|fc\d|proj_out)$", path) else ""


def _dequantised(graph: OrtGraph, name: str) -> NDArray[Any]:
    base = name.removesuffix(QUANTISED)
    quantised, scale, zero = graph.tensors[name], graph.tensors[f"{base}_scale"], graph.tensors[f"{base}_zero_point"]
    values: NDArray[Any] = ((quantised.astype("f4") - zero.astype("f4")) * scale).astype("f4")
    return values
