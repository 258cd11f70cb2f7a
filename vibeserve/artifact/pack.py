"""Write the artifact directory of a finished run, whole or not at all."""

from __future__ import annotations

import json
import os
import re
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from vibeserve.artifact.claimed import CLAIMED, claimed_fields
from vibeserve.artifact.integrity import packaged_digests
from vibeserve.artifact.manifest import to_json_data, write_manifest
from vibeserve.artifact.rendering import PAGE, page_of
from vibeserve.artifact.sums import SUMS_NAME, render_sums
from vibeserve.artifact.supplements import add_supplements
from vibeserve.checkpoint import CheckpointStore, list_files
from vibeserve.core.documents import (
    canonical_json,
    digest_file,
    to_data,
    write_document,
    write_text_atomic,
)
from vibeserve.core.manifest import Golden, Manifest, RoundRecord
from vibeserve.journal import Journal
from vibeserve.modalities.copies import copy_contract
from vibeserve.workloads import WORKLOAD_FILES

VERDICT_NAME = "VERDICT.md"
CALL_FILES = ("prompt.md", "answer.json", "transcript.json")
RECORDING_DIR = "recording"
PATCHES_DIR = "patches"
TRACE_DIR = "traffic"
"""folder of an artifact that holds the trace, or the editing tasks, which its workload reads"""


@dataclass(frozen=True, kw_only=True)
class Contents:
    """What goes into an artifact. `manifest.rounds` and its digests of the packaged files are filled by `package`."""

    manifest: Manifest
    spec: Any
    """the composed `Spec`; written as YAML and read back by `read_spec`"""
    plan: Any
    """the plan as a document"""
    workspace: Path
    """checked-out winner: becomes `runtime/`"""
    rounds: Sequence[RoundRecord]
    golden: Golden | None
    """None where certification did not get that far; the manifest then says why"""
    checkpoints: CheckpointStore
    run: str
    """run id: which checkpoints are bundled"""
    recording: Path | None = None
    """folder with the search's recording, which `agents=replay` reads"""
    calls: Path | None = None
    """folder with a folder per agents' call; prompts, answers and transcripts go beside their rounds"""
    patches: Path | None = None
    """folder with the series of patches upon a pinned engine, where the seed was one"""
    threads: int = 1
    """engine threads that the container image starts with"""


@dataclass(frozen=True, kw_only=True)
class Packaged:
    """Where the artifact lies, and the digest of its `SHA256SUMS`: what `verify --expect` takes."""

    path: Path
    sums_digest: str
    manifest: Manifest
    schema_version: int = 1


def package(contents: Contents, *, out_dir: Path, journal: Journal) -> Packaged:
    """Write `out_dir/<target>/<plan_id>/` and point `out_dir/<target>/latest` at it; journals the digest as `packaged`.

    An artifact of the same plan is replaced. A reader sees the old one or the new one, never a part.
    """
    target_dir = out_dir / contents.manifest.target
    target_dir.mkdir(parents=True, exist_ok=True)
    final = target_dir / contents.manifest.plan_id
    _remove_leftovers(target_dir, contents.manifest.plan_id)
    draft = Path(tempfile.mkdtemp(dir=target_dir, prefix=f".{contents.manifest.plan_id}.new-"))
    try:
        _record_claim(contents, journal=journal)
        manifest = _write_contents(draft, contents, journal_path=journal.path)
        write_text_atomic(draft / SUMS_NAME, render_sums(draft))
        sums_digest = digest_file(draft / SUMS_NAME)
        draft.chmod(0o755)
        _replace_folder(draft, final)
    except BaseException:
        shutil.rmtree(draft, ignore_errors=True)
        raise
    point_latest(target_dir, contents.manifest.plan_id)
    journal.append("packaged", {"path": str(final), "sha256sums": sums_digest})
    return Packaged(path=final, sums_digest=sums_digest, manifest=manifest)


def _record_claim(contents: Contents, *, journal: Journal) -> None:
    """What the manifest is about to say, for the journal's copy in the artifact: an edited manifest contradicts it."""
    rounds = tuple(record.entry for record in contents.rounds)
    journal.append(CLAIMED, {"fields": claimed_fields(replace(contents.manifest, rounds=rounds))})


def point_latest(target_dir: Path, name: str) -> None:
    """Make `target_dir/latest` a link to its folder `name`, atomically."""
    link = target_dir / f".latest-{os.getpid()}"
    link.unlink(missing_ok=True)
    link.symlink_to(name)
    link.replace(target_dir / "latest")


def _write_contents(root: Path, contents: Contents, *, journal_path: Path) -> Manifest:
    from vibeserve.report import render_verdict

    write_text_atomic(root / "spec.yaml", _yaml(_with_own_trace(root, contents.spec)))
    write_document(root / "plan.json", contents.plan)
    shutil.copyfile(journal_path, root / "journal.jsonl")
    _copy_workspace(contents.workspace, root / "runtime")
    add_supplements(
        root / "runtime", manifest=contents.manifest, threads=contents.threads, seed=contents.spec.seed
    )
    for record in contents.rounds:
        _write_round(root / "rounds" / f"{record.entry.number:04d}", record)
    if contents.calls is not None:
        copy_calls(contents.calls, root / "rounds")
    if contents.recording is not None:
        shutil.copytree(contents.recording, root / RECORDING_DIR)
    if contents.patches is not None:
        shutil.copytree(contents.patches, root / PATCHES_DIR)
    if contents.golden is not None:
        write_golden(root / "golden", contents.golden)
    copy_contract(contents.spec, root / "contract")
    contents.checkpoints.bundle(root / "checkpoints.bundle", run=contents.run)
    manifest = replace(
        contents.manifest,
        rounds=tuple(record.entry for record in contents.rounds),
        digests=contents.manifest.digests | packaged_digests(root),
    )
    write_manifest(root / "manifest.json", manifest)
    write_text_atomic(root / PAGE, page_of(root, manifest))
    seeds = contents.golden.seeds if contents.golden is not None else {}
    write_text_atomic(root / VERDICT_NAME, render_verdict(manifest, seeds=seeds))
    return manifest


def copy_calls(calls: Path, rounds: Path) -> None:
    """What agents were asked and said, into `rounds/NNNN/agents/<key>/`; a key names its round (`r02a1-judge`).

    What clients left in their folders beside that stays in the run's.
    """
    for folder in sorted(calls.iterdir()) if calls.is_dir() else []:
        named = re.match(r"[rp](\d+)", folder.name)
        if named is None or not folder.is_dir():
            continue
        destination = rounds / f"{int(named[1]):04d}" / "agents" / folder.name
        for name in CALL_FILES:
            if (folder / name).is_file():
                destination.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(folder / name, destination / name)


def _with_own_trace(root: Path, spec: Any) -> Any:
    """`spec` with its workload's file as one of the artifact, so that anybody can replay it (`read_spec`)."""
    for name in WORKLOAD_FILES:
        path = getattr(spec.workload, name, "")
        if path:
            (root / TRACE_DIR).mkdir()
            copied = shutil.copyfile(path, root / TRACE_DIR / Path(path).name)
            return replace(spec, workload=replace(spec.workload, **{name: str(copied.relative_to(root))}))
    return spec


def _copy_workspace(workspace: Path, destination: Path) -> None:
    for name in list_files(workspace):
        (destination / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(workspace / name, destination / name)


def _write_round(folder: Path, record: RoundRecord) -> None:
    folder.mkdir(parents=True)
    measurements = {"schema_version": 1, "measurements": record.measurements}
    verdict = {
        "schema_version": 1,
        "outcome": record.entry.outcome,
        "reason": record.entry.reason,
        "verdict": record.verdict,
    }
    write_document(folder / "proposal.json", {"schema_version": 1, "proposal": record.entry.proposal})
    write_document(folder / "verdict.json", to_json_data(verdict))
    write_document(folder / "measurements.json", measurements)
    write_document(folder / "entry.json", to_json_data(record.entry))
    write_text_atomic(folder / "change.patch", record.patch)
    if record.profile is not None:
        write_document(folder / "profile.json", to_json_data(record.profile))


def write_golden(folder: Path, golden: Golden) -> None:
    """`seeds.json` and one line per reply in `replies.jsonl`."""
    write_document(folder / "seeds.json", {"schema_version": golden.schema_version, "seeds": golden.seeds})
    write_text_atomic(folder / "replies.jsonl", "".join(canonical_json(reply) + "\n" for reply in golden.replies))


def _yaml(spec: Any) -> str:
    import yaml

    return yaml.safe_dump(json.loads(json.dumps(to_data(spec))), sort_keys=False, allow_unicode=True, width=120)


def _replace_folder(draft: Path, final: Path) -> None:
    """Two renames: a folder cannot be renamed onto a filled one. A crash in between is healed by the next packaging."""
    old = final.with_name(f".{final.name}.old-{os.getpid()}")
    if final.exists():
        final.rename(old)
    draft.rename(final)
    shutil.rmtree(old, ignore_errors=True)


def _remove_leftovers(target_dir: Path, plan_id: str) -> None:
    for pattern in (f".{plan_id}.new-*", f".{plan_id}.old-*"):
        for leftover in target_dir.glob(pattern):
            shutil.rmtree(leftover, ignore_errors=True)
