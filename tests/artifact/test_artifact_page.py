"""`vibeserve report`."""

from __future__ import annotations

from pathlib import Path

import pytest

from vibeserve.artifact import Packaged, verify_bytes
from vibeserve.artifact.page import main, write_report
from vibeserve.artifact.rendering import page_of


def test_the_command_never_changes_the_artifact(
    packaged: Packaged, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([str(packaged.path.parent / "latest")]) == 0
    assert capsys.readouterr().out.strip() == str(packaged.path / "report.html")
    (packaged.path / "report.html").write_text("older template")
    written = write_report(packaged.path)
    assert written == packaged.path.parent / f"{packaged.path.name}.report.html"
    assert written.read_text() == page_of(packaged.path, packaged.manifest)
    assert write_report(packaged.path, output=tmp_path / "r.html").is_file()
    assert [item.file for item in verify_bytes(packaged.path)] == ["report.html"]
