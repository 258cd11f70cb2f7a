"""Which skills a `vibeserve skills` command is about."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from vibeserve.arguments import VerbParser
from vibeserve.errors import SpecError

if TYPE_CHECKING:
    from vibeserve.skills import Skill
    from vibeserve.spec import Spec


def add_library(parser: VerbParser) -> None:
    """The options that every action on the library takes."""
    parser.add_argument("--target", metavar="NAME", help="the skills of this target (skills.path, skills.exclude)")
    parser.add_argument(
        "--path", action="append", default=[], metavar="DIR", help="one more folder of skills, or package:NAME"
    )


def spec_of(arguments: argparse.Namespace) -> Spec | None:
    """The named target's."""
    from vibeserve.config import compose_spec

    return compose_spec([f"+target={arguments.target}"]) if arguments.target else None


def folders_of(arguments: argparse.Namespace, spec: Spec | None = None) -> list[Path]:
    """What ships, and the folders that the options stack on it. SpecError for one that is not there."""
    from vibeserve.core.paths import data_dir
    from vibeserve.skills.library import declared_folders, folder_of

    folders = declared_folders(spec) if spec else []
    for text in arguments.path:
        try:
            folders.append(folder_of(text, start=Path.cwd()))
        except LookupError as error:
            raise SpecError(f"skills: --path {text}: {error.args[0]}") from error
    return [data_dir("skills"), *folders]


def library_of(arguments: argparse.Namespace, spec: Spec | None = None) -> list[Skill]:
    """The skills of those folders. SpecError for what is not valid, and for conflicts."""
    from vibeserve.skills.loader import load_skills

    return load_skills(*folders_of(arguments, spec))


def used_skills(arguments: argparse.Namespace) -> list[Skill]:
    """The library without what the named target excludes."""
    from vibeserve.skills.library import without

    spec = spec_of(arguments)
    skills = library_of(arguments, spec)
    return without(skills, spec.skills.exclude) if spec else skills


def named_skill(skills: list[Skill], name: str) -> Skill:
    """The skill of that name; SpecError says which there are."""
    from vibeserve.config.words import unknown

    found = next((skill for skill in skills if skill.name == name), None)
    if found is None:
        raise SpecError(unknown("skill", name, [skill.name for skill in skills]), hint="vibeserve skills list")
    return found
