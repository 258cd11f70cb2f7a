"""The build step: walled, bounded, writing to build/ only."""

from __future__ import annotations

from pathlib import Path

import pytest

from vibeserve.errors import RefusedError, ServerError
from vibeserve.service import build_workspace
from vibeserve.spec import Tier

SERVICE = """
argv: ["{python}", "server.py", "{model_dir}", "{host}", "{port}"]
build: ["{python}", "compile.py", "{threads}"]
build_timeout_s: 60
"""

COMPILE = """
import ctypes, subprocess, sys
with open("build/f.cpp", "w") as stream:
    stream.write('extern "C" int f() { return 7; }')
subprocess.run(["g++", "-O3", "-march=native", "-shared", "-fPIC", "-o", "build/f.so", "build/f.cpp"], check=True)
print(ctypes.CDLL("build/f.so").f(), sys.argv[1])
for outside in ("server.py", "new.py", "../new"):
    try:
        open(outside, "a")
    except OSError:
        print("unwritable")
"""


def test_it_compiles_into_build_and_nowhere_else(make_workspace, host, tier: Tier, tmp_path: Path) -> None:
    workspace = make_workspace(service=SERVICE, compile=COMPILE)
    before = (workspace / "server.py").read_bytes()
    done = build_workspace(workspace, host=host, tier=tier, log=tmp_path / "build.log", threads=2)
    assert done is not None
    assert done.log_tail.splitlines()[:3] == ["7 2", "unwritable", "unwritable"]
    assert sorted(path.name for path in (workspace / "build").iterdir()) == ["f.cpp", "f.so"]
    assert (workspace / "server.py").read_bytes() == before
    assert not (workspace / "new.py").exists() and not (tmp_path / "new").exists()


def test_a_workspace_without_a_build_step_needs_none(make_workspace, host, tier: Tier, tmp_path: Path) -> None:
    assert build_workspace(make_workspace(), host=host, tier=tier, log=tmp_path / "build.log") is None


def test_a_failing_build_quotes_the_compiler(make_workspace, host, tier: Tier, tmp_path: Path) -> None:
    script = """
        import subprocess, sys
        open("build/f.cpp", "w").write("int f( {")
        sys.exit(subprocess.run(["g++", "-c", "-o", "build/f.o", "build/f.cpp"]).returncode)
    """
    with pytest.raises(ServerError, match=r"build_failed: the build ended with status 1\n.*error") as caught:
        build_workspace(make_workspace(service=SERVICE, compile=script), host=host, tier=tier, log=tmp_path / "log")
    assert caught.value.outcome == "build_failed"


def test_an_endless_build_is_ended(make_workspace, host, tier: Tier, tmp_path: Path) -> None:
    script = "import time; print('compiling', flush=True); time.sleep(60)"
    workspace = make_workspace(service=SERVICE, compile=script)
    with pytest.raises(ServerError, match=r"timed_out: the build ran longer than 1 s\n  \| compiling") as caught:
        build_workspace(workspace, host=host, tier=tier, log=tmp_path / "log", timeout_s=1)
    assert caught.value.outcome == "timed_out"


def test_a_refused_service_file_is_not_built(make_workspace, host, tier: Tier, tmp_path: Path) -> None:
    workspace = make_workspace(service=SERVICE.replace("{threads}", "{cores}"))
    with pytest.raises(RefusedError, match=r"unknown|uses '\{cores\}'"):
        build_workspace(workspace, host=host, tier=tier, log=tmp_path / "log")
    assert not (workspace / "build").exists()
