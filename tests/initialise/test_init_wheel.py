"""What an installed wheel must hold so that a user of it gets as far as one of a checkout."""

from __future__ import annotations

import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def test_every_packaged_runtime_can_carry_licence_and_notice() -> None:
    """Packaging a runtime copies both out of the installation's metadata."""
    assert set(PROJECT["project"]["license-files"]) == {"LICENSE", "NOTICE"}
    assert all((ROOT / name).is_file() for name in ("LICENSE", "NOTICE"))


def test_templates_and_groups_are_in_the_wheel() -> None:
    included = PROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]["force-include"]
    for folder in ("conf", "skills", "targets", "templates"):
        assert included[folder] == f"vibeserve/_data/{folder}"
    assert (ROOT / "templates" / "target" / "folder.yaml.j2").is_file()
