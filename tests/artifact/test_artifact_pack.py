"""Packaging: what is in the folder, that it is whole or absent, and that it reads back."""

from __future__ import annotations

import json
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from artifact_samples import package_sample, sample_contents, sample_golden, sample_manifest, sample_metric
from numbers_target import numbers_spec, write_target

from vibeserve.artifact import (
    Packaged,
    manifest_from_data,
    package,
    read_golden,
    read_manifest,
    read_spec,
    resolve_artifact,
    to_json_data,
    unpack_runtime,
    verify_bytes,
)
from vibeserve.artifact.bill import parse_lock
from vibeserve.artifact.open import read_golden_seeds
from vibeserve.artifact.provenance import slsa_predicate
from vibeserve.artifact.schema import check_manifest_data, manifest_schema
from vibeserve.artifact.sums import SumsError, parse_sums
from vibeserve.core.documents import digest_file
from vibeserve.core.nouns import Refusal
from vibeserve.errors import RefusedError, SpecError
from vibeserve.journal import Journal, read_events
from vibeserve.modalities import bundle_ref
from vibeserve.modalities.copies import with_contract

REPOSITORY = Path(__file__).resolve().parents[2]


def test_the_folder_holds_what_the_design_names(packaged: Packaged) -> None:
    names = {path.relative_to(packaged.path).as_posix() for path in packaged.path.rglob("*") if path.is_file()}
    assert names >= {
        "manifest.json", "spec.yaml", "plan.json", "journal.jsonl", "report.html", "VERDICT.md",
        "checkpoints.bundle", "SHA256SUMS", "golden/seeds.json", "golden/replies.jsonl",
        "rounds/0001/proposal.json", "rounds/0001/verdict.json",
        "rounds/0001/measurements.json", "rounds/0001/change.patch", "runtime/runtime/model.py", "runtime/service.yaml",
        "runtime/README.md", "runtime/requirements.lock", "runtime/tests/test_runtime.py", "runtime/Dockerfile",
        "runtime/LICENSE", "runtime/NOTICE", "runtime/sbom.cdx.json",
    }  # fmt: skip
    assert not [path for path in packaged.path.parent.iterdir() if path.name.startswith(".")]


def test_latest_points_at_it_relatively(packaged: Packaged) -> None:
    latest = packaged.path.parent / "latest"
    assert latest.is_symlink() and str(latest.readlink()) == packaged.path.name
    assert resolve_artifact(latest) == packaged.path.resolve()


def test_the_sums_are_those_of_sha256sum(packaged: Packaged) -> None:
    subprocess.run(["sha256sum", "--quiet", "-c", "SHA256SUMS"], cwd=packaged.path, check=True)
    assert packaged.sums_digest == digest_file(packaged.path / "SHA256SUMS")


def test_the_runs_journal_ends_with_the_digest_of_the_sums(tmp_path: Path) -> None:
    packaged = package_sample(tmp_path)
    last = read_events(tmp_path / "journal.jsonl")[-1]
    assert (last.kind, last.data["sha256sums"]) == ("packaged", packaged.sums_digest)
    inside = [event.kind for event in read_events(packaged.path / "journal.jsonl")]
    assert inside == ["opened", "tier", *["round"] * 4, "certified", "claimed"]


def test_everything_reads_back(packaged: Packaged, tmp_path: Path) -> None:
    assert read_manifest(packaged.path) == packaged.manifest
    assert read_golden(packaged.path) == sample_golden()
    assert read_spec(packaged.path).target.name == "sample"
    copy = unpack_runtime(packaged.path, tmp_path / "copy")
    assert (copy / "runtime" / "model.py").read_text() == "HIDDEN = 64\n"


def test_files_that_the_target_brings_travel_with_it_and_are_digested(tmp_path: Path) -> None:
    base = write_target(tmp_path / "targets/base", workload="", faults="", reference="")
    own = write_target(tmp_path / "targets/numbers")
    (own / "__pycache__").mkdir()
    (own / "__pycache__/check.pyc").write_bytes(b"0")
    spec = numbers_spec(own)
    spec.target.inherited_dirs = [str(base)]
    packaged = package_sample(tmp_path, spec=spec)
    contract = packaged.path / "contract"
    assert sorted(path.relative_to(contract).as_posix() for path in contract.rglob("*") if path.is_file()) == [
        "check.py", "faults.py", "inherited/00/check.py", "inherited/00/target.yaml", "reference.py", "target.yaml",
        "workload.py",
    ]  # fmt: skip
    assert "contract/check.py" in (packaged.path / "SHA256SUMS").read_text()
    assert len(packaged.manifest.digests["contract"]) == 64
    ref = bundle_ref(with_contract(read_spec(packaged.path), contract))
    assert ref.check == f"file:{contract}/check.py" and ref.context.target_dir == str(contract)


def test_a_target_that_brings_nothing_has_no_contract_folder(packaged: Packaged) -> None:
    assert not (packaged.path / "contract").exists() and "contract" not in packaged.manifest.digests


def test_the_manifest_uses_the_public_field_names(packaged: Packaged) -> None:
    data = json.loads((packaged.path / "manifest.json").read_text())
    assert set(data) >= {
        "schema_version", "target", "plan_id", "status", "level", "not_run", "reasons", "goals", "authorship",
        "metrics",
        "accuracy", "judged_by", "sandbox_tier", "hardware", "candidates_tried", "usage", "digests", "provenance",
        "rounds",
    }  # fmt: skip
    metric = data["metrics"][0]
    assert (metric["direction"], metric["role"]) == ("max", "headline")
    assert {"name", "class", "version", "flags", "precision", "value", "ratio", "ci_low", "ci_high"} <= set(
        metric["baselines"][0]
    )
    assert data["rounds"][2]["refusals"][0]["class"] == "top1_agreement"
    assert len(data["digests"]["runtime"]) == 64 and data["digests"]["weights"] == "ab" * 32


def test_reasons_carry_class_and_file_only_where_there_is_one() -> None:
    reasons = (
        Refusal(gate="integrity", reason_class="digest_mismatch", text="t", file="a.py"),
        Refusal(gate="baseline", reason_class="not_measured", text="u"),
    )
    manifest = sample_manifest(status="uncertified", reasons=reasons)
    data = to_json_data(manifest)
    assert data["reasons"] == [
        {"gate": "integrity", "class": "digest_mismatch", "text": "t", "file": "a.py"},
        {"gate": "baseline", "class": "not_measured", "text": "u"},
    ]
    check_manifest_data(data)
    assert manifest_from_data(json.loads(json.dumps(data))) == manifest


def test_packaging_again_replaces_the_folder_whole(tmp_path: Path) -> None:
    packaged = package_sample(tmp_path)
    (packaged.path / "stray").write_text("x")
    leftover = packaged.path.parent / f".{packaged.path.name}.new-dead"
    leftover.mkdir()
    again = package_sample(tmp_path)
    assert again.path == packaged.path
    assert not (again.path / "stray").exists() and not leftover.exists()
    assert verify_bytes(again.path, expect=again.sums_digest) == []


def test_a_failed_packaging_leaves_the_old_artifact_and_no_draft(packaged: Packaged, tmp_path: Path) -> None:
    contents = sample_contents(tmp_path / "other")
    (contents.workspace / "README.md").unlink()
    with Journal.open(tmp_path / "journal.jsonl") as journal:
        with pytest.raises(RefusedError, match=r"the workspace has no README\.md"):
            package(contents, out_dir=tmp_path / "artifacts", journal=journal)
    assert verify_bytes(packaged.path, expect=packaged.sums_digest) == []
    assert sorted(path.name for path in packaged.path.parent.iterdir()) == [packaged.path.name, "latest"]


def test_a_link_in_the_workspace_is_not_packaged(tmp_path: Path) -> None:
    contents = sample_contents(tmp_path)
    (contents.workspace / "secret").symlink_to("/etc/hostname")
    with Journal.open(tmp_path / "journal.jsonl") as journal:
        with pytest.raises(RefusedError, match="secret is a symbolic link"):
            package(contents, out_dir=tmp_path / "artifacts", journal=journal)


def test_an_uncertified_run_without_golden_data_is_packaged_too(tmp_path: Path) -> None:
    contents = replace(sample_contents(tmp_path, sample_manifest(status="uncertified")), golden=None)
    with Journal.open(tmp_path / "journal.jsonl") as journal:
        packaged = package(contents, out_dir=tmp_path / "artifacts", journal=journal)
    assert verify_bytes(packaged.path) == []
    with pytest.raises(SpecError, match="holds no golden data"):
        read_golden(packaged.path)


def test_seeds_that_cannot_be_read_are_not_taken_for_none(packaged: Packaged) -> None:
    assert read_golden_seeds(packaged.path) == {"c8/0": 7}
    (packaged.path / "golden/seeds.json").write_text('{"seeds": {"c8/0": "many"}}')
    with pytest.raises(SpecError, match=r"seeds\.json holds no seeds that can be read: invalid literal"):
        read_golden_seeds(packaged.path)
    (packaged.path / "golden/seeds.json").unlink()
    assert read_golden_seeds(packaged.path) == {}


def test_a_manifest_outside_its_schema_is_not_written(tmp_path: Path) -> None:
    contents = sample_contents(tmp_path, sample_manifest(status="splendid"))
    with Journal.open(tmp_path / "journal.jsonl") as journal:
        with pytest.raises(SpecError, match=r"\$.status: 'splendid' is not one of"):
            package(contents, out_dir=tmp_path / "artifacts", journal=journal)


def test_the_checked_in_schema_is_the_generated_one() -> None:
    from jsonschema import Draft202012Validator

    schema = manifest_schema()
    Draft202012Validator.check_schema(schema)
    checked_in = json.loads((REPOSITORY / "docs" / "schemas" / "manifest.schema.json").read_text())
    assert checked_in == schema, "run `python -m vibeserve.artifact.schema docs/schemas/manifest.schema.json`"


@pytest.mark.parametrize(
    "change", [{"extra": 1}, {"schema_version": 2}, {"metrics": [{"name": "x"}]}, {"usage": {"a": "b"}}]
)
def test_the_schema_refuses_what_the_manifest_cannot_hold(change: dict[str, object]) -> None:
    with pytest.raises(SpecError, match="does not satisfy its schema"):
        check_manifest_data(to_json_data(sample_manifest()) | change)


def test_a_folder_that_is_no_artifact_says_so(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="there is no such folder"):
        resolve_artifact(tmp_path / "absent")
    with pytest.raises(SpecError, match=r"neither manifest\.json nor SHA256SUMS"):
        resolve_artifact(tmp_path)
    with pytest.raises(SpecError, match=r"has no manifest.json\nnext: name a folder"):
        read_manifest(tmp_path)


def test_the_container_file_fills_the_service_file(packaged: Packaged) -> None:
    text = (packaged.path / "runtime" / "Dockerfile").read_text()
    assert 'CMD ["python", "-m", "runtime", "--model-dir", "/model", "--port", "8000"]' in text
    assert 'RUN ["python", "-m", "runtime.build"]' in text and "g++" in text and 'ENV OMP_NUM_THREADS="1"' in text


def test_the_bill_of_materials_lists_the_lock(packaged: Packaged) -> None:
    data = json.loads((packaged.path / "runtime" / "sbom.cdx.json").read_text())
    assert data["bomFormat"] == "CycloneDX"
    assert [item["purl"] for item in data["components"]] == ["pkg:pypi/torch@2.13.0", "pkg:pypi/uvicorn@0.35.0"]


def test_a_lock_must_pin() -> None:
    assert parse_lock("# c\nB_b==1.0+cpu ; x\na == 2 # note\n--pre\n") == [("a", "2"), ("b-b", "1.0+cpu")]
    with pytest.raises(RefusedError, match="line 1: 'torch>=2' is not pinned"):
        parse_lock("torch>=2\n")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "it is empty"),
        ("abc  x\n", "line 1 is not"),
        (f"{'a' * 64}  ../x\n", "no path inside"),
        (f"{'a' * 64}  /x\n", "no path inside"),
        (f"{'a' * 64}  a//b\n", "no path inside"),
        (f"{'a' * 64}  x\n{'a' * 64}  x\n", "a second time"),
    ],
)
def test_a_malformed_list_of_sums_is_refused(text: str, message: str) -> None:
    with pytest.raises(SumsError, match=message):
        parse_sums(text)


def test_provenance_has_the_shape_of_slsa() -> None:
    predicate = slsa_predicate(
        target="sample", overrides={"budget": "smoke"}, plan_id="p", versions={"vibeserve": "0.1.0"},
        materials={"weights": "ab"}, started_at="2026-11-30T08:00:00Z", finished_at="2026-11-30T08:10:00Z",
    )  # fmt: skip
    assert predicate["buildDefinition"]["externalParameters"] == {"target": "sample", "budget": "smoke"}
    assert predicate["buildDefinition"]["resolvedDependencies"] == [{"name": "weights", "digest": {"sha256": "ab"}}]
    assert predicate["runDetails"]["builder"]["version"] == {"vibeserve": "0.1.0"}


def test_a_result_without_agent_code_is_headed_assembled() -> None:
    from vibeserve.core.manifest import Authorship

    assert sample_manifest().heading == "assembled"
    agent = Authorship(origin="agent:codex/x", lines=5, share_of_log_ratio=0.1)
    assert sample_manifest(authorship=(agent,)).heading == "synthesised"
    assert sample_manifest(authorship=(replace(agent, lines=0),)).heading == "assembled"


def test_the_headline_is_the_first_headline_metric() -> None:
    headline = sample_manifest().headline()
    assert headline is not None and (headline.name, headline.load) == ("output_throughput", "c8")
    assert sample_manifest(metrics=(sample_metric("tpot_p50"),)).headline() is None
