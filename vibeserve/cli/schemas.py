"""`vibeserve schema`: what a file may hold, as JSON Schema for editors and other programs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from vibeserve.arguments import VerbParser
from vibeserve.cli.output import write, write_json, write_table
from vibeserve.errors import SpecError

NAMES: dict[str, str] = {
    "target": "a target file, with the options of this repository's groups",
    "spec": "a composed spec (`spec.yaml` of an artifact)",
    "manifest": "`manifest.json` of an artifact, and `verify --json`",
    "mailbox-request": "`request.json` of a mailbox (agents=external)",
    "mailbox-result": "`result.json` that answers it",
    "events": "a line of `vibeserve +target=NAME --json`",
    "status": "`vibeserve status --json`",
}
"""beside the groups, each of which is a name too"""


def main(argv: list[str]) -> int:
    """Print a schema, write it to a file, or list the names."""
    parser = VerbParser("schema", description="JSON Schema (draft 2020-12) of a file; without NAME, what there is.")
    parser.add_argument("name", nargs="?", metavar="NAME", help=f"{', '.join(NAMES)}, or a group such as model")
    parser.add_argument("--output", type=Path, metavar="FILE", help="write it there instead of printing it")
    arguments = parser.parse_args(argv)
    known = _known()
    if arguments.name is None and arguments.output is not None:
        raise SpecError("schema: --output needs the NAME of a schema", problems=[f"valid: {', '.join(known)}"])
    if arguments.name is None:
        _list(known, is_json=arguments.is_json)
        return 0
    text = json.dumps(_schema(arguments.name), indent=1) + "\n"
    if arguments.output is None:
        write(text.rstrip("\n"))
        return 0
    _write_file(arguments.output, text)
    done = {"schema_version": 1, "name": arguments.name, "file": str(arguments.output)}
    if arguments.is_json:
        write_json(done)
    else:
        write(f"wrote {arguments.output}")
    return 0


def _known() -> dict[str, str]:
    from vibeserve.config.targets import GROUPS

    return {**NAMES, **{group: f"conf/{group}/NAME.yaml" for group in GROUPS}}


def _list(known: dict[str, str], *, is_json: bool) -> None:
    if is_json:
        write_json([{"schema_version": 1, "name": name, "describes": text} for name, text in known.items()])
    else:
        write_table([("schema", "describes"), *known.items()])


def _schema(name: str) -> dict[str, Any]:
    from vibeserve.config.schema import composed_schema, group_schema, target_schema
    from vibeserve.config.targets import GROUPS, group_options
    from vibeserve.config.words import unknown

    if name in GROUPS:
        return group_schema(name)
    if name == "target":
        return target_schema(group_options(Path.cwd()))
    if name == "spec":
        return composed_schema()
    if name == "manifest":
        from vibeserve.artifact.schema import manifest_schema

        return manifest_schema()
    if name.startswith("mailbox-"):
        from vibeserve.agents.mailbox.schemas import SCHEMA_FILES, document_schema

        if f"{name}.json" in SCHEMA_FILES:
            return document_schema(SCHEMA_FILES[f"{name}.json"])
    if name in ("events", "status"):
        from vibeserve.cli.document_schemas import SCHEMAS

        return SCHEMAS[name]()
    raise SpecError(unknown("schema", name, _known()), hint="vibeserve schema lists what each of them describes")


def _write_file(path: Path, text: str) -> None:
    from vibeserve.core.documents import write_text_atomic

    if path.is_dir():
        raise SpecError(f"--output {path}: a folder", hint=f"--output {path / 'target.schema.json'}")
    if not path.parent.is_dir():
        raise SpecError(f"--output {path}: there is no folder {path.parent}", hint=f"mkdir -p {path.parent}")
    try:
        write_text_atomic(path, text)
    except OSError as error:
        raise SpecError(f"--output {path}: cannot be written: {error.strerror}") from error
