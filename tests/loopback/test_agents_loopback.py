"""Whole runs by real clients against the scripted model: rounds, money, records, and the recording replayed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from vibeserve.errors import SpecError
from vibeserve.loopback.command import CLIENTS, client_version, main
from vibeserve.loopback.scripts import FORBIDDEN

KEY = "sk-loopback"


def test_an_unknown_client_is_refused() -> None:
    with pytest.raises(SpecError, match=r"agents-loopback: no client 'cursor'\n  valid: openai, codex, claude"):
        main(["--only", "openai,cursor"])


def test_a_run_that_takes_too_long_is_ended_and_told(capsys: pytest.CaptureFixture[str]) -> None:
    code = main(["--only", "openai", "--timeout-s", "1", "--json"])
    (row,) = json.loads(capsys.readouterr().out)["clients"]
    assert (code, row["exit_code"], row["status"]) == (3, 124, "")
    assert "it did not end within 1 s; --timeout-s gives it more" in row["tail"]


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("client", CLIENTS)
def test_two_rounds_of_a_client_are_certified_metered_and_replayed(
    client: str, tmp_path: Path, cache: None, capsys: pytest.CaptureFixture[str]
) -> None:
    if not client_version(client):
        pytest.skip(f"{client} is not installed")
    code = main(["--only", client, "--keep", str(tmp_path), "--json"])
    (row,) = json.loads(capsys.readouterr().out)["clients"]
    assert (code, row["status"], row["tail"]) == (0, "certified", ""), row["tail"]
    assert (row["rounds"], row["accepted"], row["refused"]) == (2, 1, 3)
    assert row["tokens"] > 1000 and row["requests"] >= 8
    assert row["tree"] and row["tree"] == row["replayed_tree"]
    artifact = tmp_path / client / "artifacts" / "tiny_cpu" / "latest"
    _check_manifest(artifact, client)
    _check_records(artifact)
    _check_that_no_file_holds_the_key(tmp_path / client)


def _check_manifest(artifact: Path, client: str) -> None:
    manifest = json.loads((artifact / "manifest.json").read_text())
    lines = {row["origin"]: row["lines"] for row in manifest["authorship"]}
    assert lines[f"agent:{client}/scripted"] == 3, "NOTES.md, and nothing of what was taken out again"
    assert lines["component:continuous-batching"] > 50 and lines["scaffold"] > 500
    usage = manifest["usage"]
    assert usage["tokens"] == sum(usage[f"{role}_tokens"] for role in ("planner", "implementer", "judge", "evaluator"))
    assert usage["unpriced_tokens"] == usage["tokens"], "the scripted model has no price"
    assert "agents" not in manifest["not_run"]


def _check_records(artifact: Path) -> None:
    """What was asked and answered lies beside its round; the refused attempt is told why."""
    calls = {path.name: path for path in artifact.glob("rounds/*/agents/*")}
    assert {"p01-planner", "r01a1-implementer", "r01a2-implementer", "r01a2-judge", "r01-evaluator"} <= set(calls)
    assert "r01a1-judge" not in calls, "only what would be accepted is reviewed"
    mended = (calls["r01a2-implementer"] / "prompt.md").read_text()
    assert "scan/engine_import" in mended and "(attempt 2" in mended
    transcript: list[dict[str, Any]] = json.loads((calls["r01a1-implementer"] / "transcript.json").read_text())["turns"]
    assert any(FORBIDDEN in turn["text"] for turn in transcript)


def _check_that_no_file_holds_the_key(project: Path) -> None:
    found = [
        path.relative_to(project)
        for path in project.rglob("*")
        if path.is_file() and not path.is_symlink() and KEY.encode() in path.read_bytes()
    ]
    assert found == []
