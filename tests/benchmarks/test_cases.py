"""The table of the case studies out of small artifacts: what is quoted, what is passed over, what is missing."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from artifact_samples import sample_contents, sample_manifest, sample_metric, sample_spec, write_journal

from benchmarks.cases.command import main
from benchmarks.cases.declared import CASES
from vibeserve.artifact import package
from vibeserve.config import compose_spec
from vibeserve.core.manifest import BaselineValue, MetricResult
from vibeserve.errors import SpecError
from vibeserve.journal import Journal
from vibeserve.spec import Precision

TARGETS = [case.target for case in CASES]


def make_artifact(
    root: Path, scratch: Path, *, ceilings: Sequence[dict[str, Any]] = (), precision: str = "same_bytes", **changes: Any
) -> Path:
    """A packaged sample of case A below `root`."""
    manifest = sample_manifest(**{"target": "smollm2_cpu", "level": "standard", **changes})
    spec = sample_spec(manifest)
    spec.evaluation.precision = Precision(precision)
    scratch.mkdir(parents=True)
    contents = sample_contents(scratch, manifest, spec=spec)
    contents = replace(contents, plan={**contents.plan, "ceilings": list(ceilings)})
    with Journal.open(scratch / "journal.jsonl") as journal:
        write_journal(journal, manifest)
        return package(contents, out_dir=root, journal=journal).path


def document(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    assert main([*words, "--json"]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def answers(found: dict[str, Any], metric: str, precision: str = "same_bytes") -> dict[str, dict[str, Any]]:
    kept = [each for each in found["reaches"] if (each["metric"], each["precision"]) == (metric, precision)]
    return {each["load"]: each for each in kept}


def against(metric: MetricResult, *peers: BaselineValue) -> MetricResult:
    return replace(metric, baselines=peers)


def peer(name: str, ratio: float | None, *, low: float | None = None, **more: Any) -> BaselineValue:
    fields: dict[str, Any] = {"baseline_class": "competent", "version": "1", "value": 1.0, "ci_low": low or ratio}
    return BaselineValue(name=name, ratio=ratio, ci_high=ratio, **{**fields, **more})


def test_nothing_measured_is_said_with_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = document(capsys, "--only", "B,e", "--root", str(tmp_path))
    assert found["cases"] == []
    assert {each["met"] for each in found["reaches"]} == {None}
    assert found["not_measured"] == [
        {"case": "B", "target": "code_edit_cpu", "command": "vibeserve +target=code_edit_cpu"},
        {"case": "E", "target": "json_cpu", "command": "vibeserve +target=json_cpu"},
        {
            "case": "E", "target": "json_cpu",
            "command": "vibeserve +target=json_cpu evaluation=any_precision evaluation.loads=all",
        },
    ]  # fmt: skip
    assert main(["--only", "B", "--root", str(tmp_path)]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "B  predicted outputs: code_edit_cpu",
        *(
            f"   e2el_p50 at {load} against {name}, same bytes: >= {bar}: not measured (no certified artifact); "
            "vibeserve +target=code_edit_cpu"
            for load, name, bar in (
                ("edits", "vllm", "6"),
                ("edits", "vllm_ngram", "2"),
                ("edits", "transformers_prompt_lookup", "2"),
                ("useless", "vllm", "0.95"),
            )
        ),
        "",
    ]


def test_rows_and_reaches_of_a_certified_artifact(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = tmp_path / "artifacts"
    ceilings = [
        {"metric": "output_throughput", "load": "c4", "value": 160.0},
        {"metric": "tpot_p50", "load": "c4", "value": 0.01},
    ]
    throughput = replace(sample_metric("output_throughput", load="c4", candidate=80.0, peer=60.0), roofline_share=None)
    tpot = replace(sample_metric("tpot_p50", load="c4", candidate=0.04, peer=0.06), roofline_share=None)
    make_artifact(
        root, tmp_path / "one", ceilings=ceilings, metrics=(sample_metric("output_throughput"), throughput, tpot)
    )
    found = document(capsys, "--only", "A", "--root", str(root))
    row = next(each for each in found["cases"] if (each["load"], each["peer"]) == ("c8", "transformers_cb"))
    assert row == row | {
        "case": "A", "target": "smollm2_cpu", "metric": "output_throughput", "role": "headline", "level": "standard",
        "precision": "same_bytes", "authorship": "assembled", "baseline_class": "competent", "ours": 120.0,
        "peer_version": "5.24.0", "peer_flags": ["--continuous-batching"], "peer_value": 70.0, "roofline_share": 0.36,
        "artifact": "artifacts/smollm2_cpu/0123456789abcdef",
    }  # fmt: skip
    assert row["ratio"] == pytest.approx(120 / 70)
    shares = {(each["metric"], each["load"]): each["roofline_share"] for each in found["cases"]}
    # of a rate the share of the most, of a latency that of the least
    assert shares["output_throughput", "c4"] == 0.5
    assert shares["tpot_p50", "c4"] == 0.25
    assert {load: each["met"] for load, each in answers(found, "output_throughput").items()} == {
        "c1": None, "c4": False, "c8": True, "c16": None, "r0.3": None, "r0.6": None, "r0.9": None, "r1.2": None
    }  # fmt: skip
    assert answers(found, "tpot_p50")["c4"]["met"] is True
    assert answers(found, "output_throughput", "any")["c8"]["why"] == "vllm: skipped, not installed"
    assert main(["--only", "A", "--root", str(root)]) == 0
    text = capsys.readouterr().out
    assert "   0123456789abcdef: certified, level standard, assembled\n" in text
    assert "   flags of transformers_cb: --continuous-batching\n" in text
    assert "output_throughput at c8 against competent, same bytes: >= 1.2: 1.71 (transformers_cb): met" in text


def test_the_hardest_peer_decides_and_has_to_be_sure(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = tmp_path / "artifacts"
    base = sample_metric("output_throughput")
    unsure = against(replace(base, load="c1"), peer("vllm", 1.6, low=0.9))
    hardest = against(replace(base, load="c4"), peer("vllm", 1.4), peer("transformers_cb", 9.0))
    open_one = against(replace(base, load="c8"), peer("vllm", 2.0), peer("transformers_cb", None, value=None))
    naive = against(replace(base, load="c16"), peer("transformers", 9.0, baseline_class="naive"))
    rate = against(replace(base, load="r0.5"), peer("vllm", 1.3))
    make_artifact(root, tmp_path / "one", metrics=(unsure, hardest, open_one, naive, rate))
    found = answers(document(capsys, "--only", "A", "--root", str(root)), "output_throughput")
    assert (found["c1"]["met"], found["c1"]["ratio"], found["c1"]["ci_low"]) == (False, 1.6, 0.9)
    assert (found["c4"]["met"], found["c4"]["peer"]) == (False, "vllm")
    assert found["c8"]["met"] is False
    assert (found["c16"]["met"], found["c16"]["why"]) == (None, "0123456789abcdef declares no peer that it is against")
    # rates that were measured stand for those that are only declared
    assert [load for load in found if load.startswith("r")] == ["r0.5"]
    assert found["r0.5"]["met"] is True


def test_other_artifacts_fill_what_the_latest_has_not(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = tmp_path / "artifacts"
    free = against(replace(sample_metric("output_throughput"), load="c4"), peer("openvino", 1.3, precision="any"))
    make_artifact(root, tmp_path / "a", plan_id="a" * 16, metrics=(sample_metric("output_throughput", load="c4"),))
    make_artifact(root, tmp_path / "b", plan_id="b" * 16, precision="any", metrics=(free,))
    other = {"cpu_model": "another", "num_cpus": 8, "memory_gib": 8, "cpu_flags": []}
    make_artifact(root, tmp_path / "c", plan_id="c" * 16, hardware=other)
    make_artifact(root, tmp_path / "d", plan_id="d" * 16, level="quick")
    make_artifact(root, tmp_path / "e", plan_id="e" * 16, status="uncertified")
    make_artifact(root, tmp_path / "f", plan_id="f" * 16, metrics=(sample_metric("output_throughput"),))
    found = document(capsys, "--only", "A", "--root", str(root))
    assert {row["artifact"][-16:] for row in found["cases"]} == {"a" * 16, "b" * 16, "f" * 16}
    assert answers(found, "output_throughput")["c8"]["artifact"].endswith("f" * 16)
    # what was free to change its bits answers for the other table only
    assert answers(found, "output_throughput")["c4"]["artifact"].endswith("a" * 16)
    assert answers(found, "output_throughput", "any")["c4"]["artifact"].endswith("b" * 16)
    assert main(["--only", "A", "--root", str(root)]) == 0
    passed_over = [line.strip() for line in capsys.readouterr().out.splitlines() if "passed over" in line]
    assert passed_over == [
        f"passed over: {'e' * 16}: uncertified",
        f"passed over: {'d' * 16}: level quick, which is not quoted",
        f"passed over: {'c' * 16}: certified on other hardware",
    ]


def test_a_changed_artifact_is_not_quoted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = tmp_path / "artifacts"
    path = make_artifact(root, tmp_path / "one")
    (path / "manifest.json").write_text((path / "manifest.json").read_text().replace("120.0", "240.0"))
    assert document(capsys, "--only", "A", "--root", str(root))["cases"] == []
    assert main(["--only", "A", "--root", str(root)]) == 0
    assert "passed over: 0123456789abcdef: not as it was packaged: manifest.json" in capsys.readouterr().out


def test_run_measures_what_is_missing_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = tmp_path / "artifacts"
    ran: list[list[str]] = []

    def run(argv: list[str]) -> int:
        ran.append(argv)
        if "evaluation=all_loads" in argv:
            make_artifact(root, tmp_path / "one")
            return 0
        return 5

    assert main(["--only", "A,B", "--root", str(root), "--run", "--json"], run=run) == 5
    told = capsys.readouterr()
    assert ran == [
        ["+target=smollm2_cpu", "workload=chat_sweep", "baseline=all", "evaluation=all_loads"],
        [
            "+target=smollm2_cpu", "workload=chat_sweep", "baseline=all", "evaluation=any_precision",
            "evaluation.loads=all",
        ],
        ["+target=code_edit_cpu"],
    ]  # fmt: skip
    assert "+ vibeserve +target=code_edit_cpu\n  exit 5\n" in told.err
    assert answers(json.loads(told.out), "output_throughput")["c8"]["met"] is True


def test_an_unknown_case_lists_those_there_are() -> None:
    with pytest.raises(SpecError) as caught:
        main(["--only", "A,G"])
    assert str(caught.value) == (
        "bench-cases: --only A,G: no case 'G'\n"
        "  valid: A (chat), B (predicted outputs), C (shared prefixes on a hybrid model), D (streaming speech), "
        "E (constrained JSON), F (text to image), F (text to image token by token)"
    )


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.target)
def test_every_command_composes_and_declares_what_it_is_to_measure(case: Any) -> None:
    from vibeserve.core.nouns import METRICS

    for reach in case.reaches:
        spec = compose_spec(reach.command.split()[1:])
        names = {item.baseline_class.value: item.precision.value for item in spec.baseline.values()}
        assert spec.target.name == case.target
        assert reach.metric in METRICS
        assert set(reach.loads or (reach.load,)) <= set(spec.workload.loads)
        assert spec.evaluation.loads == "all" or {reach.load} == {spec.workload.headline_load}
        assert reach.against in spec.baseline or reach.against in names
        if reach.precision == "any":
            assert any(item.precision is Precision.any for item in spec.baseline.values())
