"""The steps of the container file, run one after the other in a plain sandbox: no engine of containers, no network."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import sysconfig
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from artifact_samples import sample_manifest

from vibeserve.artifact.supplements import add_supplements
from vibeserve.core.paths import data_dir
from vibeserve.skills import assemble

pytestmark = pytest.mark.audit
READY = """
import json, subprocess, sys, time, urllib.request
server = subprocess.Popen(sys.argv[1:])
for _ in range(1200):
    assert server.poll() is None, "it ended"
    try:
        print(json.load(urllib.request.urlopen("http://127.0.0.1:8000/v1/models", timeout=5))["data"][0]["id"])
        break
    except OSError:
        time.sleep(0.1)
server.terminate()
print("status", server.wait(60))
"""


@dataclass
class PlainSandbox:
    """What a build of an image sees: its own /srv, /etc and interpreter, the system below it."""

    folder: Path
    context: Path
    model: Path
    env: dict[str, str] = field(default_factory=dict)
    user: str = ""
    workdir: str = "/"

    def __post_init__(self) -> None:
        for name in ("srv", "venv", "home"):
            (self.folder / name).mkdir()
        shutil.copytree("/etc", self.folder / "etc", symlinks=True, ignore_dangling_symlinks=True)
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(self.folder / "venv")], check=True)
        # the base image's packages: what the lock names is there already, so that pip needs no network
        site = next((self.folder / "venv/lib").glob("python3*/site-packages"))
        (site / "base_image.pth").write_text(f"{sysconfig.get_path('purelib')}\n")
        pip = self.folder / "venv/bin/pip"
        pip.write_text('#!/bin/sh\nexec python -m pip "$@"\n')
        pip.chmod(0o755)

    def run(self, argv: list[str]) -> subprocess.CompletedProcess[str]:
        who = ["setpriv", f"--reuid={self.user}", f"--regid={self.user}", "--clear-groups"] if self.user else []
        prefixes = dict.fromkeys((sys.prefix, sys.base_prefix))
        shown = [word for prefix in prefixes if not prefix.startswith("/usr") for word in ("--ro-bind", prefix, prefix)]
        links = [w for name in ("bin", "sbin", "lib", "lib64") for w in ("--symlink", f"usr/{name}", f"/{name}")]
        own = [w for name in ("etc", "srv") for w in ("--bind", str(self.folder / name), f"/{name}")]
        venv = str(self.folder / "venv")
        environment = {"PATH": f"{venv}/bin:/usr/sbin:/usr/bin", "HOME": "/tmp", **self.env}
        command = [
            "bwrap", "--unshare-pid", "--unshare-net", "--unshare-ipc", "--die-with-parent", "--ro-bind", "/usr",
            "/usr", *links, "--tmpfs", "/tmp", "--tmpfs", "/var", "--dev", "/dev", "--proc", "/proc", *shown, *own,
            "--bind", venv, venv, "--ro-bind", str(self.model), "/model", "--chdir", self.workdir, "--clearenv",
            *(word for key, value in environment.items() for word in ("--setenv", key, value)), "--", *who, *argv,
        ]  # fmt: skip
        return subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)

    def step(self, line: str) -> None:
        """Carry out one instruction; the assertion shows what it said."""
        word, _, rest = line.partition(" ")
        if word == "WORKDIR":
            self.workdir = rest
        elif word == "COPY":
            self.copy(*rest.split())
        elif word == "ENV":
            key, _, value = rest.partition("=")
            self.env[key] = json.loads(value)
        elif word == "USER":
            self.user = rest
        elif word == "RUN":
            argv = json.loads(rest) if rest.startswith("[") else ["sh", "-c", rest]
            done = self.run(argv)
            assert done.returncode == 0, f"{line}\n{done.stdout}{done.stderr}"
        else:
            assert word in ("FROM", "EXPOSE", "VOLUME", "CMD"), line

    def copy(self, source: str, destination: str) -> None:
        assert destination == "." and self.workdir == "/srv"
        if source == ".":
            shutil.copytree(self.context, self.folder / "srv", dirs_exist_ok=True)
        else:
            shutil.copy(self.context / source, self.folder / "srv" / source)


def test_every_step_runs_and_the_command_serves(tmp_path: Path, tiny_model_dir: Path) -> None:
    if shutil.which("bwrap") is None or os.geteuid() != 0:
        pytest.skip("needs bubblewrap and root, as a build of an image has")
    runtime = tmp_path / "runtime"
    assemble(data_dir("templates") / "runtime/text", [], {}, runtime)
    add_supplements(runtime, manifest=sample_manifest(), threads=1)
    (tmp_path / "image").mkdir()
    sandbox = PlainSandbox(folder=tmp_path / "image", context=runtime, model=tiny_model_dir)
    lines = (runtime / "Dockerfile").read_text().splitlines()
    for line in lines:
        sandbox.step(line)
    assert sandbox.user == "65532", "it does not serve as root"
    command = json.loads(lines[-1].removeprefix("CMD "))
    done = sandbox.run(["python", "-c", READY, *command])
    assert done.stdout.splitlines() == ["tiny_llama", "status 0"], done.stderr
