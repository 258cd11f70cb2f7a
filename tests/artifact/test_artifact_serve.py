"""`vibeserve serve`: refuses changed bytes; starts the packaged scaffold on the tiny model; ends on signals."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from artifact_samples import sample_contents

from vibeserve.artifact import Packaged, package, resolve_artifact, verify_bytes
from vibeserve.artifact.example import example_lines
from vibeserve.artifact.serve import main, refuse_changed
from vibeserve.core.paths import data_dir
from vibeserve.errors import InfraError, RefusedError, SpecError
from vibeserve.journal import Journal
from vibeserve.spec import Hardware, Modality, Model, Spec, TargetInfo


def test_changed_bytes_are_not_served(packaged: Packaged) -> None:
    refuse_changed(packaged.path)
    (packaged.path / "runtime" / "service.yaml").write_text("argv: [sh]\n")
    with pytest.raises(
        RefusedError, match=r"is not served: it is not what was packaged\n  runtime/service.yaml was changed"
    ):
        main([str(packaged.path)])


@pytest.mark.parametrize("argv", [["/nowhere"], ["x", "--host", "10.0.0.1"], ["x", "--port", "many"]])
def test_a_wrong_command_line_says_what_is_valid(argv: list[str]) -> None:
    with pytest.raises(SpecError):
        main(argv)


@pytest.mark.parametrize("port", ["abc", "65536", "-1"])
def test_what_is_no_port_is_told_from_what_is_one(port: str) -> None:
    with pytest.raises(SpecError, match=rf"argument --port: {port} is no TCP port: 0 \(a free one\) to 65535"):
        main(["x", f"--port={port}"])


def test_a_port_in_use_is_told_before_anything_is_built(packaged: Packaged) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        with pytest.raises(InfraError, match=rf"^port {port} is in use\nnext: name another --port"):
            main([str(packaged.path), "--port", str(port)])


CURL = "curl http://h:1/v1/{} -H 'content-type: application/json' -d '{}'"


@pytest.mark.parametrize(
    ("modality", "api", "expected"),
    [
        (Modality.text, None, CURL.format("completions", '{"model": "m", "prompt": "The sea is", "max_tokens": 32}')),
        (
            Modality.custom, "embedding",
            CURL.format("embeddings", '{"model": "m", "input": ["A short text.", "Another one."]}'),
        ),
        (Modality.custom, "custom", CURL.format("features", '{"input": "A short text."}')),
        (Modality.custom, None, "curl http://h:1/health"),
    ],
)  # fmt: skip
def test_the_example_is_of_the_runtimes_own_route(
    modality: Modality, api: str | None, expected: str, tmp_path: Path
) -> None:
    spec = Spec(target=TargetInfo(name="sample"), model=Model(modality=modality))
    with Journal.open(tmp_path / "journal.jsonl") as journal:
        path = package(sample_contents(tmp_path, spec=spec), out_dir=tmp_path / "artifacts", journal=journal).path
    if api:
        own = data_dir("templates") / "target" / api / "scaffold/runtime/api.py"
        (path / "runtime/runtime").mkdir(exist_ok=True)
        (path / "runtime/runtime/api.py").write_text(own.read_text())
    assert example_lines(path, url="http://h:1", model="m") == [expected]


@pytest.mark.parametrize("api", ["PATH = f()\nEXAMPLE = {}\n", "PATH = '/x'\nEXAMPLE = [1]\n", "PATH = (\n"])
def test_a_module_that_shows_no_example_is_not_run_for_one(api: str, packaged: Packaged) -> None:
    spec = packaged.path / "spec.yaml"
    spec.write_text(spec.read_text().replace("modality: text", "modality: custom"))
    (packaged.path / "runtime/runtime").mkdir(exist_ok=True)
    (packaged.path / "runtime/runtime/api.py").write_text(api)
    assert example_lines(packaged.path, url="http://h:1", model="m") == ["curl http://h:1/health"]


def test_an_artifact_is_found_from_below_its_repository(packaged: Packaged, monkeypatch: pytest.MonkeyPatch) -> None:
    root = packaged.path.parents[2]
    (root / "targets").mkdir()
    (root / "one" / "sub").mkdir(parents=True)
    monkeypatch.chdir(root / "one" / "sub")
    assert resolve_artifact(Path("artifacts/sample/latest")) == packaged.path
    with pytest.raises(SpecError, match="artifacts/other is no artifact: there is no such folder"):
        resolve_artifact(Path("artifacts/other"))


@contextmanager
def serving(artifact: Path, cache: Path) -> Iterator[tuple[subprocess.Popen[str], dict[str, Any]]]:
    argv = [sys.executable, "-m", "vibeserve.cli.main", "serve", str(artifact), "--json"]
    environment = os.environ | {"VIBESERVE_CACHE": str(cache)}
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment) as process:
        try:
            assert process.stdout is not None and process.stderr is not None
            first = process.stdout.readline()
            assert first, process.stderr.read()
            yield process, json.loads(first)
        finally:
            if process.poll() is None:
                process.send_signal(signal.SIGINT)
                process.wait(30)


@pytest.fixture(scope="module")
def scaffold_artifact(tmp_path_factory: pytest.TempPathFactory, tiny_model: Model) -> Path:
    from vibeserve.skills import assemble

    folder = tmp_path_factory.mktemp("served")
    assemble(data_dir("templates") / "runtime" / "text", [], {}, folder / "assembled")
    spec = Spec(target=TargetInfo(name="sample"), model=tiny_model, hardware=Hardware(name="here"))
    contents = sample_contents(folder, workspace=folder / "assembled", spec=spec)
    with Journal.open(folder / "journal.jsonl") as journal:
        return package(contents, out_dir=folder / "artifacts", journal=journal).path


def complete(facts: dict[str, Any]) -> dict[str, Any]:
    url = facts["url"]
    body = json.dumps({"model": facts["model"], "prompt": "The sea", "max_tokens": 4, "ignore_eos": True}).encode()
    request = urllib.request.Request(f"{url}/v1/completions", body, {"content-type": "application/json"})
    with urllib.request.urlopen(request, timeout=60) as response:
        answer: dict[str, Any] = json.load(response)
    return answer


@pytest.mark.slow
def test_the_packaged_runtime_answers_and_ends_on_signals(scaffold_artifact: Path, tmp_path: Path) -> None:
    with serving(scaffold_artifact.parent / "latest", tmp_path) as (process, facts):
        assert complete(facts)["usage"]["completion_tokens"] == 4
        assert (facts["target"], facts["plan_id"]) == ("sample", scaffold_artifact.name)
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 130
    built = sorted((tmp_path / "served").glob("*/built.json"))
    stamp = built[0].stat().st_mtime_ns
    with serving(scaffold_artifact, tmp_path) as (process, facts):
        assert complete(facts)["usage"]["completion_tokens"] == 4
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0
    assert len(built) == 1 and built[0].stat().st_mtime_ns == stamp
    assert not list((tmp_path / "served").glob("*/run-*"))
    assert verify_bytes(scaffold_artifact) == []
