"""`vibeserve plan` as it is read, and the run that stops before it spends anything."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from vibeserve.cli.main import main
from vibeserve.cli.plan_text import number, quantity
from vibeserve.hardware import HardwareFacts, probe

TARGET = """\
defaults:
  - override /model: llama_3_1_8b
  - override /hardware: h100
  - override /workload: chat
target: {description: a sample, twin: smollm2_cpu}
baseline:
  transformers_cb:
    declared: [{metric: output_throughput, load: c8, value: 480, source: "a sample figure"}]
hardware: {usd_per_hour: 3}
goals:
  - {metric: output_throughput, load: c8, min_ratio: 1.5, against: competent}
  - {metric: tpot_p50, load: c8, min_ratio: 1.0, against: transformers}
"""


@pytest.fixture(autouse=True)
def without_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    """This machine, but for any GPU."""
    own = probe()

    def probed() -> HardwareFacts:
        from dataclasses import replace

        return replace(own, gpus=(), gpu_note="no NVIDIA driver on this machine", bandwidth_gb_s=15.0)

    monkeypatch.setattr("vibeserve.hardware.probe", probed)
    monkeypatch.setattr("vibeserve.build.target.probe", probed)


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "targets").mkdir()
    (tmp_path / "targets" / "mine.yaml").write_text(TARGET)
    folder = tmp_path / "conf" / "host"
    folder.mkdir(parents=True)
    (folder / "lab.yaml").write_text("kind: ssh\naddress: me@lab\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_plan_of_absent_hardware_is_one_screen(repository: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "mine"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) <= 40
    text = "\n".join(lines)
    assert "  model       meta-llama/Llama-3.1-8B-Instruct, 8030.3 M parameters, bfloat16" in lines
    assert "  hardware    1 x h100 as declared; it is not here (see below)" in lines
    assert "  parallelism tensor 1, pipeline 1, replicas 1" in lines
    # 14.96 of weights, 16 x 640 x 131,072 bytes of cache, 0.5 GiB and 4 x (512 x 36,864 + 16 x 128,256) bytes
    assert (
        "  memory      16.79 of 79.6 GiB a rank: weights 14.96, KV cache 1.25, state 0.00, workspace 0.58; "
        "16 in flight (c16)"
    ) in lines
    # (15,009,849,344 + 8 x 16,777,216) bytes at 3,350 GB/s
    assert (
        "  decode      floor 4.521 ms/step at c8: a rank moves weights 13.98, KV 0.12, state 0.00 GiB "
        "(bandwidth 3350 GB/s)"
    ) in lines
    # 2 x 6,979,588,096 x 128 + 2 x 525,336,576 + 524,288 x 128 x 129 / 2 operations at 989 TFLOP/s
    assert "  prefill     floor 4.481 ms for 128 tokens: arithmetic 1.812 ms, reading once 4.481 ms" in lines
    # 1,769.7 over 480
    assert (
        "  best ratio  output_throughput at c8 against competent: x3.69 (ceiling 1770 tok/s, transformers_cb 480 "
        "tok/s as declared: a sample figure)"
    ) in lines
    assert (
        "  best ratio  tpot_p50 at c8 against transformers: unknown before it is measured; x1 needs it at or above "
        "4.486 ms"
    ) in lines
    assert "device-hours" in text and "USD at 3 USD a device-hour; agents 0 USD" in text
    assert "  break-even  pays back after " in text and "times as good as the declared 480 of transformers_cb" in text
    assert "  note        decode floors are those of one token a step: speculation is not in them" in lines
    assert "ceiling             unit" in text
    assert lines[-6].startswith("  no configured host has 1 x h100 (sm 90): ")
    assert "lab: kind ssh (me@lab), not asked; select it by host=lab" in lines[-6]
    assert "local: no NVIDIA driver on this machine" in lines[-6]
    assert lines[-4:-2] == ["    kind: ssh", "    address: user@machine"]
    assert lines[-1] == "  twin: vibeserve +target=smollm2_cpu"


def test_the_document_holds_typed_numbers(repository: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "mine", "--json"]) == 0
    plan = json.loads(capsys.readouterr().out)
    assert plan["parallelism"] == {"tensor": 1, "pipeline": 1, "replicas": 1}
    assert all(isinstance(plan["memory"][key], float) for key in plan["memory"] if key.endswith("_gib"))
    assert all(isinstance(item["value"], float) for item in plan["ceilings"])
    assert plan["ratios"][0]["max_ratio"] == pytest.approx(3.687, abs=1e-3)
    assert plan["cost"]["usd"] == pytest.approx(3 * plan["cost"]["device_hours"])
    assert plan["placement"]["can_run_here"] is False


def test_a_run_on_absent_hardware_ends_with_5_and_writes_nothing(
    repository: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = sorted(repository.rglob("*"))
    assert main(["+target=mine"]) == 5
    err = capsys.readouterr().err.splitlines()
    assert err[0] == "vibeserve: target 'mine' cannot run from here; nothing was started or written"
    assert err[1].startswith("no configured host has 1 x h100 (sm 90): ")
    assert err[-1] == "twin: vibeserve +target=smollm2_cpu"
    assert sorted(repository.rglob("*")) == before


def test_a_selected_ssh_host_is_planned_for_and_asked_by_a_run(
    repository: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["plan", "mine", "host=lab"]) == 0
    told = "host.kind ssh (me@lab): planned as declared, because a plan asks no other machine"
    assert told in capsys.readouterr().out
    (repository / "conf/host/lab.yaml").write_text("kind: ssh\naddress: me@127.0.0.1:1\n")
    assert main(["+target=mine", "host=lab"]) == 5
    told = "nothing can be sent to host me@127.0.0.1:1: ssh: connect to host 127.0.0.1 port 1"
    assert told in capsys.readouterr().err


def test_a_goal_out_of_reach_is_refused_by_plan(repository: Path, capsys: pytest.CaptureFixture[str]) -> None:
    goal = "goals=[{metric: output_throughput, load: c8, min_ratio: 4, against: competent}]"
    assert main(["plan", "mine", goal]) == 2
    assert "output_throughput x4 against competent is unreachable: best possible ratio 3.69" in capsys.readouterr().err


def test_a_layout_that_does_not_exist_is_refused_by_plan(repository: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "mine", "hardware.count=4", "parallelism.tensor=3"]) == 2
    err = capsys.readouterr().err
    assert "parallelism: tensor 3, pipeline auto, replicas auto is no layout of 4 x h100 (sm 90)" in err
    assert "tensor 3 does not divide model.num_heads 32" in err


def test_numbers_are_read_at_a_glance() -> None:
    assert (number(0.012345678), number(1234.5678), number(123456.7)) == ("0.01235", "1235", "123457")
    assert (quantity(0.0048, "s"), quantity(1770.0, "tok/s")) == ("4.8 ms", "1770 tok/s")
