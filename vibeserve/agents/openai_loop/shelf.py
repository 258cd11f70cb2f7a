"""What an agent may see of the skills: the notes always, the components only where the target lets it."""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from pathlib import Path

from vibeserve.agents.openai_loop.reach import reach_of, walk
from vibeserve.agents.openai_loop.toolbox import ToolError
from vibeserve.skills import Skill

NOTES = "SKILL.md"
REFERENCES = "references"


@dataclass(frozen=True, kw_only=True)
class SkillShelf:
    """Skills by name."""

    skills: tuple[Skill, ...] = ()
    has_components: bool = True
    """`skills.components`: whether assets and cards are shown beside SKILL.md and references/"""

    def paths(self) -> tuple[Path, ...]:
        """What of the skills' folders may be read: whole folders, or the notes' files alone."""
        if self.has_components:
            return tuple(skill.path for skill in self.skills)
        notes = [skill.path / name for skill in self.skills for name in (NOTES, REFERENCES)]
        return tuple(path for path in notes if path.exists())

    def listing(self) -> str:
        """One line a skill."""
        lines = [f"{skill.name}{self._mark(skill)}: {skill.description}" for skill in self.skills]
        return "\n".join(lines) or "[no skills]"

    def read(self, name: str, file: str = NOTES) -> str:
        """A file of a skill; behind SKILL.md the names of the others."""
        skill = next((each for each in self.skills if each.name == name), None)
        if skill is None:
            names = [each.name for each in self.skills]
            near = difflib.get_close_matches(name, names, n=3, cutoff=0.3) or names
            raise ToolError(f"there is no skill '{name}'; valid: {', '.join(near) or 'none, there are no skills'}")
        files = self.files(skill)
        if file not in files:
            raise ToolError(f"skill '{name}' has no file '{file}'; valid: {', '.join(files)}")
        text = reach_of(skill.path, is_writable=False, read_only=()).read_text(file)
        others = [each for each in files if each != NOTES]
        return text + f"\n[files of this skill: {', '.join(others)}]" if file == NOTES and others else text

    def files(self, skill: Skill) -> tuple[str, ...]:
        """Names of a skill's files that may be read, relative to its folder."""
        names = [path.relative_to(skill.path).as_posix() for path, _ in walk(skill.path) if _is_plain(path)]
        shown = [name for name in names if self.has_components or name == NOTES or name.startswith(f"{REFERENCES}/")]
        return tuple(sorted(shown, key=lambda name: (name != NOTES, name)))

    def _mark(self, skill: Skill) -> str:
        return " [component]" if self.has_components and skill.card is not None else ""


def _is_plain(path: Path) -> bool:
    return path.is_file() and not path.is_symlink()
