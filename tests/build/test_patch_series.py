"""The deliverable of a pinned engine: patches that `git am` applies, one for what was added and one a kept round."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest
from artifact_samples import sample_proposal

from vibeserve.agents import Assembled
from vibeserve.build.series import write_series
from vibeserve.checkpoint import CheckpointStore
from vibeserve.core.nouns import Candidate, Decision, Outcome, RatioInterval, Round
from vibeserve.errors import InfraError
from vibeserve.rounds import Checkpoint
from vibeserve.spec import Seed
from vibeserve.synthesis import Entry

IDENTITY = {f"GIT_{role}_{key}": "a@b" for role in ("AUTHOR", "COMMITTER") for key in ("NAME", "EMAIL")}


def git(folder: Path, *arguments: str) -> str:
    argv = ["git", "-C", str(folder), *arguments]
    done = subprocess.run(argv, capture_output=True, text=True, check=True, env={**os.environ, **IDENTITY})
    return done.stdout.strip()


@pytest.fixture
def engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Seed:
    monkeypatch.setenv("VIBESERVE_CACHE", str(tmp_path / "cache"))
    folder = tmp_path / "engine"
    (folder / "runtime").mkdir(parents=True)
    (folder / "runtime/model.py").write_text("HIDDEN = 64\n")
    (folder / "old.py").write_text("print('old')\r\n")
    git(folder, "init", "--quiet", "--initial-branch=main")
    git(folder, "add", "-A")
    git(folder, "commit", "--quiet", "-m", "engine")
    return Seed(kind="git", url=str(folder), commit=git(folder, "rev-parse", "HEAD"))


class Run:
    """Kept and refused candidates in a store, as a search leaves them."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.store = CheckpointStore(root / "run.git")
        self.entries: list[Entry] = []

    def add(self, outcome: Outcome, files: dict[str, str], title: str = "") -> Path:
        number = len(self.entries)
        workspace = self.root / f"w{number}"
        for name, text in files.items():
            (workspace / name).parent.mkdir(parents=True, exist_ok=True)
            (workspace / name).write_bytes(text.encode())
        name = f"r{number:02d}a1"
        commit = self.store.commit(workspace, parent=None, message=name, ref=f"run/{name}")
        candidate = Candidate(candidate_id=name, commit=commit, workspace=str(workspace), origin="agent:x/y")
        decision = Decision(
            accepted=True, reason="", noise_floor=0.0,
            headline=RatioInterval(ratio=1.25, ci_low=1.1, ci_high=1.4, num_pairs=5) if title else None,
        )  # fmt: skip
        record = Round(
            number=number, proposal=sample_proposal(title) if title else None, candidate=candidate, outcome=outcome,
            reason="", decision=decision,
        )  # fmt: skip
        kept = Checkpoint(candidate=candidate, assembled=Assembled(), workspace=workspace)
        self.entries.append(Entry(record=record, checkpoint=kept))
        return workspace


def files_of(folder: Path) -> dict[str, bytes]:
    names = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    relative = {path.relative_to(folder).as_posix(): path.read_bytes() for path in names}
    return {name: content for name, content in relative.items() if not name.startswith(".git/")}


SERVED = {"runtime/model.py": "HIDDEN = 64\n", "service.yaml": "argv: []\n", "old.py": "print('old')\r\n"}


def test_every_kept_round_is_a_patch_and_git_am_leads_to_the_winner(engine: Seed, tmp_path: Path) -> None:
    run = Run(tmp_path / "run")
    run.add(Outcome.BASELINE, SERVED)
    run.add(Outcome.REJECTED, {**SERVED, "runtime/model.py": "WRONG = 1\n"}, "Wrong")
    winner = run.add(
        Outcome.ACCEPTED, {"runtime/model.py": "HIDDEN = 128\n", "service.yaml": "argv: []\n", "ä b.py": "x = 1\n"},
        "Wider: two\n lines",
    )  # fmt: skip
    series = write_series(engine, run.entries, store=run.store, folder=tmp_path / "patches")
    assert series.patches == ("0001-Serve-by-a-service-file.patch", "0002-Wider-two-lines.patch")
    assert json.loads((tmp_path / "patches/series.json").read_text())["commit"] == engine.commit
    work = tmp_path / "work"
    git(tmp_path, "clone", "--quiet", engine.url, str(work))
    git(work, "checkout", "--quiet", engine.commit)
    git(work, "am", "--quiet", "--keep-cr", *(str(tmp_path / "patches" / name) for name in series.patches))
    assert files_of(work) == files_of(winner)
    assert "Steered the search by x1.250; not a certified number." in git(work, "log", "-1", "--format=%B")


def test_an_engine_that_is_kept_as_it_is_has_no_patch(engine: Seed, tmp_path: Path) -> None:
    run = Run(tmp_path / "run")
    run.add(Outcome.BASELINE, {"runtime/model.py": "HIDDEN = 64\n", "old.py": "print('old')\r\n"})
    series = write_series(engine, run.entries, store=run.store, folder=tmp_path / "patches")
    assert series.patches == ()
    assert sorted(path.name for path in (tmp_path / "patches").iterdir()) == ["series.json"]


def test_patches_that_do_not_apply_are_no_deliverable(
    engine: Seed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = Run(tmp_path / "run")
    run.add(Outcome.BASELINE, SERVED)
    original = CheckpointStore.format_patches

    def spoilt(store: CheckpointStore, base: str, tip: str, folder: Path) -> list[Path]:
        made = original(store, base, tip, folder)
        made[0].write_text(made[0].read_text().replace("+argv: []", "+argv: [1]"))
        return made

    monkeypatch.setattr(CheckpointStore, "format_patches", spoilt)
    with pytest.raises(InfraError, match=r"the patch series leads to tree|git .* am .* failed"):
        write_series(engine, run.entries, store=run.store, folder=tmp_path / "patches")
