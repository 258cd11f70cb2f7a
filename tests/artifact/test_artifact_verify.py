"""`verify`: every kind of changed byte, the claim rule, other hardware, the answer's shape and exit codes."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from artifact_samples import package_sample, sample_manifest, sample_metric

from vibeserve.artifact import Packaged, verify_bytes
from vibeserve.artifact.claims import ClaimState
from vibeserve.artifact.sums import SUMS_NAME, render_sums
from vibeserve.artifact.verification import Verification, hardware_difference, verification_data, verify
from vibeserve.artifact.verify import main
from vibeserve.core.manifest import VerifyResult
from vibeserve.core.nouns import Refusal
from vibeserve.errors import InfraError, RefusedError, SpecError

HARDWARE: dict[str, Any] = sample_manifest().hardware


def append(name: str) -> Callable[[Path], object]:
    return lambda root: (root / name).open("ab").write(b"\n")


def write(name: str, text: str) -> Callable[[Path], object]:
    def change(root: Path) -> None:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)

    return change


def replace_by_link(root: Path) -> None:
    target = root.parent / "elsewhere.py"
    (root / "runtime/runtime/model.py").rename(target)
    (root / "runtime/runtime/model.py").symlink_to(target)


CHANGES = [
    (append("runtime/runtime/model.py"), "runtime/runtime/model.py", "not the runtime that was certified"),
    (append("manifest.json"), "manifest.json", "its claims were edited after packaging"),
    (append("golden/replies.jsonl"), "golden/replies.jsonl", "does not hold the recorded golden data"),
    (append("rounds/0001/verdict.json"), "rounds/0001/verdict.json", "the record of the search"),
    (append("journal.jsonl"), "journal.jsonl", "the record of the search"),
    (append("spec.yaml"), "spec.yaml", "was changed after packaging"),
    (lambda root: (root / "golden/seeds.json").unlink(), "golden/seeds.json", "golden/seeds.json is missing"),
    (lambda root: (root / "manifest.json").unlink(), "manifest.json", "manifest.json is missing"),
    (write("runtime/extra.py", "x"), "runtime/extra.py", "SHA256SUMS does not list it"),
    (
        write("runtime/runtime/__pycache__/m.pyc", "x"),
        "runtime/runtime/__pycache__/m.pyc",
        "running the runtime in place",
    ),
    (lambda root: (root / "link").symlink_to("/etc"), "link", "is a symbolic link to /etc"),
    (replace_by_link, "runtime/runtime/model.py", "is a symbolic link"),
    (lambda root: (root / SUMS_NAME).unlink(), SUMS_NAME, "SHA256SUMS is missing"),
    (write(SUMS_NAME, "nonsense\n"), SUMS_NAME, "SHA256SUMS is malformed: line 1"),
    (write(SUMS_NAME, "ab\r\n"), SUMS_NAME, "SHA256SUMS has line ends of Windows (CRLF): a transfer rewrote"),
    (write(SUMS_NAME, ""), SUMS_NAME, "SHA256SUMS is malformed: it is empty"),
]


@pytest.mark.parametrize(("change", "file", "text"), CHANGES)
def test_every_change_is_refused_by_name(
    packaged: Packaged, change: Callable[[Path], object], file: str, text: str
) -> None:
    change(packaged.path)
    refusals = verify_bytes(packaged.path)
    assert [(item.gate, item.reason_class, item.file) for item in refusals] == [("integrity", "digest_mismatch", file)]
    assert text in refusals[0].text


def test_the_messages_for_runtime_manifest_and_golden_data_differ(packaged: Packaged) -> None:
    for name in ("runtime/runtime/model.py", "manifest.json", "golden/replies.jsonl"):
        append(name)(packaged.path)
    texts = {item.text.replace(item.file or "", "") for item in verify_bytes(packaged.path)}
    assert len({text.split("(")[0] for text in texts}) == 3


def test_every_single_byte_counts(packaged: Packaged) -> None:
    path = packaged.path / "runtime/runtime/model.py"
    original = path.read_bytes()
    for index in range(len(original)):
        path.write_bytes(original[:index] + bytes([original[index] ^ 1]) + original[index + 1 :])
        assert len(verify_bytes(packaged.path)) == 1
    path.write_bytes(original)
    assert verify_bytes(packaged.path) == []


def test_a_rewritten_list_is_caught_by_the_expected_digest(packaged: Packaged) -> None:
    append("manifest.json")(packaged.path)
    (packaged.path / SUMS_NAME).write_text(render_sums(packaged.path))
    assert verify_bytes(packaged.path) == []
    refusals = verify_bytes(packaged.path, expect=packaged.sums_digest)
    assert [item.file for item in refusals] == [SUMS_NAME]
    assert "not the artifact that its origin published" in refusals[0].text


@pytest.mark.parametrize(
    ("name", "part"),
    [
        ("runtime/runtime/model.py", "runtime"), ("journal.jsonl", "journal.jsonl"), ("spec.yaml", "spec.yaml"),
        ("golden/seeds.json", "golden"), ("rounds/0000/verdict.json", "rounds"),
    ],
)  # fmt: skip
def test_a_rewritten_list_does_not_hide_what_the_manifest_contradicts(packaged: Packaged, name: str, part: str) -> None:
    append(name)(packaged.path)
    (packaged.path / SUMS_NAME).write_text(render_sums(packaged.path))
    (refusal,) = verify_bytes(packaged.path)
    assert (refusal.file, refusal.reason_class) == (part, "digest_mismatch")
    assert refusal.text.startswith(f"{part} is not what manifest.json says: one of them was changed after packaging (")


def test_the_expected_digest_may_be_written_in_its_usual_forms(packaged: Packaged) -> None:
    for form in (packaged.sums_digest, packaged.sums_digest.upper(), f"sha256:{packaged.sums_digest}"):
        assert verify_bytes(packaged.path, expect=form) == []
    assert verify_bytes(packaged.path, expect=packaged.sums_digest[:16]) != []


class Machine:
    """What `verify` asks of this machine: an identity, and a measurement against a peer of some speed."""

    def __init__(self, *, peer: float = 70.0, hardware: dict[str, Any] | None = None) -> None:
        self.calls: list[str] = []
        self._peer = peer
        self._hardware = HARDWARE if hardware is None else hardware
        self.reasons: tuple[Refusal, ...] = ()
        self.error: Exception | None = None
        self.accuracy = {"top1_agreement": 0.99}
        self.judged_by = ""

    def identity(self) -> dict[str, Any]:
        self.calls.append("identity")
        return self._hardware

    def reverify(self, known: Verification, artifact: Path) -> VerifyResult:
        level = known.level
        self.calls.append(level)
        if self.error:
            raise self.error
        metrics = (sample_metric("output_throughput", peer=self._peer),) if level in ("performance", "full") else ()
        return VerifyResult(
            level=level, metrics=metrics, accuracy=self.accuracy, reasons=self.reasons, judged_by=self.judged_by
        )

    def verify(self, artifact: Path, *, level: str | None = "performance") -> Verification:
        return verify(artifact, level=level, identity=self.identity, reverify=self.reverify)


def test_changed_bytes_are_refused_before_anything_starts(packaged: Packaged) -> None:
    append("runtime/runtime/model.py")(packaged.path)
    machine = Machine()
    done = machine.verify(packaged.path)
    assert machine.calls == []
    assert (done.status, done.exit_code) == ("refused", 3)
    assert done.line.startswith("refused: integrity/digest_mismatch: runtime/runtime/model.py was changed")
    assert done.line.endswith("nothing was started")


def test_a_claim_that_holds(packaged: Packaged) -> None:
    machine = Machine()
    done = machine.verify(packaged.path)
    assert machine.calls == ["identity", "performance"]
    assert (done.status, done.exit_code, done.performance) == ("certified", 0, ClaimState.HOLDS)
    assert "output_throughput c8 against transformers_cb: 1.71x [1.66, 1.78], claim 1.71x holds" in done.line
    assert "\n" not in done.line


def test_a_claim_whose_baseline_is_not_here_holds_in_part(tmp_path: Path) -> None:
    metric = sample_metric("output_throughput")
    vllm = replace(metric.baselines[0], name="vllm")
    headline = replace(metric, baselines=(metric.baselines[0], vllm))
    packaged = package_sample(tmp_path, sample_manifest(metrics=(headline,)))
    done = Machine().verify(packaged.path)
    assert (done.status, done.exit_code, done.performance) == ("certified", 0, ClaimState.HOLDS_IN_PART)
    assert "against vllm: claim 1.71x not measured again; " in done.line
    assert done.line.endswith(
        "performance: holds where it was measured; not measured again: output_throughput c8 against vllm"
    )
    data = verification_data(done)
    assert data["performance"] == "holds_in_part" and data["claims"][1]["ratio"] is None
    assert [check["state"] for check in data["checks"] if "against vllm" in check["name"]] == ["skipped"]


def test_a_claim_that_does_not(packaged: Packaged) -> None:
    done = Machine(peer=110.0).verify(packaged.path)
    assert (done.status, done.exit_code, done.performance) == ("refused", 3, ClaimState.REFUSED)
    assert [item.reason_class for item in done.reasons] == ["regression"]


def test_other_hardware_is_not_compared(packaged: Packaged) -> None:
    machine = Machine(hardware=HARDWARE | {"cpu_model": "EPYC"})
    done = machine.verify(packaged.path, level=None)
    assert machine.calls == ["identity", "accuracy"]
    assert (done.status, done.exit_code) == ("certified", 0)
    assert 'performance: not_comparable (cpu_model "Xeon" there, "EPYC" here)' in done.line
    data = verification_data(done)
    assert (data["performance"], data["verified_level"], data["metrics_are"]) == (
        "not_comparable",
        "accuracy",
        "certified",
    )


def test_a_verdict_says_by_whose_check_it_is(packaged: Packaged) -> None:
    machine = Machine()
    machine.accuracy = {"cosine_max": 0.0021, "num": 4.0}
    machine.judged_by = "judged by the target's own check.py, sha256 ab"
    done = machine.verify(packaged.path, level="accuracy")
    assert "; accuracy cosine_max 0.0021, num 4; judged by the target's own check.py, sha256 ab; " in done.line
    assert verification_data(done)["judged_by"] == "judged by the target's own check.py, sha256 ab"


def test_accuracy_reasons_refuse(packaged: Packaged) -> None:
    machine = Machine()
    machine.reasons = (Refusal(gate="accuracy", reason_class="top1_agreement", text="0.9 of 0.97"),)
    done = machine.verify(packaged.path, level="accuracy")
    assert machine.calls == ["accuracy"]
    assert (done.status, done.performance) == ("refused", ClaimState.NOT_RUN)
    assert "accuracy/top1_agreement: 0.9 of 0.97" in done.line


def test_a_raised_refusal_keeps_its_typed_reasons(packaged: Packaged) -> None:
    machine = Machine()
    machine.error = RefusedError("scan", reasons=(Refusal(gate="scan", reason_class="engine_import", text="vllm"),))
    assert [item.reason_class for item in machine.verify(packaged.path).reasons] == ["engine_import"]
    machine.error = RefusedError("refused without types")
    assert machine.verify(packaged.path).reasons[0].text == "refused without types"
    machine.error = InfraError("no space left")
    with pytest.raises(InfraError):
        machine.verify(packaged.path)


def test_an_uncertified_artifact_does_not_pass(tmp_path: Path) -> None:
    reason = Refusal(gate="baseline", reason_class="not_measured", text="vllm was not measured")
    packaged = package_sample(tmp_path, sample_manifest(status="uncertified", reasons=(reason,)))
    done = Machine().verify(packaged.path, level="bytes")
    assert (done.status, done.exit_code) == ("uncertified", 3)
    assert "baseline/not_measured: vllm was not measured" in done.line
    assert verification_data(done)["reasons"][0]["class"] == "not_measured"


def test_the_documents_fields(packaged: Packaged) -> None:
    data = json.loads(json.dumps(verification_data(Machine().verify(packaged.path))))
    assert set(data) >= {
        "schema_version", "target", "plan_id", "status", "level", "not_run", "reasons", "goals", "authorship",
        "metrics",
        "accuracy", "judged_by", "sandbox_tier", "hardware", "candidates_tried", "usage", "verdict", "claims",
        "performance",
    }  # fmt: skip
    assert data["metrics_are"] == "measured" and data["metrics"][0]["baselines"][0]["class"] == "competent"
    assert data["claims"][0]["state"] == "holds"


def test_a_hardware_difference_names_the_facts() -> None:
    assert hardware_difference(HARDWARE, dict(HARDWARE)) == ""
    assert hardware_difference({"a": (1, 2)}, {"a": [1, 2]}) == ""
    assert hardware_difference({"a": 1, "b": 2, "c": 3}, {}) == "a 1 there, null here; b 2 there, null here and 1 more"


def test_the_command_line(packaged: Packaged, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    latest = str(packaged.path.parent / "latest")
    junit = tmp_path / "junit.xml"
    assert main([latest, "--level", "bytes", "--expect", packaged.sums_digest, "--junit", str(junit)]) == 0
    out = capsys.readouterr().out
    assert out.startswith("certified: sample 0123456789abcdef level quick; bytes ok") and out.count("\n") == 1
    assert junit.is_file()
    append("golden/replies.jsonl")(packaged.path)
    assert main([latest, "--json"]) == 3
    data = json.loads(capsys.readouterr().out)
    assert data["status"] == "refused"
    assert [(item["class"], item["file"]) for item in data["reasons"]] == [("digest_mismatch", "golden/replies.jsonl")]


@pytest.mark.parametrize("argv", [[], ["x", "--level", "some"], ["x", "--max-regression", "1.5"], ["/nowhere"]])
def test_a_wrong_command_line_is_a_spec_error(argv: list[str]) -> None:
    with pytest.raises(SpecError):
        main(argv)


def test_the_byte_level_imports_nothing_heavy(packaged: Packaged, tmp_path: Path) -> None:
    """Under 5 s because it only reads, hashes and renders two pages; speed itself is no test's outcome."""
    import subprocess

    heavy = {"torch", "transformers", "numpy", "hydra", "jsonschema", "aiohttp", "cuda"}
    code = (
        "import sys; from vibeserve.cli.main import main; code = main(['verify', *sys.argv[1:]])\n"
        f"loaded = {heavy!r} & set(sys.modules)\n"
        "assert not loaded, loaded\n"
        "sys.exit(code)"
    )
    options = ["--level", "bytes", "--junit", str(tmp_path / "j.xml"), "--summary", str(tmp_path / "s.md"), "--json"]
    argv = [sys.executable, "-c", code, str(packaged.path), *options]
    done = subprocess.run(argv, check=False, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
