"""Skills into the folders where other agents look for them. The folders are copied as they are."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from vibeserve.core.documents import digest_of, digest_tree
from vibeserve.errors import SpecError
from vibeserve.skills.loader import IGNORED_NAMES, Skill

CLIENTS: dict[str, tuple[str, str]] = {
    "codex": (".agents/skills", "https://developers.openai.com/codex/skills"),
    "claude": (".claude/skills", "https://code.claude.com/docs/en/skills"),
    "opencode": (".opencode/skills", "https://opencode.ai/docs/skills"),
}
"""client -> folder below a repository or a home that it searches, and where that is documented"""


@dataclass(frozen=True, kw_only=True)
class Exported:
    """Document of `skills export --json`."""

    schema_version: int = 1
    client: str
    folder: str
    written: tuple[str, ...]
    unchanged: tuple[str, ...]
    """were there already, byte for byte"""


def export_skills(skills: Sequence[Skill], *, client: str, out: Path) -> Exported:
    """Copy every skill to the client's folder below `out`.

    SpecError, before anything is written, for an unknown client, a path that cannot be a folder, and skills that are
    there with other content.
    """
    if client not in CLIENTS:
        raise SpecError(f"skills export: no client '{client}'", problems=[f"valid: {', '.join(CLIENTS)}"])
    folder = out / CLIENTS[client][0]
    blocked = next((path for path in (folder, *folder.parents) if path.exists() and not path.is_dir()), None)
    if blocked is not None:
        raise SpecError(f"skills export: {blocked} is no folder", hint="name another --out")
    present = {skill.name: skill for skill in skills if (folder / skill.name).exists()}
    changed = [name for name, skill in present.items() if _digest(folder / name) != skill.digest]
    if changed:
        problems = [f"{folder / name}: is another skill or another version" for name in changed]
        raise SpecError("skills export: would overwrite", problems=problems, hint="remove them, or name another --out")
    written = [skill for skill in skills if skill.name not in present]
    for skill in written:
        shutil.copytree(skill.path, folder / skill.name, ignore=shutil.ignore_patterns(*IGNORED_NAMES))
    return Exported(
        client=client, folder=str(folder), written=tuple(skill.name for skill in written), unchanged=tuple(present)
    )


def _digest(folder: Path) -> str:
    return digest_of(digest_tree(folder, ignore=IGNORED_NAMES)) if folder.is_dir() else ""
