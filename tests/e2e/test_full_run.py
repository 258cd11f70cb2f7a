"""The main job on `tiny_cpu`: one command leaves a certified artifact that verifies, serves and detects any change."""

from __future__ import annotations

import json
import shutil
import signal
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from ci_steps import github_jobs
from e2e_project import COMMAND_TIMEOUT_S, Project, kill_group
from jsonschema import Draft202012Validator

from vibeserve.artifact.manifest import read_manifest
from vibeserve.cli.document_schemas import events_schema, status_schema
from vibeserve.cli.main import main
from vibeserve.schedules import SCHEDULES
from vibeserve.spec import Level

pytestmark = [pytest.mark.slow, pytest.mark.timeout(2 * COMMAND_TIMEOUT_S)]

STEPS = ("weights", "reference", "baselines", "synthesize", "certify", "package")


def test_the_run_is_certified_and_says_so(finished: Project) -> None:
    output = (finished.root / "first.log").read_text()
    assert "certified   tiny_cpu" in output
    assert "next        vibeserve serve artifacts/tiny_cpu/latest" in output
    manifest = finished.manifest()
    assert (manifest["status"], manifest["reasons"], manifest["level"]) == ("certified", [], "quick")
    assert manifest["accuracy"]["top1_agreement"] >= 0.97
    assert [goal["metric"] for goal in manifest["goals"]] == ["output_throughput", "peak_memory"]
    assert manifest["candidates_tried"] == 3
    assert manifest["sandbox_tier"] in ("A", "B")
    seen = manifest["environment"]
    assert (seen["sandbox_tier"], seen["lock_digest"]) == (manifest["sandbox_tier"], manifest["digests"]["lock"])
    assert seen["cpu_model"] == manifest["hardware"]["cpu_model"] and seen["wall_s"] > 0


def test_the_headline_has_the_required_baseline_with_an_interval(finished: Project) -> None:
    headlines = [metric for metric in finished.manifest()["metrics"] if metric["role"] == "headline"]
    assert [(metric["name"], metric["load"]) for metric in headlines] == [("output_throughput", "c4")]
    (row,) = headlines[0]["baselines"]
    assert (row["name"], row["class"], row["state"]) == ("scaffold", "naive", "measured")
    assert 0 < row["ci_low"] <= row["ratio"] <= row["ci_high"]


def test_search_decided_by_the_clock_of_the_spec_and_the_manifest_says_what_that_is_worth(finished: Project) -> None:
    manifest = finished.manifest()
    assert [entry["outcome"] for entry in manifest["rounds"]] == ["baseline", "accepted", "accepted"]
    ratio = manifest["rounds"][1]["headline"]
    assert ratio["ci_low"] > 1.02
    assert any("fake clock" in line for line in manifest["not_run"])
    assert any("not quotable" in line for line in manifest["not_run"])
    origins = {row["origin"]: row for row in manifest["authorship"]}
    assert origins["scaffold"]["share_of_log_ratio"] == 0.0
    assert sum(row["share_of_log_ratio"] for row in origins.values()) == pytest.approx(1.0, abs=1e-3)
    assert all(origin == "scaffold" or origin.startswith("component:") for origin in origins)


def test_the_artifact_is_whole(finished: Project) -> None:
    present = {path.relative_to(finished.artifact).as_posix() for path in finished.artifact.rglob("*")}
    expected = {
        "manifest.json", "spec.yaml", "plan.json", "journal.jsonl", "checkpoints.bundle", "SHA256SUMS", "report.html",
        "VERDICT.md", "golden/seeds.json", "golden/replies.jsonl", "runtime/README.md", "runtime/requirements.lock",
        "runtime/Dockerfile", "runtime/LICENSE", "runtime/NOTICE", "runtime/sbom.cdx.json", "runtime/service.yaml",
        "runtime/runtime/__main__.py", "runtime/runtime/assembly.json", "runtime/tests/conftest.py",
    }  # fmt: skip
    expected |= {
        f"rounds/000{number}/{name}"
        for number in range(3)
        for name in ("proposal.json", "verdict.json", "measurements.json", "entry.json", "change.patch")
    }
    assert expected <= present
    assert not [name for name in present if {"__pycache__", "build"} & set(name.split("/"))]
    documents = [path for path in finished.artifact.rglob("*.json") if path.name != "sbom.cdx.json"]
    assert all("schema_version" in json.loads(path.read_text()) for path in documents)
    manifest = read_manifest(finished.artifact)
    assert manifest.plan_id == finished.artifact.name
    assert (finished.root / "artifacts/tiny_cpu/latest").is_symlink()


def test_the_golden_replies_are_the_certified_ones(finished: Project) -> None:
    lines = (finished.artifact / "golden/replies.jsonl").read_text().splitlines()
    replies = [json.loads(line) for line in lines]
    assert replies and {reply["load"] for reply in replies} == {"c4"}
    assert len({reply["request_id"] for reply in replies}) == len(replies)
    assert all(8 <= len(reply["output"]["token_ids"]) <= 16 for reply in replies)
    # a sample of what was served is re-scored; what the audits asked for is in the draw as well
    scored = [reply for reply in replies if reply["distances"]]
    assert 0 < len(scored) <= SCHEDULES[Level.quick].certify_rescored
    assert all(len(reply["distances"]["margin"]) == len(reply["output"]["token_ids"]) for reply in scored)


def test_the_same_command_again_is_up_to_date(finished: Project) -> None:
    rounds = len(finished.events("round"))
    done = finished.command("+target=tiny_cpu", "--json")
    assert done.returncode == 0, done.stderr
    *events, summary = [json.loads(line) for line in done.stdout.splitlines()]
    assert [(event["stage"], event["state"]) for event in events if "state" in event] == [
        (step, "up to date") for step in STEPS
    ]
    validator = Draft202012Validator(events_schema())
    assert [error.message for line in (*events, summary) for error in validator.iter_errors(line)] == []
    assert summary["kind"] == "result" and summary["artifact"] == f"artifacts/tiny_cpu/{finished.artifact.name}"
    assert summary["manifest"]["status"] == "certified"
    assert len(finished.events("round")) == rounds


def test_status_says_what_the_run_did(finished: Project) -> None:
    done = finished.command("status", "tiny_cpu", "--json")
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert [error.message for error in Draft202012Validator(status_schema()).iter_errors(document)] == []
    (run,) = document["runs"]
    assert (run["state"], run["target"], run["headline"]) == ("finished", "tiny_cpu", "output_throughput")
    assert [step["state"] for step in run["steps"]] == ["done"] * len(STEPS)
    assert [(row["outcome"], row["parent"]) for row in run["rounds"]] == [
        ("baseline", None), ("accepted", 0), ("accepted", 1)
    ]  # fmt: skip
    assert [node["round"] for node in run["incumbent"]["chain"]] == [0, 1, 2] and run["incumbent"]["ratio"] > 1
    assert run["eta"] is None and run["spent_in_all"]["device_s"] > 0


def test_an_override_makes_another_plan(finished: Project) -> None:
    """Without running it: the plan's identity is what the artifact's folder is named by."""
    ids = []
    for overrides in ([], ["budget.rounds=1"], ["out_dir=elsewhere"]):
        done = finished.command("plan", "tiny_cpu", *overrides, "--json")
        assert done.returncode == 0, done.stderr
        ids.append(json.loads(done.stdout)["plan_id"])
    assert ids[0] == ids[2] == finished.artifact.name
    assert ids[1] != ids[0]


# -- verify


def answer_of(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, dict[str, Any]]:
    code = main(["verify", *arguments, "--json"])
    return code, json.loads(capsys.readouterr().out)


@pytest.mark.parametrize(
    ("pattern", "what"),
    [
        ("runtime/runtime/model.py", "this is not the runtime that was certified"),
        ("manifest.json", "its claims were edited after packaging"),
        ("golden/replies.jsonl", "does not hold the recorded golden data"),
    ],
)
def test_a_changed_byte_is_refused_before_anything_starts(
    finished: Project, tmp_path: Path, capsys: pytest.CaptureFixture[str], pattern: str, what: str
) -> None:
    copy = tmp_path / "artifact"
    shutil.copytree(finished.artifact, copy)
    data = bytearray((copy / pattern).read_bytes())
    data[len(data) // 2] ^= 1
    (copy / pattern).write_bytes(data)
    code, answer = answer_of(capsys, str(copy))
    assert (code, answer["status"]) == (3, "refused")
    (reason,) = answer["reasons"]
    assert (reason["class"], reason["file"], reason["gate"]) == ("digest_mismatch", pattern, "integrity")
    assert what in reason["text"]
    assert answer["verdict"].endswith("nothing was started")


def test_an_untouched_copy_passes_the_byte_level_anywhere(
    finished: Project, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    copy = tmp_path / "elsewhere"
    shutil.copytree(finished.artifact, copy)
    code, answer = answer_of(capsys, str(copy), "--level", "bytes")
    assert (code, answer["status"], answer["reasons"]) == (0, "certified", [])


def test_the_packaged_runtime_passes_the_gates_again_in_another_folder(finished: Project, tmp_path: Path) -> None:
    """By the step of `docs/ci/github.yml`: fresh seeds, and what the runtime compiles is compiled anew."""
    copy = tmp_path / "elsewhere"
    shutil.copytree(finished.artifact, copy)
    job = github_jobs()["accuracy"]
    done = replace(job, script=f"{job.script} --json").run(
        tmp_path, tree=finished.tree, ARTIFACT=str(copy), VIBESERVE_CACHE=str(finished.cache)
    )
    answer = json.loads(done.stdout)
    assert (done.returncode, answer["status"], answer["reasons"]) == (0, "certified", []), done.stderr
    assert answer["verified_level"] == "accuracy"
    assert answer["accuracy"]["top1_agreement"] >= 0.97
    assert (answer["performance"], answer["against"]) == ("not_run", [])
    assert "accuracy top-1" in answer["verdict"]
    assert 'failures="0"' in (tmp_path / "verify.xml").read_text()
    known = json.loads((copy / "golden/seeds.json").read_text())["seeds"]
    fresh = answer["fresh"]
    assert fresh["seeds"].keys() == known.keys() and not set(fresh["seeds"].values()) & set(known.values())
    assert all(name.endswith(".so") for name in fresh["built"])
    assert bool(fresh["built"]) == has_build(copy)


def has_build(artifact: Path) -> bool:
    """Whether the packaged runtime compiles anything."""
    return yaml.safe_load((artifact / "runtime/service.yaml").read_text()).get("build") is not None


def test_it_is_measured_beside_the_packaged_runtime_that_it_replaced(finished: Project) -> None:
    """Out of the bundle, built here, in turns. The fake clock's ratio is no claim, so that nothing bears it out."""
    options = ("--level", "performance", "--against", "predecessor", "--json")
    done = finished.command("verify", str(finished.artifact), *options)
    answer = json.loads(done.stdout)
    commit = finished.manifest()["rounds"][1]["commit"][:12]
    assert answer["against"] == [f"predecessor {commit} (round 1, packaged; as was asked)"], done.stderr
    (row,) = next(metric for metric in answer["metrics"] if metric["role"] == "headline")["baselines"]
    assert (row["name"], row["version"]) == ("predecessor", commit)
    assert 0 < row["ci_low"] <= row["ratio"] <= row["ci_high"]
    assert (done.returncode, [reason["class"] for reason in answer["reasons"]]) == (3, ["claim_not_measured"])


# -- serve


@pytest.fixture(scope="module")
def served(finished: Project) -> Iterator[tuple[Any, str]]:
    """(stock client, model name) of `vibeserve serve` on the artifact."""
    import openai

    process = finished.popen("serve", "artifacts/tiny_cpu/latest", "--json")
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line, process.communicate()[1]
        facts = json.loads(line)
        with openai.OpenAI(base_url=f"{facts['url']}/v1", api_key="unused", max_retries=0) as client:
            yield client, facts["model"]
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=60)
        assert process.returncode == 0, errors
    finally:
        kill_group(process)


def test_the_stock_client_completes(served: tuple[Any, str]) -> None:
    client, model = served
    assert [listed.id for listed in client.models.list()] == [model]
    whole = client.completions.create(model=model, prompt="The sea is", max_tokens=12, temperature=0)
    assert whole.usage.completion_tokens <= 12
    pieces = client.completions.create(model=model, prompt="The sea is", max_tokens=12, temperature=0, stream=True)
    assert "".join(piece.choices[0].text for piece in pieces if piece.choices) == whole.choices[0].text


def test_the_stock_client_chats(served: tuple[Any, str]) -> None:
    client, model = served
    messages = [{"role": "user", "content": "Say something."}]
    whole = client.chat.completions.create(model=model, messages=messages, max_tokens=12, temperature=0)
    assert whole.choices[0].message.role == "assistant"
    pieces = client.chat.completions.create(model=model, messages=messages, max_tokens=12, temperature=0, stream=True)
    text = "".join(piece.choices[0].delta.content or "" for piece in pieces if piece.choices)
    assert text == whole.choices[0].message.content


def test_a_request_that_it_cannot_serve_gets_the_apis_error(served: tuple[Any, str]) -> None:
    import openai

    client, model = served
    with pytest.raises(openai.BadRequestError):
        client.completions.create(model=model, prompt="x", max_tokens=-1)
    with pytest.raises(openai.NotFoundError):
        client.completions.create(model="another", prompt="x")
