"""`VERDICT.md`: one page that a sceptic can read without any tool, and that says what the manifest says."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
from artifact_samples import package_sample, sample_manifest

from vibeserve.artifact import verify_bytes
from vibeserve.artifact.page import main
from vibeserve.core.environment import Environment
from vibeserve.core.manifest import AuditResult, Manifest, Selection
from vibeserve.core.nouns import Refusal
from vibeserve.report import render_report, render_verdict
from vibeserve.report.markdown import cell, code

SEEN = Environment(
    cpu_model="Xeon 8488C", cpu_flags=("avx512f", "avx512_vnni"), cpu_governor="performance", is_virtual=True,
    memory_gib=7.6, transparent_huge_pages="madvise", kernel="Linux 6.1", python="3.11.9",
    packages={"torch": "2.13.0", "vibeserve": "0.1.0"}, lock_digest="cd" * 32, sandbox_tier="A", engine_cpus=(0,),
    client_cpus=(1,), threads=1, load_average_before=0.31, cpu_pressure_before=0.012, cpu_pressure=0.04,
    steal_share=0.003, wall_s=612.0, started_at="2026-11-30T08:00:00+00:00",
)  # fmt: skip
SELECTION = Selection(
    metric="output_throughput", unit="tok/s", load="c8", selected=131.0, certified=120.0, ratio=120.0 / 131.0
)
MAX_LINES = 90


def manifest(**changes: object) -> Manifest:
    audits = (
        AuditResult(name="repeats", passed=True, text="a prompt that comes again is 1.01 [0.98, 1.03] times as fast"),
        AuditResult(name="soak", passed=False, text="the second half is 12% slower"),
    )
    return sample_manifest(**({"environment": SEEN, "selection": SELECTION, "audits": audits} | changes))


@pytest.fixture(scope="module")
def text() -> str:
    return render_verdict(manifest(), seeds={"c8/0": 7, "c8/1": 8})


def test_it_is_one_page(text: str) -> None:
    assert len(text.splitlines()) <= MAX_LINES
    assert text.startswith(
        "# sample: certified, level quick\n\n**Claim.** output_throughput at load c8 is **1.71x [1.66, 1.78]**"
    )


def test_baselines_have_versions_flags_and_what_was_not_measured(text: str) -> None:
    row = next(line for line in text.splitlines() if line.startswith("| transformers_cb"))
    for words in ("5.24.0", "competent, same bytes", "70 tok/s", "1.71x [1.66, 1.78]", "`--continuous-batching`"):
        assert words in row
    assert "| vllm (no version) | competent, any | - | - | skipped: not installed | none |" in text


def test_the_selected_value_stands_beside_the_certified_one(text: str) -> None:
    section = text.partition("## What the search believed")[2].partition("\n## ")[0]
    assert "3 candidates were tried" in section and "winner's curse" in section
    assert "131 tok/s |" in section and "120 tok/s |" in section and "| 8.4% |" in section


def test_a_certified_value_above_the_selected_one_is_said_to_be_so() -> None:
    more = replace(SELECTION, certified=140.0, ratio=140.0 / 131.0)
    assert "| -6.9% (it found more) |" in render_verdict(manifest(selection=more), seeds={})


@pytest.mark.parametrize(
    "fact",
    ["Xeon 8488C, virtual; flags avx512f avx512_vnni", "server 0 (1 thread), load generator 1",
     "governor | performance", "7.6 GiB, huge pages madvise", "Linux 6.1, 3.11.9",
     "torch 2.13.0, vibeserve 0.1.0; lock `cdcdcdcdcdcdcdcd`",
     "average 0.31, waiting for a core 1.2%", "during 612 s | steal 0.3%, waiting for a core 4.0%", "sandbox tier | A",
     "2 fresh seeds, drawn after the runtime was frozen: c8/0 7, c8/1 8", "GPUs | none"],
)  # fmt: skip
def test_every_fact_of_the_machine_is_there(text: str, fact: str) -> None:
    assert fact in text


def test_audits_what_was_not_run_and_how_to_measure_again(text: str) -> None:
    assert "- passed: repeats: a prompt that comes again is 1.01 \\[0.98, 1.03\\] times as fast" in text
    assert "- **refused**: soak: the second half is 12% slower" in text
    assert "## What was not run\n\n- soak\n" in text
    assert "    vibeserve verify .\n" in text and "sha256sum -c SHA256SUMS" in text and "SHA256SUMS.sig" in text


def test_what_is_not_known_is_not_claimed() -> None:
    unknown = replace(
        SEEN, cpu_governor="", load_average_before=None, cpu_pressure_before=None, cpu_pressure=None, steal_share=None
    )
    page = render_verdict(manifest(environment=unknown), seeds={})
    assert "governor | none to ask" in page and "average unknown, waiting for a core unknown" in page
    assert "steal unknown, waiting for a core unknown" in page
    bare = render_verdict(sample_manifest(metrics=(), authorship=(), goals=(), not_run=(), accuracy={}), seeds={})
    for words in (
        "**Claim.** None",
        "environment | not recorded",
        "none was held",
        "no value of its own",
        "certified on | none |",
    ):
        assert words in bare


def test_the_report_page_has_the_machine_too() -> None:
    html = render_report(manifest())
    for words in ("Linux 6.1", "torch 2.13.0, vibeserve 0.1.0; lock cdcdcdcdcdcdcdcd", "0 (1 threads)", "0.3%"):
        assert words in html
    assert "cpu governor" not in render_report(sample_manifest())


def test_an_uncertified_result_says_why_first() -> None:
    reason = Refusal(gate="baseline", reason_class="missing_baseline", text="vllm | was not\nmeasured <b>")
    page = render_verdict(manifest(status="uncertified", reasons=(reason,)), seeds={})
    assert page.startswith("# sample: uncertified, level quick")
    assert "- not certified: baseline/missing_baseline: vllm \\| was not measured &lt;b>" in page


def test_text_from_elsewhere_cannot_forge_a_row() -> None:
    assert cell("a | b\n# c `d` [e](f) <g>") == "a \\| b # c \\`d\\` \\[e\\](f) &lt;g>"
    assert code("--x `y` | z\n") == "--x 'y' \\| z"
    hostile = render_verdict(manifest(judged_by="me |\n| sandbox tier | A |"), seeds={})
    assert len(re.findall(r"^\| sandbox tier \|", hostile, re.MULTILINE)) == 1


def test_the_artifact_carries_it_and_the_command_prints_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    packaged = package_sample(tmp_path, manifest())
    page = (packaged.path / "VERDICT.md").read_text()
    assert page == render_verdict(packaged.manifest, seeds={"c8/0": 7})
    assert verify_bytes(packaged.path) == [] and "  VERDICT.md\n" in (packaged.path / "SHA256SUMS").read_text()
    assert main([str(packaged.path), "--verdict"]) == 0
    assert capsys.readouterr().out == page
    assert main([str(packaged.path), "--verdict", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["verdict"] == page


def test_a_manifest_with_nothing_in_it_has_no_empty_cells() -> None:
    nothing: dict[str, object] = dict.fromkeys(("goals", "authorship", "metrics", "not_run", "rounds"), ())
    nothing |= {"accuracy": {}, "usage": {}, "digests": {}, "hardware": {}, "candidates_tried": 0}
    empty = sample_manifest(**nothing, status="uncertified")
    page = render_verdict(empty, seeds={})
    assert not re.search(
        r"\| *\|$|: *$|\bNone\b(?!:)|0 fresh", page.partition("## Who vouches")[0].replace("| | |\n", ""), re.MULTILINE
    )
    for line in (
        "| traffic it was certified on | none |", "| hardware | not recorded |",
        "- nothing is recorded: no headline was measured",
    ):  # fmt: skip
        assert line in page.splitlines()
    html = render_report(empty)
    assert "<p>Nothing was measured.</p>" in html and "<p>Nothing was recorded.</p>" in html
