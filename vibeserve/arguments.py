"""The parser that every verb shares."""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import NoReturn

from vibeserve.errors import SpecError


class VerbParser(argparse.ArgumentParser):
    """argparse whose faults are SpecErrors, so that they pass the boundary like all others.

    `is_task`: of `invoke`, whose options stand behind `--`.
    """

    def __init__(self, verb: str, *, description: str, is_task: bool = False) -> None:
        program = f"invoke {verb} --" if is_task else f"vibeserve {verb}"
        super().__init__(prog=program, description=description, allow_abbrev=False)
        self._verb = verb
        self.add_argument("--json", action="store_true", dest="is_json", help="one JSON document instead of text")

    def error(self, message: str) -> NoReturn:
        usage = " ".join(self.format_usage().split())
        told = f"{self._verb}: {self._reworded(message)}"
        raise SpecError(told, problems=[usage], hint=f"{self.prog} --help")

    def _reworded(self, message: str) -> str:
        """argparse's message, with the option or choice that was meant where one is close."""
        option = re.search(r"unrecognized arguments: (--[\w-]+)", message)
        if option:
            return message + _close(option[1], list(self._option_string_actions))
        choice = re.fullmatch(r"(argument .*): invalid choice: '(.*)' \(choose from (.*)\)", message)
        if choice is None:
            return message
        valid = re.findall(r"[\w.-]+", choice[3])
        guess = _close(choice[2], valid) or ";"
        return f"{choice[1]}: '{choice[2]}' is not valid{guess} valid: {', '.join(valid)}"


def new_file(text: str) -> str:
    """Type of an option that names a file to be written: its folder is there, and it is none itself."""
    path = Path(text)
    if path.is_dir() or not path.parent.is_dir():
        why = f"{path} is a folder" if path.is_dir() else f"there is no folder {path.parent}"
        raise argparse.ArgumentTypeError(f"cannot write {path}: {why}")
    return text


def _close(word: str, options: Sequence[str]) -> str:
    found = get_close_matches(word, options, n=1, cutoff=0.6)
    return f"; did you mean '{found[0]}'?" if found else ""
