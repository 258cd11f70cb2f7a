"""`vibeserve check`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from vibeserve.cli.output import VerbParser, write, write_json
from vibeserve.errors import SpecError

if TYPE_CHECKING:
    from vibeserve.config import TargetCheck


def main(argv: list[str]) -> int:
    """Validate target files; exit 2 when one is not valid."""
    parser = VerbParser("check", description="Validate target files, with file:line:column for every fault.")
    parser.add_argument("target", nargs="*", metavar="NAME|PATH", help="a target's name, or a target file anywhere")
    parser.add_argument("--all", action="store_true", dest="is_all", help="every target that can be named here")
    arguments = parser.parse_args(argv)
    checks = _checks(arguments.target, is_all=arguments.is_all)
    if arguments.is_json:
        write_json({"schema_version": 1, "targets": [check.document() for check in checks]})
    else:
        for check in checks:
            write(f"{check.name}: {'ok' if check.is_ok else 'not valid'}")
            for error in check.errors:
                write(f"  {error}")
    return 0 if all(check.is_ok for check in checks) else SpecError.exit_code


def _checks(names: list[str], *, is_all: bool) -> list[TargetCheck]:
    from vibeserve.config import check_file, check_target, find_target, list_targets

    if bool(names) == is_all:
        raise SpecError(
            "check needs targets to check",
            problems=[f"valid targets: {', '.join(target.name for target in list_targets()) or '(none)'}"],
            hint="vibeserve check NAME, vibeserve check PATH, or vibeserve check --all",
        )
    if is_all:
        return [check_target(target) for target in list_targets()]
    return [check_file(Path(name)) if _is_path(name) else check_target(find_target(name)) for name in names]


def _is_path(name: str) -> bool:
    if "/" not in name and not name.endswith(".yaml"):
        return False
    if not Path(name).is_file():
        raise SpecError(f"no file {name}", hint="vibeserve list shows the targets that have a name")
    return True
