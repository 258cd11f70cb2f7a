"""The scaffold of models that no modality knows, with a model that counts letters."""

from __future__ import annotations

import http.client
import json
import os
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from runtime_process import RunningServer, serving
from scaffold_samples import write_target

from vibeserve.skills import assemble, compose_scaffold, write_scaffold
from vibeserve.spec import Modality, Model, ModelSource, SourceKind
from vibeserve.weights import materialise

LETTERS = Model(
    id="letters", architecture="letters", modality=Modality.custom,
    source=ModelSource(kind=SourceKind.folder, path="model"),
)  # fmt: skip
SLOW_S = 0.5


def workspace_of(target: Path, folder: Path, **parameters: Any) -> Path:
    scaffold = write_scaffold(compose_scaffold(LETTERS, folders=[target]), folder / "scaffold")
    assemble(scaffold, [], parameters, folder / "workspace")
    return folder / "workspace"


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_target(tmp_path_factory.mktemp("target"))


@pytest.fixture(scope="module")
def model_dir(target: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return materialise(LETTERS, cache=tmp_path_factory.mktemp("cache"), target_dir=target).path


@pytest.fixture(scope="module")
def workspace(target: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return workspace_of(target, tmp_path_factory.mktemp("assembled"))


@pytest.fixture(scope="module")
def server(workspace: Path, model_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    with serving(workspace, model_dir, log=tmp_path_factory.mktemp("log") / "server.log") as running:
        yield running


def error_of(server: RunningServer, body: Any, *, path: str = "/v1/letters") -> tuple[int, dict[str, Any]]:
    with pytest.raises(urllib.error.HTTPError) as caught:
        server.post(path, body)
    error: dict[str, Any] = json.load(caught.value)["error"]
    return caught.value.code, error


@pytest.mark.slow
def test_the_runtimes_own_tests_pass(workspace: Path, model_dir: Path) -> None:
    environment = {**os.environ, "VIBESERVE_MODEL_DIR": str(model_dir), "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests"]
    done = subprocess.run(command, cwd=workspace, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-3000:]


@pytest.mark.slow
def test_a_reply_and_the_routes_around_it(server: RunningServer) -> None:
    assert server.post("/v1/letters", {"input": "A banana, a cab."}) == {"counts": [6, 2, 1]}
    (card,) = server.get("/v1/models")["data"]
    assert card["id"] == "letters"
    assert server.post("/v1/letters", {"input": "b", "model": "letters"}) == {"counts": [0, 1, 0]}
    assert server.get("/live") == {"status": "live"}
    assert 'finished_reason="stop"' in server.text("/metrics")


@pytest.mark.slow
def test_errors_have_the_shape_of_the_api(server: RunningServer) -> None:
    assert error_of(server, {"text": "a"}) == (
        400,
        {"message": "'input' must be a text", "type": "invalid_request_error", "param": None, "code": None},
    )
    assert error_of(server, {"input": "a", "model": "another"})[1]["code"] == "model_not_found"
    assert error_of(server, {"input": "a"}, path="/v1/nothing")[0] == 404


@pytest.mark.slow
def test_the_log_is_json_without_what_was_asked(server: RunningServer) -> None:
    server.post("/v1/letters", {"input": "a very secret text"})
    entries = [json.loads(line) for line in server.log.read_text().splitlines()]
    assert any(entry.get("path") == "/v1/letters" and entry["status"] == 200 for entry in entries)
    assert "secret" not in server.log.read_text()


def slow_workspace(target: Path, folder: Path, **parameters: Any) -> Path:
    """A model that takes its time, so that something can happen meanwhile."""
    workspace = workspace_of(target, folder, **parameters)
    path = workspace / "runtime/model.py"
    text = path.read_text().replace("import json\n", "import json\nimport time\n")
    path.write_text(text.replace("        return [", f"        time.sleep({SLOW_S})\n        return [", 1))
    return workspace


@pytest.mark.slow
def test_sigterm_drains_and_exits_cleanly(target: Path, model_dir: Path, tmp_path: Path) -> None:
    with serving(slow_workspace(target, tmp_path), model_dir, log=tmp_path / "log") as running:
        connection = http.client.HTTPConnection("127.0.0.1", running.port, timeout=60)
        connection.request("POST", "/v1/letters", json.dumps({"input": "abc"}))
        while "vllm:num_requests_running{model_name=\"letters\"} 1" not in running.text("/metrics"):
            pass
        running.process.send_signal(signal.SIGTERM)
        response = connection.getresponse()
        assert (response.status, json.load(response)) == (200, {"counts": [1, 1, 1]})
        connection.close()
        assert running.process.wait(timeout=30) == 0


@pytest.mark.slow
def test_more_than_may_wait_is_told_when_to_come_back(target: Path, model_dir: Path, tmp_path: Path) -> None:
    workspace = slow_workspace(target, tmp_path, max_waiting=1)
    with serving(workspace, model_dir, log=tmp_path / "log") as running:
        connections = [http.client.HTTPConnection("127.0.0.1", running.port, timeout=60) for _ in range(6)]
        for connection in connections:
            connection.request("POST", "/v1/letters", json.dumps({"input": "a"}))
        responses = [connection.getresponse() for connection in connections]
        refused = [response for response in responses if response.status == 429]
        assert {response.status for response in responses} == {200, 429}
        assert {response.headers["retry-after"] for response in refused} == {"1"}
        for connection in connections:
            connection.close()


@pytest.mark.slow
def test_api_key_file(workspace: Path, model_dir: Path, tmp_path: Path) -> None:
    key = tmp_path / "key"
    key.write_text("secret\n")
    arguments = ("--api-key-file", str(key), "--served-model-name", "mine")
    with serving(workspace, model_dir, log=tmp_path / "log", arguments=arguments) as running:
        assert error_of(running, {"input": "a"})[0] == 401
        request = urllib.request.Request(f"{running.url}/v1/models", headers={"authorization": "Bearer secret"})
        with urllib.request.urlopen(request, timeout=60) as response:
            assert json.load(response)["data"][0]["id"] == "mine"


@pytest.mark.slow
def test_a_wrong_model_folder_ends_the_process(workspace: Path, tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="holds neither of original, f32"):
        with serving(workspace, tmp_path, log=tmp_path / "log"):
            pass


@pytest.mark.slow
def test_the_custom_runtime_is_typed(workspace: Path, tmp_path: Path) -> None:
    options = ["--strict", "--ignore-missing-imports", "--cache-dir", str(tmp_path)]
    done = subprocess.run(
        [sys.executable, "-m", "mypy", *options, "runtime"], cwd=workspace, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout
