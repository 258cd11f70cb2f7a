"""A certification that a kill separated from its stamp is taken as it was measured."""

from __future__ import annotations

from pathlib import Path

import pytest

from vibeserve.build.kept import KeptCertification, read_kept
from vibeserve.core.documents import write_document
from vibeserve.errors import VersionError


def test_it_is_taken_for_the_very_inputs_that_it_was_measured_for(tmp_path: Path) -> None:
    path = tmp_path / "certified.json"
    assert read_kept(path, key="k") is None
    kept = KeptCertification(key="k", result={"seconds": 1.0}, event={"passed": True})
    write_document(path, kept)
    assert read_kept(path, key="k") == kept
    assert read_kept(path, key="another winner") is None
    path.write_text(path.read_text().replace('"schema_version": 1', '"schema_version": 2'))
    with pytest.raises(VersionError, match=r"certified\.json has schema_version 2"):
        read_kept(path, key="k")
