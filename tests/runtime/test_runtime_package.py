"""The scaffold as source: what it imports, and its own tests."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

from vibeserve.core.paths import data_dir

ALLOWED = {"torch", "numpy", "safetensors", "tokenizers", "jinja2", "uvicorn", "starlette", "llguidance"}
PACKAGE = data_dir("templates") / "runtime/text/runtime"
MODULES = sorted(PACKAGE.glob("*.py"))


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.stem)
def test_modules_import_each_other_relatively_and_little_else(path: Path) -> None:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names = {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            names = {(node.module or "").partition(".")[0]}
        else:
            continue
        assert names <= ALLOWED | set(sys.stdlib_module_names)


def test_a_workspace_without_native_sources_builds_nothing(text_workspace: Path) -> None:
    subprocess.run([sys.executable, "-m", "runtime.build"], cwd=text_workspace, check=True)
    assert not (text_workspace / "build").exists()


@pytest.mark.slow
def test_native_sources_are_compiled_and_loaded(text_workspace: Path, tmp_path: Path) -> None:
    import shutil

    workspace = tmp_path / "workspace"
    shutil.copytree(text_workspace, workspace)
    native = workspace / "runtime/native"
    native.mkdir()
    (native / "answer.cpp").write_text('// flags: -DVALUE=42\nextern "C" int answer() { return VALUE; }\n')
    subprocess.run([sys.executable, "-m", "runtime.build"], cwd=workspace, check=True)
    code = "from runtime.build import load_library; print(load_library('answer').answer())"
    printed = subprocess.run([sys.executable, "-c", code], cwd=workspace, check=True, capture_output=True, text=True)
    assert printed.stdout == "42\n"
    (native / "answer.cpp").write_text("not C++\n")
    assert subprocess.run([sys.executable, "-m", "runtime.build"], cwd=workspace, capture_output=True).returncode != 0


@pytest.mark.slow
def test_the_runtimes_own_tests_pass(text_workspace: Path, tiny_model_dir: Path) -> None:
    environment = {**os.environ, "VIBESERVE_MODEL_DIR": str(tiny_model_dir), "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests"]
    finished = subprocess.run(command, cwd=text_workspace, env=environment, capture_output=True, text=True)
    assert finished.returncode == 0, finished.stdout[-3000:]


@pytest.mark.slow
def test_the_runtime_is_typed(tmp_path: Path) -> None:
    options = ["--strict", "--ignore-missing-imports", "--cache-dir", str(tmp_path)]
    command = [sys.executable, "-m", "mypy", *options, "runtime"]
    finished = subprocess.run(command, cwd=PACKAGE.parent, capture_output=True, text=True)
    assert finished.returncode == 0, finished.stdout
