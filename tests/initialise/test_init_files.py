"""The files that `init --from` and `--template custom` write: their style, and that each does what it says."""

from __future__ import annotations

import ast
import asyncio
import base64
import importlib.util
import json
import math
import struct
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import islice
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from init_samples import BERT, MODULES, ModelFolder, pooling_flags

from vibeserve.contract import Context, Fault, Pool, Record, Request, Response, SendError, Window
from vibeserve.initialise.folder_files import causal_files, custom_files, embedding_files
from vibeserve.initialise.inspect_model import Embedding

ROOT = Path(__file__).resolve().parents[2]

TREES: dict[str, Callable[[], Mapping[str, str]]] = {
    "embedding": lambda: embedding_files(
        Embedding(pooling="mean", is_normalised=True, max_tokens=48), class_name="BertModel"
    ),
    "embedding_cls": lambda: embedding_files(
        Embedding(pooling="cls", is_normalised=False, max_tokens=48, is_lowercased=True), class_name="BertModel"
    ),
    "causal_lm": causal_files,
    "custom": custom_files,
}
SERVED = ("embedding", "embedding_cls", "custom")


def write_tree(name: str, folder: Path) -> Path:
    for path, text in TREES[name]().items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text, encoding="utf-8")
    return folder


def load(path: Path, *, package: str = "") -> ModuleType:
    """The module at `path`; of the scaffold with its siblings in reach."""
    name = f"{package}.{path.stem}" if package else f"written_{path.stem}_{abs(hash(path))}"
    found = importlib.util.spec_from_file_location(name, path)
    assert found is not None and found.loader is not None
    module = importlib.util.module_from_spec(found)
    sys.modules[name] = module
    found.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", TREES)
def test_written_files_pass_the_linter_and_the_formatter(name: str, tmp_path: Path) -> None:
    folder = write_tree(name, tmp_path)
    settings = ["--config", str(ROOT / "pyproject.toml")]
    for command in (["check", *settings], ["format", "--check", *settings]):
        argv = [sys.executable, "-m", "ruff", *command, "--no-cache", str(folder)]
        done = subprocess.run(argv, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("name", TREES)
def test_written_files_are_held_to_the_house_style(name: str) -> None:
    for path, text in TREES[name]().items():
        assert "{{" not in text and "{%" not in text, path
        if not path.endswith(".py"):
            continue
        tree = ast.parse(text)
        assert ast.get_docstring(tree), path
        heavy = {"torch", "transformers", "numpy"} - ({"torch"} if path.startswith("scaffold/") else set())
        for node in tree.body:
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            # `vibeserve check` imports these files: that must stay quick
            assert not heavy & {name.split(".")[0] for name in names}, path
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                assert (node.end_lineno or 0) - node.lineno < 40, f"{path}: {node.name}"


@pytest.mark.parametrize("name", TREES)
def test_what_runs_in_the_candidate_imports_nothing_of_the_framework(name: str) -> None:
    for path, text in TREES[name]().items():
        if path.startswith("scaffold/"):
            assert "vibeserve" not in text, path


def context(folder: Path, **options: Any) -> Context:
    return Context(
        model_dir="", target_dir=str(folder), workload={"options": {"words_min": 3, "words_max": 6, **options}},
        tolerances={"limits": {}},
    )  # fmt: skip


@pytest.mark.parametrize("name", SERVED)
def test_requests_are_a_pure_function_and_no_text_comes_twice(name: str, tmp_path: Path) -> None:
    workload = load(write_tree(name, tmp_path) / "workload.py").configure(context(tmp_path))
    texts: list[str] = []
    for pool in Pool:
        for seed in (1, 2):
            first, again = (list(islice(workload.requests(seed, pool), 40)) for _ in range(2))
            assert first == again
            texts += [request.payload["input"] for request in first]
            assert {len(request.payload["input"].split()) for request in first} <= {4, 5, 6, 7}
    assert len(set(texts)) == len(texts)
    assert len({request.request_id for request in first}) == 40


def test_pools_share_no_words_in_a_row(tmp_path: Path) -> None:
    workload = load(write_tree("custom", tmp_path) / "workload.py").configure(
        context(tmp_path, words_min=60, words_max=60)
    )
    seen = {}
    for pool in Pool:
        texts = [request.payload["input"] for request in islice(workload.requests(1, pool), 30)]
        seen[pool] = {" ".join(text.split()[1:13]) for text in texts}
    assert not seen[Pool.visible] & seen[Pool.certification]


class FakeSession:
    """Answers every POST with one body."""

    model = "the-model"
    dialect = "vllm"

    def __init__(self, body: bytes) -> None:
        self.body = body
        self.posted: list[tuple[str, Any]] = []

    def now_s(self) -> float:
        return 0.0

    async def post(self, path: str, body: Any, *, on_line: object = None) -> Response:
        self.posted.append((path, body))
        return Response(status=200, body=self.body, end_s=0.0)


ASKED = Request(request_id="one", payload={"input": "some text"})


def test_an_embedding_is_asked_for_as_openai_does(tmp_path: Path) -> None:
    workload = load(write_tree("embedding", tmp_path) / "workload.py").configure(context(tmp_path))
    session = FakeSession(json.dumps({"data": [{"embedding": [0.5, -1]}]}).encode())
    record = asyncio.run(workload.send(session, ASKED))
    assert record.output == [0.5, -1] and record.request is ASKED
    body = {"model": "the-model", "input": "some text", "encoding_format": "float"}
    assert session.posted == [("/v1/embeddings", body)]


@pytest.mark.parametrize("name", ["embedding", "custom"])
@pytest.mark.parametrize("body", [b"", b"not json", b"[]", b"{}", b'{"data": []}', b'{"data": 3}', b"null"])
def test_a_reply_of_another_shape_is_a_failed_request(name: str, body: bytes, tmp_path: Path) -> None:
    workload = load(write_tree(name, tmp_path) / "workload.py").configure(context(tmp_path))
    with pytest.raises(SendError, match="the reply "):
        asyncio.run(workload.send(FakeSession(body), ASKED))


@pytest.mark.parametrize(("name", "headline"), [("embedding", "embeddings_per_s"), ("custom", "texts_per_s")])
def test_rates_count_what_finished_inside_the_windows(name: str, headline: str, tmp_path: Path) -> None:
    workload = load(write_tree(name, tmp_path) / "workload.py").configure(context(tmp_path))
    ends = [0.5, 1.0, 1.9, 2.0, 3.5, 4.0]
    records = [Record(request=ASKED, output=[1.0], end_s=end) for end in ends]
    records.append(Record(request=ASKED, end_s=1.5, error="HTTP 500"))
    windows = [Window(start_s=1.0, end_s=2.0), Window(start_s=3.0, end_s=4.0)]
    # ends at 1.0, 1.9 and 3.5: a window holds its start and not its end
    assert workload.measure(records, windows)[headline] == 1.5
    assert workload.METRICS[0].name == headline
    assert workload.measure(records, [Window(start_s=8.0, end_s=9.0)]) == {}
    assert workload.measure([], []) == {}


WRONG_OUTPUTS = {
    "none": None, "text": "x", "too short": [1.0], "too long": [1.0, 0.0, 0.0], "nested": [[1.0, 0.0]],
    "not a number": [math.nan, 0.0], "infinite": [math.inf, 0.0], "text inside": ["1.0", 0.0], "truth": [True, 0.0],
    "huge": [10**400, 0],
}  # fmt: skip


@pytest.mark.parametrize("name", ["embedding", "custom"])
@pytest.mark.parametrize("output", WRONG_OUTPUTS.values(), ids=WRONG_OUTPUTS.keys())
def test_what_is_no_vector_has_missing_distances(name: str, output: Any, tmp_path: Path) -> None:
    check = load(write_tree(name, tmp_path) / "check.py")
    distances = check.compare([1.0, 0.0], Record(request=ASKED, output=output))
    assert distances and all(distance.missing and not distance.values for distance in distances)


@pytest.mark.parametrize(
    ("output", "cosine", "error"),
    [
        ([1.0, 0.0], 0.0, 0.0),
        ([2.0, 0.0], 0.0, 1.0),
        ([0, 1], 1.0, 1.0),
        ([-1.0, 0.0], 2.0, 2.0),
        ([0.0, 0.0], 2.0, 1.0),
    ],
)
def test_distances_of_vectors(output: list[float], cosine: float, error: float, tmp_path: Path) -> None:
    check = load(write_tree("embedding", tmp_path) / "check.py")
    by_name = {each.name: each.values for each in check.compare([1.0, 0.0], Record(request=ASKED, output=output))}
    assert by_name == {"cosine_distance": (pytest.approx(cosine),), "abs_error": (pytest.approx(error),)}


class Both:
    """References of the written files."""

    def __init__(self, module: ModuleType, model: Path) -> None:
        self._loaded = {dtype: module.load(str(model), "cpu", dtype) for dtype in ("float32", "bfloat16")}

    def exact(self) -> Any:
        return self._loaded["float32"]

    def rounded(self) -> Any:
        return self._loaded["bfloat16"]


def fault_distances(folder: Path, model: Path) -> dict[str, tuple[Fault, list[dict[str, float]]]]:
    """Distances of every fault's outputs for some requests, by name."""
    workload = load(folder / "workload.py").configure(context(folder, words_min=8, words_max=24))
    check, both = load(folder / "check.py"), Both(load(folder / "reference.py"), model)
    requests = list(islice(workload.requests(1, Pool.visible), 6))
    found = {}
    for fault in load(folder / "faults.py").FAULTS:
        rows = []
        for number, request in enumerate(requests):
            output = fault.make(both, request, requests[(number + 1) % len(requests)])
            record = Record(request=request, output=json.loads(json.dumps(output)))
            rows.append({each.name: each.values[0] for each in check.compare(both.exact().run(request), record)})
        found[fault.name] = (fault, rows)
    return found


def test_faults_of_an_embedding_stand_off_from_noise(encoder_folder: Path, tmp_path: Path) -> None:
    found = fault_distances(write_tree("embedding", tmp_path), encoder_folder)
    assert list(found) == [
        "another_text", "half_the_text", "sign_flipped", "first_token", "not_normalised", "bfloat16"
    ]  # fmt: skip
    noise = {name: max(row[name] for row in found["bfloat16"][1]) for name in ("cosine_distance", "abs_error")}
    for name, (fault, rows) in found.items():
        if fault.is_wrong:
            assert any(min(row[each] for row in rows) > 5 * noise[each] for each in noise), name
    # only the length is wrong, so that the direction alone would not show it
    assert max(row["cosine_distance"] for row in found["not_normalised"][1]) < 1e-5


def test_texts_are_read_in_lower_case_where_the_model_says_so(tmp_path: Path) -> None:
    lowered = (write_tree("embedding_cls", tmp_path / "cls") / "reference.py").read_text()
    assert "texts = [text.lower() for text in texts]" in lowered and "self._tokenizer(text.lower()," in lowered
    assert "lower()" not in (write_tree("embedding", tmp_path / "mean") / "reference.py").read_text()


def test_faults_follow_the_pooling(encoder_folder: Path, tmp_path: Path) -> None:
    found = fault_distances(write_tree("embedding_cls", tmp_path), encoder_folder)
    assert {"mean_of_tokens", "normalised"} < set(found)


def test_faults_of_the_example_stand_off_from_noise(tmp_path: Path) -> None:
    folder = write_tree("custom", tmp_path)
    found = fault_distances(folder, folder / "model")
    noise = max(row["abs_error"] for row in found["bfloat16"][1])
    assert noise > 0
    for fault, rows in found.values():
        assert not fault.is_wrong or min(row["abs_error"] for row in rows) > 5 * noise


def test_the_reference_computes_what_the_model_s_files_say(encoder_folder: Path, tmp_path: Path) -> None:
    """Mean of the token vectors, of length 1, cut at 48 tokens: written here once more in other words."""
    import torch
    from transformers import AutoModel, AutoTokenizer

    text = "The quick brown fox jumps over the lazy dog. " * 8
    ids = AutoTokenizer.from_pretrained(encoder_folder)(text)["input_ids"]
    assert len(ids) > 48
    with torch.inference_mode():
        states = AutoModel.from_pretrained(encoder_folder)(torch.tensor([[*ids[:47], ids[-1]]])).last_hidden_state[0]
    mean = states.mean(0)
    reference = load(write_tree("embedding", tmp_path) / "reference.py").load(str(encoder_folder), "cpu", "float32")
    request = replace(ASKED, payload={"input": text})
    served = torch.tensor(reference.run(request))
    short = replace(ASKED, payload={"input": "a short one"})
    # more than one batch, padded
    many = torch.tensor(reference.score_many([(request, None), (short, None)] * 40))
    assert many.shape[0] == 80 and torch.allclose(many[78], served, atol=1e-5)
    assert torch.allclose(many[1], torch.tensor(reference.run(short)), atol=1e-5)
    assert torch.allclose(served, mean / mean.norm(), atol=1e-5)


@pytest.fixture
def scaffold(tmp_path: Path) -> Callable[[str], tuple[ModuleType, ModuleType]]:
    """(api, model) of a written scaffold beside the stock runtime's interfaces."""

    def make(name: str) -> tuple[ModuleType, ModuleType]:
        package = f"runtime_{name}"
        folder = write_tree(name, tmp_path) / "scaffold" / "runtime"
        stock = ROOT / "templates" / "runtime" / "custom" / "runtime" / "interfaces.py"
        (folder / "interfaces.py").write_text(stock.read_text(), encoding="utf-8")
        (folder / "__init__.py").write_text("")
        for module in [module for module in sys.modules if module.split(".")[0] == package]:
            del sys.modules[module]
        spec = importlib.util.spec_from_file_location(
            package, folder / "__init__.py", submodule_search_locations=[str(folder)]
        )
        assert spec is not None and spec.loader is not None
        sys.modules[package] = importlib.util.module_from_spec(spec)
        return load(folder / "api.py", package=package), load(folder / "model.py", package=package)

    return make


def test_the_scaffold_serves_what_the_reference_says(
    scaffold: Callable[[str], tuple[ModuleType, ModuleType]], encoder_folder: Path, tmp_path: Path
) -> None:
    api, model = scaffold("embedding")
    reference = load(tmp_path / "reference.py").load(str(encoder_folder), "cpu", "float32")
    request = Request(request_id="x", payload=api.parse({"model": "m", "input": ["one text", "and another"]}))
    body = api.render(model.load(str(encoder_folder), "cpu", "float32").run(request))
    assert [entry["index"] for entry in body["data"]] == [0, 1]
    assert body["model"] == "m" and body["object"] == "list"
    assert body["usage"]["prompt_tokens"] == body["usage"]["total_tokens"] > 4
    for entry, text in zip(body["data"], ("one text", "and another"), strict=True):
        assert entry["embedding"] == pytest.approx(reference.run(replace(ASKED, payload={"input": text})), abs=1e-6)


def test_the_packed_form_that_stock_clients_ask_for(
    scaffold: Callable[[str], tuple[ModuleType, ModuleType]],
) -> None:
    api, _ = scaffold("embedding")
    asked = api.parse({"input": "x", "encoding_format": "base64"})
    body = api.render(api.Result(vectors=[[0.5, -2.0]], num_tokens=3, asked=asked))
    packed = base64.b64decode(body["data"][0]["embedding"])
    assert struct.unpack("<2f", packed) == (0.5, -2.0)


@pytest.mark.parametrize(
    ("body", "text"),
    [
        ({}, "input: expected a text or a list of texts, none of them empty"),
        ({"input": ""}, "input: expected a text"),
        ({"input": []}, "input: expected a text"),
        ({"input": [1, 2]}, "input: expected a text"),
        ({"input": ["a", ""]}, "input: expected a text"),
        ({"input": "a", "encoding_format": "int8"}, "encoding_format: expected one of float, base64"),
        ({"input": "a", "dimensions": 64}, "dimensions: this model's vectors have one length"),
    ],
)
def test_bodies_that_the_route_refuses(
    body: dict[str, Any], text: str, scaffold: Callable[[str], tuple[ModuleType, ModuleType]]
) -> None:
    api, _ = scaffold("embedding")
    with pytest.raises(ValueError, match=text):
        api.parse(body)


def test_the_example_serves_what_its_reference_says(
    scaffold: Callable[[str], tuple[ModuleType, ModuleType]], tmp_path: Path
) -> None:
    api, model = scaffold("custom")
    served = model.load(str(tmp_path / "model"), "cpu", "float32")
    reference = load(tmp_path / "reference.py").load(str(tmp_path / "model"), "cpu", "float32")
    body = api.render(served.run(Request(request_id="x", payload=api.parse({"input": "Abba, a!"}))))
    assert body["features"] == reference.run(replace(ASKED, payload={"input": "Abba, a!"}))
    assert body["features"][:2] == [pytest.approx(0.6), pytest.approx(0.4)]
    assert sum(served.run(Request(request_id="x", payload="1234"))) == 0
    with pytest.raises(ValueError, match="input: expected a text that is not empty"):
        api.parse({"input": ""})


def test_a_causal_folder_extends_the_built_in_faults(tmp_path: Path) -> None:
    folder = write_tree("causal_lm", tmp_path)
    faults = load(folder / "faults.py").configure(context(folder)).FAULTS
    assert [fault.name for fault in faults if not fault.is_wrong] == ["bfloat16"]
    assert faults[-1].name == "one_token_late"

    class Right:
        def run(self, request: Request) -> Any:
            return {"token_ids": [5, 6, 7], "text": "", "logprobs": [0.0] * 3}

    class Exact:
        def exact(self) -> Any:
            return Right()

    assert faults[-1].make(Exact(), ASKED, ASKED)["token_ids"] == [5, 5, 6]


def test_facts_give_the_constants(model_folder: ModelFolder) -> None:
    from vibeserve.initialise.inspect_model import inspect_folder

    documents = {"modules": MODULES, "1_Pooling__config": pooling_flags("mean_tokens")}
    facts = inspect_folder(model_folder(BERT, **documents))
    assert facts.embedding is not None
    text = embedding_files(facts.embedding, class_name=facts.class_name)["reference.py"]
    assert "MAX_TOKENS = 64\n" in text and 'POOLING = "mean"\n' in text and "IS_NORMALISED = True\n" in text
