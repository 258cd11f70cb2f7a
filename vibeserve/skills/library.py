"""The skills of a target: those that ship, and the folders that `skills.path` stacks on them.

A folder is named by its path, or as `package:NAME`: an entry point of group `vibeserve.skills` whose value is the
package that holds the folders of the skills. The package is located, never imported. What is installed and not named
changes nothing.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from vibeserve.core.documents import digest_of, digest_tree
from vibeserve.core.paths import data_dir
from vibeserve.errors import SpecError
from vibeserve.skills.loader import IGNORED_NAMES, Skill, load_skills
from vibeserve.spec import Spec

GROUP = "vibeserve.skills"
PACKAGE = "package:"


def declared_folders(spec: Spec) -> list[Path]:
    """The folders of `skills.path`. SpecError lists every one that is not there."""
    folders, problems = _folders(spec)
    if problems:
        hint = "a path from the target's folder, or package:NAME (docs/skills.md)"
        raise SpecError(f"target '{spec.target.name}' names skills that are not there", problems=problems, hint=hint)
    return folders


def skill_problems(spec: Spec) -> list[str]:
    """What is wrong with `skills.path` and `skills.exclude`, a line each that starts with its key."""
    if not spec.skills.path and not spec.skills.exclude:
        return []
    folders, problems = _folders(spec)
    if problems:
        return problems
    try:
        skills = load_skills(data_dir("skills"), *folders)
    except SpecError as error:
        return [f"skills.path: {problem}" for problem in error.problems]
    return [f"skills.exclude: {problem}" for problem in _unknown(skills, spec.skills.exclude)]


def _folders(spec: Spec) -> tuple[list[Path], list[str]]:
    folders: list[Path] = []
    problems: list[str] = []
    for text in spec.skills.path:
        try:
            folders.append(folder_of(text, start=spec.target.folder_of(text) or Path.cwd()))
        except LookupError as error:
            problems.append(f"skills.path: {error.args[0]}")
    return folders, problems


def folder_of(text: str, *, start: Path) -> Path:
    """The folder that one entry of `skills.path` names, `start` being where relative paths begin. LookupError says why
    there is none."""
    if text.startswith(PACKAGE):
        return _folder_of_package(text.removeprefix(PACKAGE))
    folder = (start / Path(text).expanduser()).resolve()
    if not folder.is_dir():
        raise LookupError(f"there is no folder {folder}")
    return folder


def target_skills(spec: Spec) -> list[Skill]:
    """Every skill that the target may use. SpecError for what is not valid, conflicts, and unknown exclusions."""
    skills = load_skills(data_dir("skills"), *declared_folders(spec))
    return without(skills, spec.skills.exclude)


def without(skills: Sequence[Skill], names: Iterable[str]) -> list[Skill]:
    """`skills` but for those of `names` and all that extends one of them. SpecError for a name that is none."""
    gone = set(names)
    unknown = _unknown(skills, gone)
    if unknown:
        raise SpecError("skills.exclude names what is not there", problems=unknown)
    while True:
        more = {skill.name for skill in skills if skill.card and gone & set(skill.card.extends)} - gone
        if not more:
            return [skill for skill in skills if skill.name not in gone]
        gone |= more


def _unknown(skills: Sequence[Skill], names: Iterable[str]) -> list[str]:
    known = {skill.name for skill in skills}
    return [f"there is no skill '{name}'; valid: {_listed(known)}" for name in sorted(set(names) - known)]


def library_digest(spec: Spec) -> str:
    """Of every file of every folder that the target's skills come from. A folder that is gone has a digest of its own:
    an artifact is verified where its target's folders need not be."""
    shipped = digest_of(digest_tree(data_dir("skills")))
    if not spec.skills.path:
        return shipped
    folders, problems = _folders(spec)
    return digest_of([shipped, *(digest_of(digest_tree(folder)) for folder in folders), *problems])


def gathered(skills: Sequence[Skill], folder: Path, *, parts: Sequence[str] = ()) -> Path:
    """A copy of the skills in one folder, as agents read them; `parts` are the names in a skill that are taken, all
    where none is given. What lay there before goes."""
    draft = folder.with_name(f".{folder.name}.draft")
    shutil.rmtree(draft, ignore_errors=True)
    for skill in skills:
        for source in _wanted(skill, parts):
            target = draft / skill.name / source.name
            target.parent.mkdir(parents=True, exist_ok=True)
            if source.is_dir():
                shutil.copytree(source, target, ignore=shutil.ignore_patterns(*IGNORED_NAMES))
            else:
                shutil.copyfile(source, target)
    draft.mkdir(parents=True, exist_ok=True)
    shutil.rmtree(folder, ignore_errors=True)
    draft.rename(folder)
    return folder


def _wanted(skill: Skill, parts: Sequence[str]) -> Iterator[Path]:
    for path in sorted(skill.path.iterdir()):
        if path.name not in IGNORED_NAMES and (not parts or path.name in parts):
            yield path


def _folder_of_package(name: str) -> Path:
    from importlib.metadata import entry_points
    from importlib.util import find_spec

    found = {each.name: each.value for each in entry_points(group=GROUP)}
    if name not in found:
        raise LookupError(f"no installed package offers skills as '{name}'; valid: {_listed(found)}")
    module = found[name].partition(":")[0]
    # a package without __init__ runs none of its code when it is located; of a nested one the parents are imported
    located = find_spec(module)
    places = list(located.submodule_search_locations or []) if located else []
    if not places:
        raise LookupError(f"entry point '{name}' of group {GROUP} names '{module}', which is no package")
    return Path(places[0])


def _listed(names: Iterable[str]) -> str:
    return ", ".join(sorted(names)) or "(none)"
