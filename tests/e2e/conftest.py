"""Runs of the real command on `tiny_cpu`, shared by the tests of this folder.

The command runs from a copy of the tree: what is edited meanwhile changes neither a plan nor a digest, and its
processes are told from everybody else's by the path of the copy.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from e2e_project import (
    Interrupted,
    Project,
    add_wrong_skill,
    copy_tree,
    run_until_append,
    run_until_killed_in_round,
)


@pytest.fixture(scope="session")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="session")
def make_project(tmp_path_factory: pytest.TempPathFactory, cache: Path) -> Iterator[Callable[[str], Project]]:
    """A project over a copy of the tree of its own, by name."""
    made: list[Project] = []

    def make(name: str) -> Project:
        folder = tmp_path_factory.mktemp(name)
        (folder / "project").mkdir()
        made.append(Project(root=folder / "project", tree=copy_tree(folder / "tree"), cache=cache))
        return made[-1]

    yield make
    for project in made:
        assert project.living() == [], "a test left processes behind"


@pytest.fixture(scope="session")
def finished(make_project: Callable[[str], Project]) -> Project:
    """A project in which the target was built in one go."""
    project = make_project("finished")
    done = project.command("+target=tiny_cpu")
    assert done.returncode == 0, done.stdout + done.stderr
    (project.root / "first.log").write_text(done.stdout)
    return project


@pytest.fixture(scope="session")
def interrupted(make_project: Callable[[str], Project]) -> Interrupted:
    """The same command, killed after rounds 0 and 1, in the middle of round 2, before the search's and the package's
    results were stamped, and then left to end. The library holds a card whose candidate computes something else."""
    project = make_project("interrupted")
    add_wrong_skill(project.tree)
    outputs = [run_until_append(project, at="round:1"), run_until_append(project, at="round:1")]
    output, trees = run_until_killed_in_round(project, number=2)
    outputs += [output, run_until_append(project, at="synthesized:1"), run_until_append(project, at="packaged:1")]
    done = project.command("+target=tiny_cpu")
    assert done.returncode == 0, done.stdout + done.stderr
    return Interrupted(project, [*outputs, done.stdout], trees)
