"""Command-line parsing that the verbs on artifacts share."""

from __future__ import annotations

import argparse
from typing import NoReturn

from vibeserve.errors import SpecError


class ArtifactParser(argparse.ArgumentParser):
    """argparse whose faults are `SpecError`, so that the command line's one boundary answers them."""

    def __init__(self, verb: str, *, description: str) -> None:
        super().__init__(prog=f"vibeserve {verb}", description=description, allow_abbrev=False)
        self.add_argument("--json", action="store_true", dest="is_json", help="one JSON document instead of text")

    def error(self, message: str) -> NoReturn:
        usage = " ".join(self.format_usage().split()).removeprefix("usage: ")
        raise SpecError(f"{self.prog}: {message}", problems=[f"usage: {usage}"], hint=f"{self.prog} --help")
