"""`vibeserve check`: what targets say, and with --deep whether their parts work."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from vibeserve.arguments import VerbParser
from vibeserve.cli.output import write, write_json
from vibeserve.errors import RefusedError, SpecError

if TYPE_CHECKING:
    from vibeserve.config import TargetCheck
    from vibeserve.initialise.deep import DeepCheck


def main(argv: list[str]) -> int:
    """Validate target files; exit 2 when one is not valid."""
    parser = VerbParser("check", description="Validate target files, with file:line:column for every fault.")
    about = "a target's name, or a target file anywhere; GROUP=OPTION and KEY=VALUE hold for each of them"
    parser.add_argument("words", nargs="*", metavar="NAME|PATH [OVERRIDE ...]", help=about)
    parser.add_argument("--all", action="store_true", dest="is_all", help="every target that can be named here")
    parser.add_argument(
        "--deep", action="store_true", dest="is_deep", help="run reference, scaffold and faults too, in minutes"
    )
    arguments = parser.parse_intermixed_args(argv)
    overrides = [word for word in arguments.words if is_override(word)]
    names = [word for word in arguments.words if not is_override(word)]
    checks = _checks(names, overrides=overrides, is_all=arguments.is_all)
    parts = [check.name for check in checks if check.is_ok and check.spec is None]
    if arguments.is_deep and parts:
        raise SpecError(f"'{parts[0]}' is a part of targets and no target", hint="vibeserve list")
    documents = [{**check.document(), "notes": notes_of(check)} for check in checks]
    if not arguments.is_json:
        _tell(checks)
    code = 0 if all(check.is_ok for check in checks) else SpecError.exit_code
    if arguments.is_deep and code == 0:
        for check, document in zip(checks, documents, strict=True):
            deep = _deep(check, is_json=arguments.is_json)
            document["deep"] = deep
            code = code if deep.is_ok else RefusedError.exit_code
    if arguments.is_json:
        write_json({"schema_version": 1, "targets": documents})
    elif code == 0:
        _tell_next(checks, overrides=overrides, is_deep=arguments.is_deep)
    return code


def is_override(word: str) -> bool:
    """As a build takes them: a bare word is a target."""
    return "=" in word or word.startswith("~")


def _tell_next(checks: list[TargetCheck], *, overrides: list[str], is_deep: bool) -> None:
    """What sound targets are checked for; nothing of parts, and of files that have no name here."""
    from vibeserve.config.targets import target_names

    named = [check.name for check in checks if check.spec is not None and check.name in target_names()]
    if named:
        same = shlex.join([named[0], *overrides])
        deep = "" if is_deep else f"vibeserve check {same} --deep, or "
        write(f"next: {deep}vibeserve plan {same}")


def _tell(checks: list[TargetCheck]) -> None:
    for check in checks:
        write(f"{check.name}: {'ok' if check.is_ok else 'not valid'}")
        for error in check.errors:
            write(f"  {error}")
        for note in notes_of(check):
            write(f"  note: {note}")


def notes_of(check: TargetCheck) -> list[str]:
    """What a run on this machine would lack although the target is valid; nothing where the machine is another one."""
    from vibeserve.baselines.presence import goal_texts, required_texts
    from vibeserve.hardware import mismatch, probe

    if check.spec is None or mismatch(check.spec.hardware, probe()):
        return []
    return [*required_texts(check.spec), *goal_texts(check.spec)]


def _deep(check: TargetCheck, *, is_json: bool) -> DeepCheck:
    """One line per part as soon as it is known."""
    from vibeserve.initialise.deep import DeepStep, check_deeply
    from vibeserve.progress import LineProgress, make_progress

    def say(step: DeepStep) -> None:
        if not is_json:
            for line in step.lines():
                write(f"  {line}")

    assert check.spec is not None, "refused above"
    progress = LineProgress(sys.stderr) if is_json else make_progress(is_json=False)
    found = check_deeply(check.spec, say=say, progress=progress)
    if not is_json:
        left_out = f"; not run: {', '.join(found.not_run)}" if found.not_run else ""
        write(f"{check.name}: {'all parts work' if found.is_ok else 'FAILED'} ({found.seconds:.0f} s){left_out}")
    return found


def _checks(names: list[str], *, overrides: list[str], is_all: bool) -> list[TargetCheck]:
    from vibeserve.config import check_file, check_target, find_target, list_targets

    if bool(names) == is_all:
        raise SpecError(
            "check needs targets to check",
            problems=[f"valid targets: {', '.join(target.name for target in list_targets()) or '(none)'}"],
            hint="vibeserve check NAME, vibeserve check PATH, or vibeserve check --all",
        )
    if is_all:
        return [check_target(target, overrides=overrides) for target in list_targets()]
    return [
        check_file(_file_of(name), overrides=overrides)
        if _is_path(name)
        else check_target(find_target(name), overrides=overrides)
        for name in names
    ]


def _is_path(name: str) -> bool:
    if "/" not in name and not name.endswith(".yaml"):
        return False
    path = Path(name)
    # a link that leads nowhere is there, and is the target's fault
    if not path.exists() and not path.is_symlink():
        raise SpecError(f"no file {name}", hint="vibeserve list shows the targets that have a name")
    return True


def _file_of(name: str) -> Path:
    """The target's file: the one inside where a target's folder is named."""
    inside = Path(name) / "target.yaml"
    return inside if inside.is_file() else Path(name)
