"""A git repository at a pinned commit as what round 0 starts from."""

from __future__ import annotations

import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest
from artifact_samples import write_workspace

from vibeserve.core.paths import data_dir
from vibeserve.errors import InfraError, RefusedError
from vibeserve.plan.seed import with_digest
from vibeserve.seeds import get_seed
from vibeserve.seeds.engine import repository_name
from vibeserve.seeds.licences import licence_of
from vibeserve.spec import Seed

TEXT = data_dir("templates") / "runtime/text"
MIT = "MIT License\n\nPermission is hereby granted, free of charge, to any person obtaining a copy of this software\n"


@dataclass
class Repository:
    folder: Path

    def git(self, *arguments: str) -> str:
        roles = [f"GIT_{role}_{key}" for role in ("AUTHOR", "COMMITTER") for key in ("NAME", "EMAIL")]
        done = subprocess.run(
            ["git", "-C", str(self.folder), *arguments], capture_output=True, text=True, check=True,
            env={**os.environ, **dict.fromkeys(roles, "someone@localhost")},
        )  # fmt: skip
        return done.stdout.strip()

    def commit(self, message: str = "work") -> str:
        self.git("add", "-A")
        self.git("commit", "--quiet", "-m", message)
        return self.git("rev-parse", "HEAD")

    def seed(self, commit: str, **changes: str) -> Seed:
        return Seed(kind="git", url=str(self.folder), commit=commit, **changes)  # type: ignore[arg-type]


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Repository:
    """A small engine: its own package, and what makes it a runtime."""
    monkeypatch.setenv("VIBESERVE_CACHE", str(tmp_path / "cache"))
    folder = write_workspace(tmp_path / "engine")
    (folder / "LICENSE").write_text(MIT)
    made = Repository(folder)
    made.git("init", "--quiet", "--initial-branch=main")
    return made


def materialise(seed: Seed, destination: Path) -> Path:
    get_seed(seed, scaffold=TEXT, settings={}).materialise(destination)
    return destination


def test_the_pinned_commit_is_what_is_taken(repository: Repository, tmp_path: Path) -> None:
    first = repository.commit()
    (repository.folder / "runtime/model.py").write_text("HIDDEN = 99\n")
    second = repository.commit()
    assert (materialise(repository.seed(first), tmp_path / "a") / "runtime/model.py").read_text() == "HIDDEN = 64\n"
    assert (materialise(repository.seed(second), tmp_path / "b") / "runtime/model.py").read_text() == "HIDDEN = 99\n"
    assert not (tmp_path / "a/.git").exists()
    assert get_seed(repository.seed(first), scaffold=TEXT, settings={}).origin == f"seed:engine@{first[:12]}"


def test_a_commit_that_came_later_is_fetched(repository: Repository, tmp_path: Path) -> None:
    materialise(repository.seed(repository.commit()), tmp_path / "a")
    (repository.folder / "README.md").write_text("# newer\n")
    later = materialise(repository.seed(repository.commit()), tmp_path / "b")
    assert (later / "README.md").read_text() == "# newer\n"


def test_an_overlay_makes_a_runtime_of_an_engine(repository: Repository, tmp_path: Path) -> None:
    (repository.folder / "service.yaml").unlink()
    commit = repository.commit()
    with pytest.raises(RefusedError, match=r"is no runtime: it has no service\.yaml"):
        materialise(repository.seed(commit), tmp_path / "a")
    overlay = tmp_path / "overlay"
    (overlay / "runtime").mkdir(parents=True)
    (overlay / "service.yaml").write_text('argv: ["{python}", "-m", "runtime"]\n')
    (overlay / "runtime/__main__.py").write_text("")
    seed = repository.seed(commit, overlay=str(overlay))
    made = materialise(seed, tmp_path / "b")
    assert (made / "service.yaml").is_file() and (made / "runtime/__main__.py").is_file()
    assert (made / "runtime/model.py").is_file(), "what the overlay does not have is the engine's"
    before = with_digest(seed).digest
    (overlay / "service.yaml").write_text("argv: []\n")
    assert with_digest(seed).digest != before


def test_changes_that_no_commit_holds_are_refused(repository: Repository, tmp_path: Path) -> None:
    commit = repository.commit()
    (repository.folder / "runtime/model.py").write_text("HIDDEN = 1\n")
    text = r"has changes that no commit holds \(1 files, such as runtime/model\.py\)\nnext: commit or stash them"
    with pytest.raises(RefusedError, match=text):
        materialise(repository.seed(commit), tmp_path / "a")


def test_a_commit_that_is_not_there_is_refused(repository: Repository, tmp_path: Path) -> None:
    repository.commit()
    with pytest.raises(RefusedError, match=f"has no commit {'a' * 40}\nnext: git ls-remote"):
        materialise(repository.seed("a" * 40), tmp_path / "a")


def test_a_repository_that_cannot_be_had_is_the_machines_fault(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VIBESERVE_CACHE", str(tmp_path / "cache"))
    with pytest.raises(InfraError, match=r"git clone --quiet failed: .*none.*\nnext: check seed\.url"):
        materialise(Seed(kind="git", url=str(tmp_path / "none"), commit="a" * 40), tmp_path / "a")
    with pytest.raises(InfraError, match="transport 'ext' not allowed"):
        materialise(Seed(kind="git", url="ext::sh -c true", commit="a" * 40), tmp_path / "b")


def test_a_link_in_the_repository_is_refused(repository: Repository, tmp_path: Path) -> None:
    (repository.folder / "passwd").symlink_to("/etc/passwd")
    with pytest.raises(RefusedError, match=r"holds 'passwd' \(mode 120000\), which is no file of a workspace"):
        materialise(repository.seed(repository.commit()), tmp_path / "a")


def test_an_unknown_licence_is_refused_unless_it_is_declared(repository: Repository, tmp_path: Path) -> None:
    (repository.folder / "LICENSE").write_text("You may do what my lawyer says.\n")
    commit = repository.commit()
    text = r"LICENSE is of no licence that is known here\nnext: read it, and declare seed\.licence=SPDX-IDENTIFIER"
    with pytest.raises(RefusedError, match=text):
        materialise(repository.seed(commit), tmp_path / "a")
    materialise(repository.seed(commit, licence="LicenseRef-Lawyer"), tmp_path / "b")
    (repository.folder / "LICENSE").unlink()
    with pytest.raises(RefusedError, match=r"has no licence file .*: nobody may pass on what comes of it"):
        materialise(repository.seed(repository.commit(), licence="MIT"), tmp_path / "c")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (MIT, "MIT"),
        ("Apache License\n                           Version 2.0, January 2004\n", "Apache-2.0"),
        ("           GNU GENERAL PUBLIC LICENSE\n              Version 3, 29 June 2007\n", "GPL-3.0-only"),
        ("SPDX-License-Identifier: 0BSD\n", "0BSD"),
        ("Redistribution and use in source and binary forms, with or\nwithout modification\n", "BSD-2-Clause"),
        ("Redistribution and use in source and binary forms ...\n3. Neither the name of the holder\n", "BSD-3-Clause"),
    ],
)
def test_a_licence_is_known_by_its_first_words(tmp_path: Path, text: str, expected: str) -> None:
    (tmp_path / "LICENSE").write_text(text)
    assert licence_of(tmp_path, declared="", what="it") == expected


@pytest.mark.parametrize("stated", ['license = "Zlib"', 'license = {text = "Zlib"}'])
def test_pyproject_says_what_a_text_does_not(tmp_path: Path, stated: str) -> None:
    (tmp_path / "COPYING").write_text("Some text.\n")
    (tmp_path / "pyproject.toml").write_text(f"[project]\nname = 'e'\n{stated}\n")
    assert licence_of(tmp_path, declared="", what="it") == "Zlib"
    (tmp_path / "pyproject.toml").write_text("[project\n")
    with pytest.raises(RefusedError, match="COPYING is of no licence that is known here"):
        licence_of(tmp_path, declared="", what="it")


@pytest.mark.parametrize(
    ("url", "name"),
    [("https://h.example/a/engine.git", "engine"), ("git@h.example:a/engine", "engine"), ("/x/engine/", "engine")],
)
def test_a_repository_is_called_by_the_end_of_its_address(url: str, name: str) -> None:
    assert repository_name(url) == name
