"""`vibeserve skills`: the library, read, checked, routed, extended and carried elsewhere."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vibeserve.arguments import VerbParser
from vibeserve.cli.output import write, write_json, write_table
from vibeserve.cli.skill_checks import add_check, add_route, check, route
from vibeserve.cli.skill_folders import add_library, named_skill, used_skills
from vibeserve.errors import SpecError

if TYPE_CHECKING:
    from vibeserve.skills import Skill

ACTIONS = {
    "list": "every skill, what it is about and what it has",
    "show": "one skill: where it applies, what it was checked with, its effect, its note",
    "check": "format, links, sections, versions, names of libraries; runs every snippet",
    "route": "the skills to open for a bottleneck of a target, or the routing suite (--suite)",
    "new": "the folder of a new skill, valid as it is written",
    "export": "copy the skills to where another agent looks for them",
    "opened": "which skills the agents of a run opened, and what became of their rounds",
    "ablate": "run a target with and without a skill and record the difference",
}


def main(argv: list[str]) -> int:
    """Run one action; `vibeserve skills ACTION --help` tells its options."""
    action = argv[0] if argv else ""
    if action not in ACTIONS:
        about = "; ".join(f"{name}: {text}" for name, text in ACTIONS.items())
        parser = VerbParser("skills", description=f"The skills library. {about}.")
        parser.add_argument("action", choices=tuple(ACTIONS), help="each has --help")
        parser.parse_args(argv)
        raise SpecError("skills: the action comes first", problems=[f"valid: {', '.join(ACTIONS)}"])
    if action == "ablate":
        from vibeserve.ablation.command import main as ablate

        return ablate(argv[1:])
    run, add_arguments = VERBS[action]
    parser = VerbParser(f"skills {action}", description=f"{ACTIONS[action][0].upper()}{ACTIONS[action][1:]}.")
    add_arguments(parser)
    return run(parser.parse_args(argv[1:]))


def _list(arguments: argparse.Namespace) -> int:
    from vibeserve.skills.checking import effect_of, is_index
    from vibeserve.skills.routing import conditions_of, relieved

    skills = used_skills(arguments)
    rows: list[dict[str, Any]] = [
        {
            "name": skill.name, "description": skill.description, "component": skill.card is not None,
            "path": str(skill.path), "relieves": list(relieved(skill)), "effect": effect_of(skill),
            "conditions": {key: list(each) for key, each in vars(conditions_of(skill)).items() if each},
            "index": is_index(skill),
        }
        for skill in skills
    ]  # fmt: skip
    if arguments.is_json:
        write_json({"schema_version": 1, "skills": rows})
        return 0
    head = ("skill", "component", "spans", "effect", "about")
    cells = [
        (
            row["name"], "yes" if row["component"] else "-", ", ".join(row["relieves"]) or "-", row["effect"],
            row["description"].partition(". ")[0],
        )
        for row in rows
    ]  # fmt: skip
    write_table([head, *((*each[:-1], _cut(each[-1])) for each in cells)])
    return 0


def _cut(text: str) -> str:
    return text if len(text) <= 90 else text[:86].rpartition(" ")[0] + " ..."


def _show(arguments: argparse.Namespace) -> int:
    from vibeserve.core.documents import to_data
    from vibeserve.skills.effects import read_effect
    from vibeserve.skills.routing import conditions_of, relieved
    from vibeserve.skills.snippets import body_of

    skills = used_skills(arguments)
    skill = named_skill(skills, arguments.name)
    effect = read_effect(skill)
    document: dict[str, Any] = {
        "schema_version": 1, "name": skill.name, "description": skill.description, "path": str(skill.path),
        "digest": skill.digest, "conditions": {k: list(v) for k, v in vars(conditions_of(skill)).items() if v},
        "relieves": list(relieved(skill)), "component": to_data(skill.card) if skill.card else None,
        "versions": dict(skill.applies.versions) if skill.applies else {},
        "uses": list(skill.applies.uses) if skill.applies else [], "effect": [to_data(row) for row in effect],
        "note": body_of(skill),
    }  # fmt: skip
    if arguments.is_json:
        write_json(document)
        return 0
    versions = ", ".join(f"{name} {text}" for name, text in document["versions"].items())
    conditions = "; ".join(f"{key}: {', '.join(each)}" for key, each in document["conditions"].items())
    write(f"{skill.name}: {skill.description}")
    write(f"path        {skill.path}")
    write(f"applies     {conditions or 'everywhere'}")
    write(f"relieves    {', '.join(document['relieves']) or '-'}")
    write(f"component   {_component_text(skill)}")
    write(f"versions    {versions or '-'}")
    for row in effect:
        write(f"effect      {row.target}: x{row.effect:.3f} [{row.ci_low:.3f}, {row.ci_high:.3f}], level {row.level}")
    write(document["note"])
    return 0


def _component_text(skill: Skill) -> str:
    if skill.card is None:
        return "none: knowledge only"
    extends = f", extends {', '.join(skill.card.extends)}" if skill.card.extends else ""
    seams = ", ".join(skill.card.seams) or "no seam of its own"
    return f"fills {seams}{extends}, expected x{skill.card.expected_factor:g}"


def _new(arguments: argparse.Namespace) -> int:
    from vibeserve.skills.draft import write_draft

    folder = write_draft(arguments.name, folder=arguments.dir)
    if arguments.is_json:
        write_json({"schema_version": 1, "path": str(folder)})
    else:
        write(f"wrote       {folder}/SKILL.md and applies.yaml")
        write(f"next        vibeserve skills check {arguments.name} --path {arguments.dir}")
        write(f"            and in a target: skills: {{path: [{arguments.dir}]}}, from the target's folder")
    return 0


def _export(arguments: argparse.Namespace) -> int:
    from vibeserve.skills.export import export_skills

    skills = used_skills(arguments)
    done = export_skills(skills, client=arguments.client, out=arguments.out)
    if arguments.is_json:
        write_json(done)
    else:
        write(f"{len(done.written)} skills written to {done.folder}, {len(done.unchanged)} were there already")
    return 0


def _opened(arguments: argparse.Namespace) -> int:
    from vibeserve.agents.opened import opened_rows
    from vibeserve.cli.runs import find_run

    run = find_run("skills opened", arguments.run or "", project=arguments.dir)
    rows = opened_rows(run.events)
    if arguments.is_json:
        write_json({"schema_version": 1, "run": run.name, "calls": rows})
    elif not rows:
        write(f"no agent of {run.name} opened a skill")
    else:
        cells = [(str(row.round), row.key, ", ".join(row.skills), row.outcome or "running") for row in rows]
        write_table([("round", "call", "skills", "outcome"), *cells])
    return 0


def _add_show(parser: VerbParser) -> None:
    parser.add_argument("name", metavar="NAME")
    add_library(parser)


def _add_new(parser: VerbParser) -> None:
    parser.add_argument("name", metavar="NAME")
    parser.add_argument("--dir", type=Path, default=Path("skills"), help="folder of skills (default: %(default)s)")


def _add_export(parser: VerbParser) -> None:
    parser.add_argument("--to", required=True, dest="client", metavar="CLIENT", help="codex, claude, opencode")
    parser.add_argument("--out", required=True, type=Path, metavar="DIR", help="a repository's root, or a home")
    add_library(parser)


def _add_opened(parser: VerbParser) -> None:
    parser.add_argument("run", nargs="?", metavar="RUN", help="as `vibeserve status` names it, or its target")
    parser.add_argument("--dir", type=Path, metavar="DIR", help="project folder (default: as `vibeserve status`)")


VERBS: dict[str, tuple[Callable[[argparse.Namespace], int], Callable[[VerbParser], None]]] = {
    "list": (_list, add_library),
    "show": (_show, _add_show),
    "check": (check, add_check),
    "route": (route, add_route),
    "new": (_new, _add_new),
    "export": (_export, _add_export),
    "opened": (_opened, _add_opened),
}
