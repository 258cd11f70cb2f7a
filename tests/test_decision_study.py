"""`invoke bench-decision`: where the noise comes from, and what is answered."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from vibeserve.benchmark.simulation import Noise
from vibeserve.core.documents import read_document, write_document
from vibeserve.decision_study import main
from vibeserve.errors import SpecError

ROOT = Path(__file__).resolve().parents[1]
FEW = ["--candidates", "20"]


@pytest.fixture
def noise_file(tmp_path: Path) -> Path:
    noise = Noise(
        machine="a machine", target="none", load="c1", window_s=8.0, starts=((0.01, -0.01, 0.0), (0.0, 0.01, -0.02))
    )
    write_document(tmp_path / "noise.json", noise)
    return tmp_path / "noise.json"


def answer(capsys: pytest.CaptureFixture[str], *argv: str) -> dict[str, Any]:
    assert main([*argv, *FEW, "--json"]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def test_the_noise_that_ships_is_what_is_used_without_another(capsys: pytest.CaptureFixture[str]) -> None:
    found = answer(capsys)
    shipped = read_document(ROOT / "benchmarks" / "noise" / "cpu.json", Noise)
    assert (found["machine"], found["target"]) == (shipped.machine, shipped.target)
    assert {"false_accept_rate", "detection_rate", "candidates", "effect", "schema_version"} <= set(found)
    assert (found["candidates"], found["effect"], found["num_pairs"]) == (20, 0.1, 8)


def test_noise_of_ones_own(noise_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = answer(capsys, "--noise", str(noise_file), "--save", str(tmp_path / "again.json"), "--pairs", "5")
    assert (found["machine"], found["num_starts"], found["num_pairs"]) == ("a machine", 2, 5)
    assert read_document(tmp_path / "again.json", Noise) == read_document(noise_file, Noise)


def test_the_text_names_both_rates(noise_file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--noise", str(noise_file), *FEW]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[2].startswith("no effect ") and lines[2].endswith("of 20 candidates accepted")
    assert lines[3].startswith("+10% true ")


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match=r"nope.json: no such file\nnext: invoke bench-decision --measure TARGET"):
        main(["--noise", str(tmp_path / "nope.json")])


def test_counts_begin_at_one() -> None:
    with pytest.raises(SpecError, match="argument --candidates: 0 is not 1 or more"):
        main(["--candidates", "0"])


def test_as_an_invoke_task(noise_file: Path) -> None:
    argv = [sys.executable, "-m", "invoke", "bench-decision", "--json", "--noise"]
    done = subprocess.run([*argv, str(noise_file)], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["machine"] == "a machine"
    done = subprocess.run([*argv, "nope.json"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 2 and "nope.json: no such file" in done.stderr and "Traceback" not in done.stderr
