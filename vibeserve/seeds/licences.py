"""Under which licence a checkout is, as far as its own files say so: SPDX, never guessed from prose."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

from vibeserve.errors import RefusedError

LICENCE_FILES = ("LICENSE", "LICENSE.txt", "LICENSE.md", "LICENCE", "COPYING")
TITLES: tuple[tuple[str, str], ...] = (
    (r"apache license\s+version 2\.0", "Apache-2.0"),
    (r"mozilla public license version 2\.0", "MPL-2.0"),
    (r"gnu affero general public license\s+version 3", "AGPL-3.0-only"),
    (r"gnu lesser general public license\s+version 3", "LGPL-3.0-only"),
    (r"gnu general public license\s+version 3", "GPL-3.0-only"),
    (r"gnu general public license\s+version 2", "GPL-2.0-only"),
    (r"permission is hereby granted, free of charge, to any person obtaining a copy", "MIT"),
    (r"permission to use, copy, modify, and(/or)? distribute this software for any purpose", "ISC"),
    (r"redistribution and use in source and binary forms(?s:.*)neither the name", "BSD-3-Clause"),
    (r"redistribution and use in source and binary forms", "BSD-2-Clause"),
)
"""what only one licence says at its beginning -> its identifier in the SPDX list"""
EXPRESSION = re.compile(r"[A-Za-z0-9.+-]+( (AND|OR|WITH) [A-Za-z0-9.+-]+)*")
HEAD_CHARS = 4000


def licence_file(folder: Path) -> Path | None:
    """The licence's text at the top of a checkout."""
    return next((folder / name for name in LICENCE_FILES if (folder / name).is_file()), None)


def licence_of(folder: Path, *, declared: str, what: str) -> str:
    """SPDX expression of a checkout: as declared, else as its licence file or its pyproject.toml says.

    RefusedError where neither says, or where there is no text that could be passed on.
    """
    path = licence_file(folder)
    if path is None:
        raise RefusedError(
            f"{what} has no licence file ({', '.join(LICENCE_FILES)}): nobody may pass on what comes of it\n"
            "next: ask its authors, or add the text by seed.overlay"
        )
    found = declared or _stated(path) or _in_pyproject(folder / "pyproject.toml")
    if not EXPRESSION.fullmatch(found):
        raise RefusedError(
            f"{what}: {path.name} is of no licence that is known here\n"
            "next: read it, and declare seed.licence=SPDX-IDENTIFIER (https://spdx.org/licenses)"
        )
    return found


def _stated(path: Path) -> str:
    text = " ".join(path.read_text(encoding="utf-8", errors="replace")[:HEAD_CHARS].lower().split())
    tag = re.search(r"spdx-license-identifier:\s*([\w.+-]+)", path.read_text(encoding="utf-8", errors="replace"), re.I)
    if tag is not None:
        return tag[1]
    return next((name for title, name in TITLES if re.search(title.replace(r"\s+", " "), text)), "")


def _in_pyproject(path: Path) -> str:
    if not path.is_file():
        return ""
    try:
        project = tomllib.loads(path.read_text(encoding="utf-8")).get("project", {})
    except (tomllib.TOMLDecodeError, UnicodeDecodeError):
        return ""
    licence = project.get("license", "")
    return str(licence.get("text", "") if isinstance(licence, dict) else licence)
