"""`vibeserve serve`: refuses changed bytes; starts the packaged scaffold on the tiny model; ends on signals."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from artifact_samples import sample_contents

from vibeserve.artifact import Packaged, package, verify_bytes
from vibeserve.artifact.serve import main, refuse_changed
from vibeserve.core.paths import data_dir
from vibeserve.errors import RefusedError, SpecError
from vibeserve.journal import Journal
from vibeserve.spec import Hardware, Model, Spec, TargetInfo


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
