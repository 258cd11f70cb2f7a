"""What an agent leaves behind in a workspace: leftovers go, what a candidate cannot be is refused."""

from __future__ import annotations

from vibeserve.agents.hygiene.changes import Changes, changed_files
from vibeserve.agents.hygiene.files import copy_files, remove_tree
from vibeserve.agents.hygiene.scan import Stripped, Tidied, inspect_workspace, tidy_workspace

__all__ = [
    "Changes",
    "Stripped",
    "Tidied",
    "changed_files",
    "copy_files",
    "inspect_workspace",
    "remove_tree",
    "tidy_workspace",
]
