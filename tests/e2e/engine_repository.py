"""A small engine as a git repository: a package of its own that serves, with its tests and its licence; and the overlay
that makes a runtime of it."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

from vibeserve.core.paths import data_dir
from vibeserve.skills import assemble

PACKAGE = "minilm"
LEFT_OUT = shutil.ignore_patterns("assembly.json", "build.py")
"""what an engine of pure Python has not"""
MIT = "MIT License\n\nPermission is hereby granted, free of charge, to any person obtaining a copy of this software\n"
MAIN = '"""`python -m runtime`: the engine under the name that a service file starts."""\n\nimport sys\n\n'
MAIN += f"from {PACKAGE}.__main__ import main\n\nif __name__ == '__main__':\n    sys.exit(main())\n"
IDENTITY = {f"GIT_{role}_{key}": "dev@localhost" for role in ("AUTHOR", "COMMITTER") for key in ("NAME", "EMAIL")}


def git(folder: Path, *arguments: str) -> str:
    argv = ["git", "-C", str(folder), *arguments]
    done = subprocess.run(argv, capture_output=True, text=True, check=True, env={**os.environ, **IDENTITY})
    return done.stdout.strip()


def make_engine(root: Path) -> tuple[Path, str, Path]:
    """(repository, commit, overlay). The repository has no service file and no `runtime/`: the overlay has them."""
    made, engine, overlay = root / "made", root / "engine", root / "overlay"
    assemble(data_dir("templates") / "runtime/text", [], {}, made)
    engine.mkdir()
    shutil.copytree(made / "runtime", engine / PACKAGE, ignore=LEFT_OUT)
    shutil.copytree(made / "tests", engine / "tests")
    for path in engine.rglob("*.py"):
        path.write_text(re.sub(r"\b(from|import) runtime\b", rf"\1 {PACKAGE}", path.read_text()))
    (engine / "LICENSE").write_text(MIT)
    (engine / "README.md").write_text("# minilm\n")
    (overlay / "runtime").mkdir(parents=True)
    (overlay / "runtime/__init__.py").write_text("")
    (overlay / "runtime/__main__.py").write_text(MAIN)
    for name in ("service.yaml", "requirements.lock"):
        shutil.copy(made / name, overlay / name)
    git(engine, "init", "--quiet", "--initial-branch=main")
    git(engine, "add", "-A")
    git(engine, "commit", "--quiet", "-m", "minilm 1.0")
    return engine, git(engine, "rev-parse", "HEAD"), overlay
