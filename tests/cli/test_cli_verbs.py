"""list, check, plan, doctor: their text and their documents."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from vibeserve.cli.main import main
from vibeserve.cli.table import VERBS
from vibeserve.core.paths import lease_dir
from vibeserve.lease import Device, DeviceLease
from vibeserve.progress import QuietProgress

GPU_TARGET = """\
defaults:
  - override /model: tiny_llama
  - override /hardware: l4
  - override /workload: chat_short
goals:
  - {metric: output_throughput, min_ratio: 1.1, against: competent}
"""


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository with a target for a GPU and a broken one; the working directory."""
    (tmp_path / "targets").mkdir()
    (tmp_path / "targets" / "tiny_l4.yaml").write_text(GPU_TARGET)
    (tmp_path / "targets" / "wrong.yaml").write_text(GPU_TARGET + "budget: {round: 3}\n")
    monkeypatch.chdir(tmp_path)
    # no peer with an environment of its own is installed there
    monkeypatch.setenv("VIBESERVE_CACHE", str(tmp_path / "cache"))
    return tmp_path


def document(capsys: pytest.CaptureFixture[str], *argv: str, code: int = 0) -> Any:
    assert main([*argv, "--json"]) == code
    return json.loads(capsys.readouterr().out)


def test_list_says_what_runs_here_and_why_not(repository: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = {row["name"]: row for row in document(capsys, "list")}
    assert {"smollm2_cpu", "tiny_cpu", "tiny_l4", "wrong"} < set(rows) and len(rows) >= 19
    tiny = rows["tiny_cpu"]
    assert (tiny["model"], tiny["hardware"], tiny["workload"], tiny["modality"]) == (
        "tiny_llama",
        "cpu",
        "chat",
        "text",
    )
    assert (tiny["runnable_here"], tiny["why_not"], tiny["origin"]) == (True, "", "package")
    assert rows["smollm2_cpu"]["twin"] == "llama_h100"
    assert rows["tiny_l4"]["runnable_here"] is False
    assert "needs 1 x l4 (sm 89)" in rows["tiny_l4"]["why_not"]
    assert rows["wrong"]["runnable_here"] is False
    assert rows["llama70b_2xh100"]["hardware"] == "2 x h100"
    assert rows["json_m3"]["why_not"].startswith("needs Apple silicon, this is Linux; model.revision: ")
    assert "needs model.revision before it can be fetched" in rows["json_m3"]["why_not"]
    assert rows["olmo_cpu"]["why_not"] == ""
    assert {name for name, row in rows.items() if row["runnable_here"]} == {
        "janus_cpu",
        "moonshine_cpu",
        "moonshine_tiny_cpu",
        "olmo_cpu",
        "showo2_cpu",
        "smollm2_cpu",
        "tiny_cpu",
        "tiny_image_cpu",
        "tiny_janus_cpu",
        "tiny_speech_cpu",
    }
    absent = "baseline.vllm: required, and not installed; vibeserve peers install vllm"
    assert rows["qwen3next_cpu"]["why_not"] == absent
    assert "targets/wrong.yaml:7:10: budget.round: unknown key 'round'" in rows["wrong"]["why_not"]
    assert all(row["schema_version"] == 1 for row in rows.values())


def test_list_as_text(repository: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["target", "model", "hardware", "workload", "twin", "runs", "here"]
    assert any(line.startswith("tiny_l4") and "no: needs 1 x l4" in line for line in lines)


def test_check_all_is_2_when_one_is_wrong(repository: Path, capsys: pytest.CaptureFixture[str]) -> None:
    checked = document(capsys, "check", "--all", code=2)
    by_name = {target["name"]: target for target in checked["targets"]}
    assert by_name["tiny_cpu"] == {"name": "tiny_cpu", "ok": True, "errors": [], "notes": []}
    assert by_name["wrong"]["ok"] is False
    assert by_name["wrong"]["errors"][0].startswith("targets/wrong.yaml:7:10: ")


def test_check_by_name_and_by_path(repository: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "tiny_cpu", "targets/tiny_l4.yaml"]) == 0
    step = "next: vibeserve check tiny_cpu --deep, or vibeserve plan tiny_cpu"
    assert capsys.readouterr().out == f"tiny_cpu: ok\ntiny_l4: ok\n{step}\n"
    assert main(["check", "targets/wrong.yaml"]) == 2
    assert "wrong: not valid\n  targets/wrong.yaml:7:10: " in capsys.readouterr().out


def test_plan_prints_the_document(capsys: pytest.CaptureFixture[str]) -> None:
    plan = document(capsys, "plan", "tiny_cpu", "sandbox=none", "budget.rounds=1")
    assert plan["target"] == "tiny_cpu"
    assert plan["budget"]["rounds"] == 1
    assert {"steps", "memory", "ceilings", "digests", "plan_id"} <= set(plan)


def test_plan_as_text_says_what_it_costs(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "+target=tiny_cpu", "sandbox=none"]) == 0
    text = capsys.readouterr().out
    assert "model       tiny_llama, 0.2 M parameters" in text
    assert "baselines   scaffold (naive, required)" in text
    assert "synthesize" in text
    assert "about" in text


def test_other_hardware_is_planned_for_and_not_run(repository: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "tiny_l4"]) == 0
    assert "no configured host has 1 x l4 (sm 89): local: " in capsys.readouterr().out
    assert main(["+target=tiny_l4"]) == 5
    assert "no configured host has 1 x l4 (sm 89): local: " in capsys.readouterr().err


def test_doctor_reports_every_check(capsys: pytest.CaptureFixture[str]) -> None:
    code = main(["doctor", "--json"])
    report = json.loads(capsys.readouterr().out)
    checks = {check["name"]: check for check in report["checks"]}
    assert {"python", "torch", "git", "g++", "cpu", "cores", "memory", "gpu", "sandbox tier A"} <= set(checks)
    assert all(check["state"] in ("ok", "warning", "missing") for check in checks.values())
    assert all(check["next"] for check in checks.values() if check["state"] == "missing")
    assert (code == 0) is report["ok"]
    assert report["hardware"]["cpu_model"]


def test_doctor_measures_the_bandwidth_or_says_why_not(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setenv("VIBESERVE_LEASES", str(tmp_path))
    main(["doctor", "--json"])
    hardware = json.loads(capsys.readouterr().out)["hardware"]
    assert hardware["bandwidth_gb_s"] > 0.1
    cpu = Device(name="cpu", title="the CPU")
    hours = DeviceLease([cpu], root=lease_dir(), run="hours", progress=QuietProgress())
    with hours.shared("certify"):
        main(["doctor", "--json"])
    report = json.loads(capsys.readouterr().out)
    assert report["hardware"]["bandwidth_gb_s"] is None
    note = "not measured: the CPU is held by run hours (certify); vibeserve status"
    assert report["hardware"]["bandwidth_note"] == note
    (row,) = [check for check in report["checks"] if check["name"] == "bandwidth"]
    assert (row["state"], row["detail"]) == ("warning", note)


def test_doctor_misses_a_wall(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("vibeserve.sandbox.probe_tiers", lambda: {"A": "no bwrap", "B": "too old", "C": "opt-out"})
    assert main(["doctor"]) == 5
    text = capsys.readouterr().out
    assert "next, sandbox tier A: install bubblewrap" in text


def test_the_invoke_collection_holds_the_same_verbs() -> None:
    from invoke.context import Context
    from invoke.exceptions import Exit

    from vibeserve.cli.verbs import make_collection

    collection = make_collection()
    assert set(collection.task_names) == {name for name, _, _ in VERBS}
    collection["check"](Context(remainder="tiny_cpu --json"))
    with pytest.raises(Exit) as ended:
        collection["check"](Context(remainder="nope"))
    assert ended.value.code == 2
