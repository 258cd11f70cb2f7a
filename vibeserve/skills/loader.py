"""Read skills (`SKILL.md`, and `component.yaml` where code exists) and scaffolds from disk."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vibeserve.core.documents import digest_of, digest_tree
from vibeserve.errors import SpecError
from vibeserve.skills.card import Card, Parameter, parse_card, parse_parameters
from vibeserve.skills.knowledge import APPLIES_FILE, Applies, parse_applies

NAME_PATTERN = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")
MAX_NAME_CHARS = 64
MAX_DESCRIPTION_CHARS = 1024
MAX_BODY_LINES = 500
MAX_COMPATIBILITY_CHARS = 500
FRONT_MATTER_KEYS = ("name", "description", "license", "compatibility", "metadata", "allowed-tools")
"""limits and keys of the Agent Skills format"""

IGNORED_NAMES = ("__pycache__", ".mypy_cache", ".ruff_cache", ".pytest_cache")


@dataclass(frozen=True, kw_only=True)
class Skill:
    """One folder of `skills/`. `card` is None for knowledge without code."""

    name: str
    description: str
    path: Path
    digest: str
    """over every file of the folder"""
    card: Card | None = None
    applies: Applies | None = None
    """None for a note without `applies.yaml`: it is routed by its description, and by its card where it has one"""


SCAFFOLD_FILE = "scaffold.yaml"
SCAFFOLD_LISTS = ("architectures", "requires", "brings", "removes")
SCAFFOLD_KEYS = ("schema_version", *SCAFFOLD_LISTS, "parameters")


@dataclass(frozen=True, kw_only=True)
class Scaffold:
    """A folder of `templates/runtime/`, or one that was composed from several."""

    path: Path
    digest: str
    parameters: Mapping[str, Parameter]
    requires: tuple[str, ...]
    """distributions that it needs without importing them by name"""
    architectures: tuple[str, ...] = ()
    """of the models that it runs; empty = any"""
    brings: tuple[str, ...] = ()
    """modules that the target's folder has to bring"""


def load_skills(root: Path, *more: Path) -> list[Skill]:
    """Every skill under `root` and further folders, sorted by name.

    Raises SpecError with all problems of all skills; two of one name are a problem, none hides the other.
    """
    skills: list[Skill] = []
    problems: list[str] = []
    for folder in (root, *more):
        found = sorted(folder.glob("*/SKILL.md"))
        if not found and folder in more:
            problems.append(f"{folder}: holds no skill, which is a folder NAME with a SKILL.md")
        for path in found:
            try:
                skills.append(load_skill(path.parent))
            except SpecError as error:
                problems += error.problems
    problems += _doubled(skills)
    names = {skill.name for skill in skills if skill.card is not None}
    for skill in skills:
        if skill.card is not None:
            for key, others in (("extends", skill.card.extends), ("conflicts", skill.card.conflicts)):
                problems += [
                    f"{skill.path / 'component.yaml'}: {key}: there is no component '{other}'; "
                    f"valid: {', '.join(sorted(names))}"
                    for other in others
                    if other not in names and not problems
                ]
    if problems:
        hint = "vibeserve skills check"
        raise SpecError("the skills library is not valid", problems=problems, hint=hint)
    return sorted(skills, key=lambda skill: skill.name)


def _doubled(skills: Sequence[Skill]) -> list[str]:
    places: dict[str, list[Path]] = {}
    for skill in skills:
        places.setdefault(skill.name, []).append(skill.path)
    return [
        f"skill '{name}' is there more than once: {', '.join(map(str, paths))}; rename one, folder and front matter"
        for name, paths in places.items()
        if len(paths) > 1
    ]


def load_skill(folder: Path) -> Skill:
    """The skill in `folder`. Raises SpecError naming file and field."""
    path = folder / "SKILL.md"
    front, body = split_front_matter(path.read_text(encoding="utf-8"))
    problems = [f"{path}: {problem}" for problem in _skill_problems(front, body, folder)]
    card: Card | None = None
    card_path = folder / "component.yaml"
    if card_path.is_file():
        card, found = parse_card(read_yaml(card_path), name=folder.name)
        problems += [f"{card_path}: {problem}" for problem in found]
        if card is not None:
            problems += [
                f"{card_path}: files: '{source}' does not exist"
                for source in card.files
                if not (folder / source).is_file()
            ]
    applies: Applies | None = None
    if (folder / APPLIES_FILE).is_file():
        applies, found = parse_applies(read_yaml(folder / APPLIES_FILE))
        problems += [f"{folder / APPLIES_FILE}: {problem}" for problem in found]
    if problems:
        raise SpecError(f"skill '{folder.name}' is not valid", problems=problems)
    return Skill(
        name=front["name"],
        description=front["description"],
        path=folder,
        digest=digest_of(digest_tree(folder, ignore=IGNORED_NAMES)),
        card=card,
        applies=applies,
    )


def load_scaffold(folder: Path) -> Scaffold:
    """The scaffold in `folder`, from its `scaffold.yaml`. Raises SpecError."""
    if not (folder / SCAFFOLD_FILE).is_file():
        raise SpecError(f"{folder}: no {SCAFFOLD_FILE}, so not a scaffold")
    data = read_scaffold_file(folder)
    return Scaffold(
        path=folder,
        digest=digest_of(digest_tree(folder, ignore=IGNORED_NAMES)),
        parameters=parse_parameters(data["parameters"])[0],
        requires=tuple(data["requires"]),
        architectures=tuple(data["architectures"]),
        brings=tuple(data["brings"]),
    )


def read_scaffold_file(folder: Path) -> dict[str, Any]:
    """Checked content of the `scaffold.yaml` in `folder`, every key there; a layer may do without. Raises SpecError."""
    path = folder / SCAFFOLD_FILE
    data = read_yaml(path) if path.is_file() else {}
    if not isinstance(data, dict):
        raise SpecError(f"scaffold '{folder}' is not valid", problems=[f"{path}: must be a mapping"])
    _, problems = parse_parameters(data.get("parameters", {}))
    problems += [f"{key}: unknown key; valid: {', '.join(SCAFFOLD_KEYS)}" for key in data if key not in SCAFFOLD_KEYS]
    for key in SCAFFOLD_LISTS:
        value = data.get(key, [])
        if not (isinstance(value, list) and all(isinstance(item, str) for item in value)):
            problems.append(f"{key}: must be a list of strings")
    if problems:
        raise SpecError(f"scaffold '{folder}' is not valid", problems=[f"{path}: {problem}" for problem in problems])
    return {"schema_version": 1, "parameters": {}, **{key: [] for key in SCAFFOLD_LISTS}, **data}


def split_front_matter(text: str) -> tuple[dict[str, Any], str]:
    """Parsed YAML between the two `---` lines at the top, and the rest; empty where there is none."""
    import yaml

    match = re.match(r"---\n(.*?)\n---\n(.*)", text, re.DOTALL)
    if match is None:
        return {}, text
    try:
        front = yaml.safe_load(match[1])
    except yaml.YAMLError:
        return {}, text
    return (front if isinstance(front, dict) else {}), match[2]


def _skill_problems(front: Mapping[str, Any], body: str, folder: Path) -> list[str]:
    name, description = front.get("name"), front.get("description")
    if not isinstance(name, str) or not isinstance(description, str) or not description.strip():
        return ["must open with YAML front matter that has 'name' and 'description'"]
    problems = [
        f"front matter: unknown key '{key}'; valid: {', '.join(FRONT_MATTER_KEYS)}"
        for key in front
        if key not in FRONT_MATTER_KEYS
    ]
    if not NAME_PATTERN.fullmatch(name) or len(name) > MAX_NAME_CHARS:
        problems.append(f"name: '{name}' must be kebab-case with at most {MAX_NAME_CHARS} characters")
    if name != folder.name:
        problems.append(f"name: '{name}' differs from the folder's name '{folder.name}'")
    if len(description) > MAX_DESCRIPTION_CHARS:
        problems.append(f"description: {len(description)} characters; at most {MAX_DESCRIPTION_CHARS}")
    problems += _optional_problems(front)
    if len(body.splitlines()) >= MAX_BODY_LINES:
        problems.append(f"body: {len(body.splitlines())} lines; below {MAX_BODY_LINES}, put the rest into references/")
    return problems


def _optional_problems(front: Mapping[str, Any]) -> list[str]:
    """Of the keys that a skill may do without."""
    problems = []
    compatibility, metadata = front.get("compatibility", ""), front.get("metadata", {})
    if not isinstance(compatibility, str) or len(compatibility) > MAX_COMPATIBILITY_CHARS:
        problems.append(f"compatibility: must be text of at most {MAX_COMPATIBILITY_CHARS} characters")
    if not (isinstance(metadata, dict) and all(isinstance(text, str) for pair in metadata.items() for text in pair)):
        problems.append("metadata: must map strings to strings")
    return problems


def read_yaml(path: Path) -> Any:
    """Parsed YAML of a file. SpecError where it is none."""
    import yaml

    try:
        return yaml.safe_load(path.read_text(encoding="utf-8"))
    except yaml.YAMLError as error:
        raise SpecError(f"{path} is not valid YAML", problems=[f"{path}: {' '.join(str(error).split())}"]) from error
