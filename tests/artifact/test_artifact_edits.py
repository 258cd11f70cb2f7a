"""An attacker on `verify --level bytes`: each field that a reader believes, rewritten, with every digest made new.

Two attackers: one edits the manifest alone; one also has the pages drawn again and takes the journal's record of the
manifest away. `docs/verify.md` lists what then gets through.
"""

from __future__ import annotations

import json
import re
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from artifact_samples import package_own

from vibeserve.artifact import Packaged, read_manifest, verify_bytes
from vibeserve.artifact.claimed import CLAIMED
from vibeserve.artifact.open import read_golden_seeds
from vibeserve.artifact.rendering import page_of
from vibeserve.artifact.sums import SUMS_NAME, render_sums
from vibeserve.artifact.verification import Origin, Verification, verify
from vibeserve.core.documents import digest_file, write_document
from vibeserve.report import render_verdict

DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "verify.md"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Packaged:
    return package_own(tmp_path_factory.mktemp("own"))


@pytest.fixture
def own(made: Packaged, tmp_path: Path) -> Packaged:
    path = tmp_path / "artifact"
    shutil.copytree(made.path, path)
    return replace(made, path=path)


def set_in(document: Any, place: str, value: Any) -> None:
    *way, last = [int(step) if step.isdigit() else step for step in place.split(".")]
    for step in way:
        document = document[step]
    assert document[last] != value, f"{place} is {value} already"
    document[last] = value


def edit_manifest(artifact: Path, edits: dict[str, Any]) -> None:
    path = artifact / "manifest.json"
    document = json.loads(path.read_text())
    for place, value in edits.items():
        set_in(document, place, value)
    write_document(path, document)


def draw_pages(artifact: Path) -> None:
    manifest = read_manifest(artifact)
    (artifact / "VERDICT.md").write_text(render_verdict(manifest, seeds=read_golden_seeds(artifact)))
    (artifact / "report.html").write_text(page_of(artifact, manifest))


def drop_record(artifact: Path) -> None:
    """The last line of the journal: what is left is a whole journal."""
    path = artifact / "journal.jsonl"
    lines = path.read_text().splitlines(keepends=True)
    assert json.loads(lines[-1])["kind"] == CLAIMED
    path.write_text("".join(lines[:-1]))
    document = json.loads((artifact / "manifest.json").read_text())
    document["digests"]["journal.jsonl"] = digest_file(path)
    write_document(artifact / "manifest.json", document)


def resum(artifact: Path) -> None:
    (artifact / SUMS_NAME).write_text(render_sums(artifact))


def checked(artifact: Path, *, origin: Origin | None = None) -> Verification:
    def never(*_: Any) -> Any:
        raise AssertionError("level bytes starts nothing")

    return verify(artifact, level="bytes", origin=origin, identity=never, reverify=never)


def test_nothing_edited_passes(own: Packaged) -> None:
    assert checked(own.path).exit_code == 0


CI = {"metrics.0.baselines.0.ratio": 3.5, "metrics.0.baselines.0.ci_low": 3.4, "metrics.0.baselines.0.ci_high": 3.6}
EDITS: dict[str, dict[str, Any]] = {
    "ratio and interval": CI,
    "value of the runtime": {"metrics.0.candidate": 400.0},
    "value of a baseline": {"metrics.0.baselines.0.value": 7.0},
    "version of a baseline": {"metrics.0.baselines.0.version": "9.9"},
    "class of a baseline": {"metrics.0.baselines.0.class": "naive"},
    "name of a baseline": {"metrics.0.baselines.0.name": "vllm_ngram"},
    "bits of a baseline": {"metrics.0.baselines.0.weight_bits": 4.0},
    "role of a metric": {"metrics.2.role": "headline"},
    "level": {"level": "full"},
    "not_run": {"not_run": []},
    "authorship by an agent": {"authorship.1.origin": "agent:codex/gpt"},
    "lines of an origin": {"authorship.1.lines": 5000},
    "goal met": {"goals.0.ratio": 2.5},
    "hardware": {"hardware.cpu_model": "EPYC"},
    "sandbox tier": {"sandbox_tier": "B"},
    "candidates tried": {"candidates_tried": 1},
    "wall time": {"usage.wall_s": 3.0},
    "device time": {"usage.device_s": 1.0},
    "tokens": {"usage.tokens": 5.0},
    "accuracy": {"accuracy.top1_agreement": 1.0},
    "judged_by": {"judged_by": "judged by somebody better"},
    "audits": {"audits": [{"name": "soak", "passed": True, "text": "fine", "figures": {}}]},
    "plan id": {"plan_id": "f" * 16},
    "target": {"target": "olmo_l4"},
    "status of a round": {"rounds.2.outcome": "accepted"},
    "gain of a round": {"rounds.1.cumulative_ratio": 9.0},
    "time of packaging": {"created_at": "2020-01-01T00:00:00Z"},
    "digest of the weights": {"digests.weights": "cd" * 32},
    "interventions": {"interventions": [{"number": 1, "command": "note", "text": "x", "who": "y", "at": "z", "round": 1,
                                         "state": "applied", "effect": "e"}]},
}  # fmt: skip
GET_THROUGH = {
    "ratio and interval", "value of the runtime", "value of a baseline", "version of a baseline", "bits of a baseline",
    "lines of an origin", "device time", "judged_by", "audits", "time of packaging", "not_run",
}  # fmt: skip
"""by an attacker who knows the format, and rewrites pages and goals with them"""


def new_key(artifact: Path, edits: dict[str, Any]) -> None:
    """`device_s` is not in the sample's usage."""
    if "usage.device_s" in edits:
        document = json.loads((artifact / "manifest.json").read_text())
        document["usage"]["device_s"] = 9.0
        write_document(artifact / "manifest.json", document)


@pytest.mark.parametrize("name", EDITS)
def test_an_edited_manifest_is_contradicted_by_the_journal_and_the_pages(own: Packaged, name: str) -> None:
    new_key(own.path, EDITS[name])
    edit_manifest(own.path, EDITS[name])
    resum(own.path)
    assert verify_bytes(own.path) == [], "the digests alone do not tell"
    done = checked(own.path)
    assert (done.status, done.exit_code, done.manifest) == ("refused", 3, None)
    assert done.line.startswith("refused: integrity/contradiction: ") or name == "interventions"
    recorded = f"{next(iter(EDITS[name])).split('.')[0]} of manifest.json is not what journal.jsonl recorded of it"
    assert any(reason.text.startswith(recorded) for reason in done.reasons)


@pytest.mark.parametrize("name", EDITS)
def test_without_the_record_and_with_new_pages_the_other_documents_still_tell(own: Packaged, name: str) -> None:
    """The record's absence is itself a contradiction in an artifact of this version, so that it is left out here."""
    new_key(own.path, EDITS[name])
    edit_manifest(own.path, EDITS[name])
    if name in ("ratio and interval", "value of the runtime", "value of a baseline"):
        _follow_goals(own.path)
    draw_pages(own.path)
    drop_record(own.path)
    resum(own.path)
    reasons = [reason for reason in checked(own.path).reasons if "holds no record of what" not in reason.text]
    assert bool(reasons) == (name not in GET_THROUGH), reasons
    assert {reason.reason_class for reason in reasons} <= {"contradiction"}


def _follow_goals(artifact: Path) -> None:
    document = json.loads((artifact / "manifest.json").read_text())
    base = document["metrics"][0]["baselines"][0]
    document["goals"][0] |= {"ratio": base["ratio"], "ci_low": base["ci_low"]}
    write_document(artifact / "manifest.json", document)


def test_the_record_itself_cannot_be_left_out(own: Packaged) -> None:
    drop_record(own.path)
    resum(own.path)
    (reason,) = checked(own.path).reasons
    assert reason.text.startswith("journal.jsonl holds no record of what manifest.json claims (claimed)")


def test_what_gets_through_is_in_the_document() -> None:
    section = DOCUMENT.read_text(encoding="utf-8").partition("## What no document contradicts")[2].partition("\n## ")[0]
    assert set(re.findall(r"^- `(.+?)`", section, re.MULTILINE)) == GET_THROUGH


def test_the_digest_of_the_origin_tells_in_any_case(own: Packaged) -> None:
    edit_manifest(own.path, CI)
    _follow_goals(own.path)
    draw_pages(own.path)
    drop_record(own.path)
    resum(own.path)
    done = checked(own.path, origin=Origin(expect=own.sums_digest))
    assert [reason.reason_class for reason in done.reasons] == ["other_origin"]


def level_text(own: Packaged) -> list[str]:
    edit_manifest(own.path, {"level": "full"})
    resum(own.path)
    return [reason.text for reason in checked(own.path).reasons if "claims level" in reason.text]


def test_a_level_that_was_not_run_has_its_own_message(own: Packaged) -> None:
    assert level_text(own) == [
        f"manifest.json claims level full, {name} says that it was certified at level quick: what a level holds was "
        "not run"
        for name in ("spec.yaml", "plan.json")
    ]


def test_a_level_raised_everywhere_is_another_plan(own: Packaged) -> None:
    """spec.yaml and plan.json say it as well: the plan id is a digest of the spec."""
    spec, plan = own.path / "spec.yaml", own.path / "plan.json"
    spec.write_text(spec.read_text().replace("level: quick", "level: full"))
    plan.write_text(plan.read_text().replace('"level": "quick"', '"level": "full"'))
    edit_manifest(own.path, {"level": "full"})
    document = json.loads((own.path / "manifest.json").read_text())
    document["digests"] |= {name: digest_file(own.path / name) for name in ("spec.yaml", "plan.json")}
    write_document(own.path / "manifest.json", document)
    draw_pages(own.path)
    drop_record(own.path)
    resum(own.path)
    texts = [reason.text for reason in checked(own.path).reasons]
    assert any(
        re.match("spec.yaml and the digests of plan.json make plan [0-9a-f]{16}, manifest.json claims", text)
        for text in texts
    ), texts


@pytest.mark.parametrize(
    ("name", "old", "new", "line"),
    [
        ("VERDICT.md", "level quick", "level full", "in line 1 ('# sample: certified, level full')"),
        ("VERDICT.md", "- soak\n", "", "says otherwise than manifest.json in line"),
        ("report.html", "</html>", "<p>the best</p></html>", "says otherwise than manifest.json in line"),
    ],
)
def test_a_page_is_the_one_that_the_manifest_makes(own: Packaged, name: str, old: str, new: str, line: str) -> None:
    path = own.path / name
    assert old in path.read_text()
    path.write_text(path.read_text().replace(old, new))
    resum(own.path)
    (reason,) = checked(own.path).reasons
    assert (reason.gate, reason.reason_class, reason.file) == ("integrity", "other_page", name)
    assert line in reason.text and "vibeserve report PATH --verdict" in reason.text


def test_a_page_of_another_version_is_held_to_the_claim(packaged: Packaged) -> None:
    """The sample is of no framework that is known here."""
    page = packaged.path / "VERDICT.md"
    page.write_text(page.read_text().replace("Who vouches for it", "Whom to trust"))
    resum(packaged.path)
    assert checked(packaged.path).exit_code == 0
    page.write_text(page.read_text().replace("1.71x [1.66, 1.78]", "2.71x [2.66, 2.78]"))
    resum(packaged.path)
    (reason,) = checked(packaged.path).reasons
    assert "VERDICT.md does not say '1.71x [1.66, 1.78]', which manifest.json does" in reason.text
    page.unlink()
    resum(packaged.path)
    assert "VERDICT.md is missing" in checked(packaged.path).reasons[0].text


@pytest.mark.parametrize(
    ("name", "text", "fault"),
    [
        ("spec.yaml", "a: [", "spec.yaml is no YAML"),
        ("plan.json", "{}", "lack what bears it out: KeyError('target')"),
        ("journal.jsonl", "", "holds no certification"),
    ],
)
def test_a_document_that_says_nothing_bears_nothing_out(own: Packaged, name: str, text: str, fault: str) -> None:
    (own.path / name).write_text(text)
    document = json.loads((own.path / "manifest.json").read_text())
    document["digests"][name] = digest_file(own.path / name)
    write_document(own.path / "manifest.json", document)
    resum(own.path)
    assert any(fault in reason.text for reason in checked(own.path).reasons), checked(own.path).reasons
