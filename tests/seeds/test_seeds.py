"""Where round 0 comes from."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from vibeserve.core.documents import digest_tree
from vibeserve.errors import SpecError
from vibeserve.seeds import get_seed
from vibeserve.spec import Modality, Seed


def test_the_scaffold_is_a_whole_workspace_and_always_the_same(tmp_path: Path) -> None:
    seed = get_seed(Seed(), modality=Modality.text)
    assert seed.origin == "scaffold"
    for name in ("one", "two"):
        seed.materialise(tmp_path / name)
    assert digest_tree(tmp_path / "one") == digest_tree(tmp_path / "two")
    assert {"service.yaml", "README.md", "requirements.lock", "runtime", "tests"} <= {
        path.name for path in (tmp_path / "one").iterdir()
    }
    assembly = json.loads((tmp_path / "one/runtime/assembly.json").read_text())
    assert assembly["components"] == []
    assert set(assembly["seams"].values()) == {"scaffold"}


def test_an_unknown_seed_is_refused_with_the_kinds() -> None:
    with pytest.raises(SpecError, match=r"seed\.kind: unknown seed 'nano'\n  valid: scaffold"):
        get_seed(Seed(kind="nano"), modality=Modality.text)


def test_a_modality_without_a_scaffold_is_refused_with_those_that_have_one() -> None:
    with pytest.raises(SpecError, match=r"there is no scaffold for 'image'\n  valid: .*text"):
        get_seed(Seed(), modality=Modality.image)
