"""`vibeserve compare`: what stands side by side, what never does, and what is refused."""

from __future__ import annotations

import csv
import io
import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from artifact_samples import package_sample, sample_manifest, sample_metric

from vibeserve.cli.main import main
from vibeserve.core.environment import Environment
from vibeserve.core.manifest import Manifest

OTHER_MACHINE = {"cpu_model": "EPYC", "num_cpus": 64, "memory_gib": 256, "gpus": [{"name": "H100"}, {"name": "H100"}]}

SEEN = Environment(
    cpu_model="Xeon", cpu_flags=(), cpu_governor="", is_virtual=False, memory_gib=8.0, transparent_huge_pages="always",
    kernel="Linux 6.1", python="3.11.9", packages={}, lock_digest="cd" * 32, sandbox_tier="A", engine_cpus=(0,),
    client_cpus=(1,), threads=1,
)  # fmt: skip


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def package(project: Path, **changes: Any) -> Path:
    """An artifact below `artifacts/`, by target and plan id."""
    manifest: Manifest = sample_manifest(**changes)
    scratch = project / "scratch" / f"{manifest.target}-{manifest.plan_id}"
    scratch.mkdir(parents=True)
    made = package_sample(scratch, manifest).path
    place = project / "artifacts" / manifest.target / manifest.plan_id
    place.parent.mkdir(parents=True, exist_ok=True)
    shutil.move(made, place)
    latest = place.parent / "latest"
    latest.unlink(missing_ok=True)
    latest.symlink_to(place.name)
    return place


def two(project: Path, **changes: Any) -> None:
    package(project, target="one", plan_id="a" * 16)
    package(project, target="two", plan_id="b" * 16, **changes)


def document(capsys: pytest.CaptureFixture[str], *argv: str) -> Any:
    assert main(["compare", *argv, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def refused(capsys: pytest.CaptureFixture[str], *argv: str) -> str:
    assert main(["compare", *argv]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    return captured.err


def test_each_metric_and_load_is_a_row_with_every_artifacts_value(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    two(project, metrics=(sample_metric("output_throughput", candidate=60.0),))
    (group,) = document(capsys, "one", "two")["groups"]
    assert [(a["label"], a["target"], a["level"], a["status"]) for a in group["artifacts"]] == [
        ("A", "one", "quick", "certified"), ("B", "two", "quick", "certified"),
    ]  # fmt: skip
    rows = {(row["metric"], row["load"]): row for row in group["values"]}
    assert rows["output_throughput", "c8"]["values"] == {"A": 120.0, "B": 60.0}
    assert rows["output_throughput", "c8"]["headline_of"] == ["A", "B"]
    assert rows["tpot_p50", "c4"]["values"] == {"A": 0.04}
    assert group["hardware"]["cpu_model"] == "Xeon"


def test_ratios_against_the_same_version_of_a_baseline_share_a_row_and_others_do_not(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    slower = sample_metric("output_throughput", candidate=77.0)
    package(project, target="one", plan_id="a" * 16)
    package(project, target="two", plan_id="b" * 16, metrics=(slower,))
    newer = replace(slower, baselines=(replace(slower.baselines[0], version="6.0.0"),))
    package(project, target="three", plan_id="c" * 16, metrics=(newer,))
    (group,) = document(capsys, "one", "two", "three")["groups"]
    rows = [row for row in group["ratios"] if (row["metric"], row["load"]) == ("output_throughput", "c8")]
    measured = {(row["baseline"], row["version"]): row["values"] for row in rows if row["baseline"] != "vllm"}
    assert set(measured) == {("transformers_cb", "5.24.0"), ("transformers_cb", "6.0.0")}
    assert {label: round(value["ratio"], 2) for label, value in measured["transformers_cb", "5.24.0"].items()} == {
        "A": 1.71, "B": 1.1,
    }  # fmt: skip
    assert set(measured["transformers_cb", "6.0.0"]) == {"C"}
    skipped = next(row for row in rows if row["baseline"] == "vllm")
    assert skipped["precision"] == "any"
    assert {value["state"] for value in skipped["values"].values()} == {"skipped"}


def test_no_number_is_a_ratio_of_two_artifacts(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    two(project, metrics=(sample_metric("output_throughput", candidate=30.0, peer=30.0),))
    compared = document(capsys, "one", "two")
    numbers = {
        float(word) for word in json.dumps(compared).replace(",", " ").replace("}", " ").split() if _is_number(word)
    }
    assert not {4.0, 0.25} & numbers, "120 tok/s of one run over 30 tok/s of another"
    assert "not comparable finer than 2x" in compared["notes"][0]
    assert "no ratio between artifacts is formed" in compared["notes"][0]


def _is_number(word: str) -> bool:
    try:
        float(word)
    except ValueError:
        return False
    return True


def test_other_hardware_is_another_group_and_is_said_so(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    two(project, hardware=OTHER_MACHINE)
    compared = document(capsys, "one", "two")
    assert [[a["label"] for a in group["artifacts"]] for group in compared["groups"]] == [["A"], ["B"]]
    assert all(set(row["values"]) <= {"A"} for row in compared["groups"][0]["values"])
    assert any("2 kinds of hardware: each group stands alone" in note for note in compared["notes"])
    assert main(["compare", "one", "two"]) == 0
    text = capsys.readouterr().out
    assert "group 1: Xeon, 2 CPUs, 8 GiB\n" in text
    assert "group 2: EPYC, 64 CPUs, 256 GiB, 2 x H100\n" in text


def test_text_shows_values_ratios_and_what_not_to_read_into_them(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    two(project, status="uncertified")
    assert main(["compare", "one", "two/" + "b" * 16]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert any(line.split()[:5] == ["output_throughput", "c8", "tok/s", "120*", "120*"] for line in lines)
    against = "transformers_cb 5.24.0 --continuous-batching (competent, same_bytes)"
    assert any(against in line and "1.71 [1.66, 1.78]" in line for line in lines)
    assert "note: B: not certified." in lines
    assert "note: A, B: level quick, whose numbers are not quoted outside their run." in lines


def test_other_models_and_versions_are_pointed_out(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    two(project, digests={"framework": "f" * 64})
    spec = project / "artifacts/two" / ("b" * 16) / "spec.yaml"
    spec.write_text(spec.read_text().replace("prompt_tokens_max: 512", "prompt_tokens_max: 511"))
    notes = " ".join(document(capsys, "one", "two")["notes"])
    assert "A, B do not serve the same model under the same workload" in notes
    assert "A, B were measured by different versions of VibeServe" in notes
    assert "B: changed after packaging, so its claims have no cover" in notes


def test_memory_that_was_counted_otherwise_stands_in_another_row(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    metrics = (sample_metric("peak_memory", candidate=1.5), sample_metric("output_throughput"))
    for name, way in (("one", "processes"), ("two", "processes and control group"), ("three", "processes")):
        package(
            project,
            target=name,
            plan_id=name[0] * 16,
            metrics=metrics,
            environment=replace(SEEN, memory_counted_by=way),
        )
    compared = document(capsys, "one", "two", "three")
    (group,) = compared["groups"]
    rows = [sorted(row["values"]) for row in group["values"] if row["metric"] == "peak_memory"]
    assert rows == [["A", "C"], ["B"]]
    assert [sorted(row["values"]) for row in group["values"] if row["metric"] != "peak_memory"] == [["A", "B", "C"]]
    assert "A, B, C: peak_memory was not counted in one way, so it stands in several rows." in compared["notes"]


def test_csv_has_a_line_per_baseline(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    two(project)
    assert main(["compare", "one", "two", "--csv"]) == 0
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert len(rows) == 2 * 4 * 2
    first = rows[0]
    assert (first["artifact"], first["target"], first["metric"], first["load"]) == (
        "A",
        "one",
        "output_throughput",
        "c8",
    )
    assert (first["baseline"], first["class"], first["precision"], first["state"]) == (
        "transformers_cb", "competent", "same_bytes", "measured",
    )  # fmt: skip
    assert float(first["ratio"]) == pytest.approx(120 / 70)
    assert rows[1]["ratio"] == "" and rows[1]["state"] == "skipped"


def test_html_is_a_page_that_escapes_and_loads_nothing(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    two(project, hardware={"cpu_model": "<script>alert(1)</script>"})
    assert main(["compare", "one", "two", "--html", "out.html"]) == 0
    assert capsys.readouterr().out == "out.html\n"
    page = (project / "out.html").read_text()
    assert "<script>" not in page and "&lt;script&gt;" in page
    assert "http" not in page.replace("http-equiv", "")
    assert "1.71 [1.66, 1.78]" in page and "120*" in page


def test_paths_targets_and_plans_name_artifacts(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    two(project)
    package(project, target="one", plan_id="c" * 16)
    for words in (["one", "one/" + "a" * 16], ["artifacts/one/latest", "artifacts/two"]):
        (group,) = document(capsys, *words)["groups"]
        assert group["artifacts"][0]["plan_id"] == "c" * 16, "the latest one"
    shutil.move(project / "artifacts", project / "elsewhere")
    (group,) = document(capsys, "one", "two", "--artifacts", "elsewhere")["groups"]
    assert len(group["artifacts"]) == 2


def test_a_missing_artifact_names_those_that_are_there(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    two(project)
    error = refused(capsys, "one", "tvo")
    assert "no artifact 'tvo'; did you mean 'two'?" in error
    assert f"there are: one, one/{'a' * 16}, two, two/{'b' * 16}" in error
    shutil.rmtree(project / "artifacts")
    assert "there are: (none in artifacts)" in refused(capsys, "one", "two")


def test_artifacts_are_found_from_below_the_repository(
    project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    two(project)
    (project / "targets").mkdir()
    (project / "one" / "sub").mkdir(parents=True)
    monkeypatch.chdir(project / "one" / "sub")
    assert document(capsys, "one", "artifacts/two/latest")["groups"]
    assert main(["compare", "one", "two", "--html", "out.html"]) == 0
    assert (project / "one" / "sub" / "out.html").is_file()
    capsys.readouterr()
    assert "there are: (none in elsewhere)" in refused(capsys, "one", "two", "--artifacts", "elsewhere")


def test_one_artifact_is_no_comparison(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    two(project)
    assert "name two artifacts or more" in refused(capsys, "one")
    assert "one artifact is named twice: " in refused(capsys, "one", "one/latest")
    assert "one of --json, --csv and --html" in refused(capsys, "one", "two", "--csv", "--html", "x")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "manifest.json cannot be read as a manifest"),
        ("[]", "manifest.json cannot be read as a manifest"),
        ('{"schema_version": 2}', "manifest.json has schema_version 2; this version of VibeServe reads 1"),
        ('{"schema_version": 1}', "manifest.json cannot be read as a manifest"),
    ],
)
def test_a_manifest_that_cannot_be_read_is_named(
    project: Path, capsys: pytest.CaptureFixture[str], text: str, message: str
) -> None:
    two(project)
    (project / "artifacts/two" / ("b" * 16) / "manifest.json").write_text(text)
    assert message in refused(capsys, "one", "two")


def test_a_spec_that_cannot_be_read_is_named(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    two(project)
    path = project / "artifacts/two" / ("b" * 16) / "spec.yaml"
    for text in ("model: [", "model: {}", ""):
        path.write_text(text)
        assert "spec.yaml cannot be read as a composed spec" in refused(capsys, "one", "two")
