"""A tiny scaffold and a skills library written to disk per test."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

WriteSkill = Callable[..., Path]


@pytest.fixture
def library(tmp_path: Path) -> Path:
    root = tmp_path / "skills"
    root.mkdir()
    return root


@pytest.fixture
def write_skill(library: Path) -> WriteSkill:
    """Write a skill whose component fills `seams`; further keyword arguments go into its card."""

    def write(name: str, *, seams: tuple[str, ...] = ("linear",), **card: Any) -> Path:
        folder = library / name
        (folder / "assets").mkdir(parents=True)
        (folder / "SKILL.md").write_text(f"---\nname: {name}\ndescription: What {name} is for.\n---\nBody.\n")
        files = {}
        for seam in seams:
            (folder / f"assets/{seam}.py").write_text(f'"""{seam} of {name}."""\n\nimport torch\n')
            files[f"assets/{seam}.py"] = f"runtime/{seam}.py"
        data = {"schema_version": 1, "name": name, "seams": list(seams), "files": files, **card}
        (folder / "component.yaml").write_text(yaml.safe_dump(data))
        return folder

    return write


@pytest.fixture
def scaffold(tmp_path: Path) -> Path:
    """A scaffold with one module per seam that the tests touch and one parameter."""
    root = tmp_path / "scaffold"
    (root / "runtime").mkdir(parents=True)
    (root / "tests").mkdir()
    for seam in ("linear", "attention", "scheduler", "model"):
        (root / f"runtime/{seam}.py").write_text(f'"""{seam} of the scaffold."""\n\nimport json\n\nimport numpy\n')
    (root / "runtime/__init__.py").write_text("")
    (root / "tests/test_it.py").write_text("")
    (root / "README.md").write_text("# Runtime\n")
    (root / "requirements.lock").write_text("")
    (root / "service.yaml").write_text("schema_version: 1\nbuild: null\nargv: []\n")
    (root / "scaffold.yaml").write_text(
        yaml.safe_dump(
            {
                "schema_version": 1,
                "requires": ["uvloop"],
                "parameters": {"max_num_seqs": {"type": "int", "default": 1, "range": [1, 1], "doc": "how many"}},
            }
        )
    )
    return root
