"""`vibeserve skills check` and `vibeserve skills route`."""

from __future__ import annotations

import argparse
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vibeserve.arguments import VerbParser
from vibeserve.cli.output import write, write_json, write_table
from vibeserve.cli.skill_folders import add_library, folders_of, library_of, named_skill, spec_of
from vibeserve.errors import SpecError

if TYPE_CHECKING:
    from vibeserve.skills import LibraryCheck, Skill, SuiteResult

MAX_WORDS_SHOWN = 6


def check(arguments: argparse.Namespace) -> int:
    """Check the library, or the named skills. Returns 3 where there is any failure."""
    from vibeserve.skills.checking import check_library

    spec = spec_of(arguments)
    skills = library_of(arguments, spec)
    chosen = [named_skill(skills, name) for name in arguments.names] or skills
    suite = _suite(skills, folders_of(arguments, spec))
    found = check_library(chosen, routed=suite.routed, is_run=not arguments.is_static)
    if arguments.is_json:
        rows = [
            {
                "name": row.name, "counts": row.counts, "routed": row.is_routed, "executed": row.executed,
                "num_snippets": row.num_snippets, "num_skipped": row.num_skipped, "effect": row.effect,
                "failures": list(row.failures), "notes": list(row.notes),
            }
            for row in found.skills
        ]  # fmt: skip
        write_json({"schema_version": 1, "count": found.count, "failures": list(found.failures), "skills": rows})
    else:
        _write_check(found)
    return 3 if found.failures else 0


def _write_check(found: LibraryCheck) -> None:
    head = ("skill", "routed", "executed", "snippets", "effect", "failures")
    cells = [
        (
            row.name, "yes" if row.is_routed else "no", row.executed or "no",
            f"{row.num_snippets - row.num_skipped} of {row.num_snippets}", row.effect, str(len(row.failures)),
        )
        for row in found.skills
    ]  # fmt: skip
    write_table([head, *cells])
    for row in found.skills:
        for text in (*row.failures, *(f"note: {note}" for note in row.notes)):
            write(f"  {text}")
    write(f"{found.count} of {len(found.skills)} skills are routed and executed; {len(found.failures)} failures")


def _suite(skills: list[Skill], folders: list[Path]) -> SuiteResult:
    """The routing suites of all folders that have one, over every target that ships."""
    from vibeserve.skills.suite import SUITE_FILE, read_suite, run_suite

    paths = [folder / SUITE_FILE for folder in folders if (folder / SUITE_FILE).is_file()]
    queries = [query for path in paths for query in read_suite(path)]
    return run_suite(queries, targets=shipped_facts(), skills=skills)


@cache
def shipped_facts() -> dict[str, Any]:
    """Facts of every target that ships, on a machine of which nothing is known: the same everywhere."""
    from vibeserve.config.compose import compose_file
    from vibeserve.config.targets import list_targets
    from vibeserve.core.paths import data_dir
    from vibeserve.skills.conditions import target_facts

    root = data_dir("targets")
    specs = {target.name: compose_file(target, overrides=[], cwd=root) for target in list_targets(root)}
    return {name: target_facts(spec, cpu_flags=None) for name, spec in sorted(specs.items())}


def route(arguments: argparse.Namespace) -> int:
    """Lead from a description to skills, or run the suite. Returns 3 where the suite misses."""
    if arguments.is_suite == bool(arguments.text):
        what = "both were given" if arguments.text else "neither was given"
        hint = 'vibeserve skills route --target smollm2_cpu "requests queue while one decodes"'
        raise SpecError(f"skills route: takes a bottleneck's description or --suite, {what}", hint=hint)
    return _route_suite(arguments) if arguments.is_suite else _route_one(arguments)


def _route_one(arguments: argparse.Namespace) -> int:
    from vibeserve.hardware import probe
    from vibeserve.skills.conditions import target_facts
    from vibeserve.skills.library import without
    from vibeserve.skills.routing import Bottleneck, why_pruned
    from vibeserve.skills.routing import route as rank

    spec = spec_of(arguments)
    skills = without(library_of(arguments, spec), spec.skills.exclude if spec else ())
    facts = target_facts(spec, cpu_flags=probe().cpu_flags) if spec else None
    rows = rank(skills, facts=facts, bottleneck=Bottleneck(text=arguments.text, spans=dict(arguments.span)))
    pruned = {skill.name: why_pruned(skill, facts=facts) for skill in skills} if facts else {}
    shown = [row for row in rows if row.score > 0][: arguments.first]
    if arguments.is_json:
        write_json({
            "schema_version": 1, "target": arguments.target, "text": arguments.text,
            "skills": [
                {"name": row.skill.name, "score": row.score, "matched": row.matched, "spans": row.spans}
                for row in shown
            ],
            "pruned": {name: why for name, why in pruned.items() if why},
        })  # fmt: skip
        return 0
    if not any(row.matched or row.spans for row in shown):
        begin = f"; a place to begin: {shown[0].skill.name}" if shown else ""
        write(f"no skill that applies shares a word or a span with that; `vibeserve skills list` has them all{begin}")
        return 0
    head = ("skill", "score", "matches")
    words = [", ".join((*row.matched[:MAX_WORDS_SHOWN], *row.spans)) for row in shown]
    write_table([head, *((row.skill.name, f"{row.score:.3f}", each) for row, each in zip(shown, words, strict=True))])
    gone = sum(why is not None for why in pruned.values())
    told = f"{gone} of {len(skills)} skills are foreign to {arguments.target}"
    write(told if facts else "no --target: none is pruned")
    return 0


def _route_suite(arguments: argparse.Namespace) -> int:
    spec = spec_of(arguments)
    result = _suite(library_of(arguments, spec), folders_of(arguments, spec))
    hits = len(result.answers) - len(result.misses)
    if arguments.is_json:
        write_json({
            "schema_version": 1, "queries": len(result.answers), "hits_in_first_five": hits, "misses": result.misses,
            "skills": sorted(result.routed),
        })  # fmt: skip
    else:
        targets = sorted({answer.target for answer in result.answers})
        rows = [[answer for answer in result.answers if answer.target == target] for target in targets]
        cells = [(each[0].target, str(len(each)), str(sum(answer.is_hit for answer in each))) for each in rows]
        write_table([("target", "bottlenecks", "hits in the first five"), *cells])
        for miss in result.misses:
            write(f"  miss: {miss.target}, {miss.query}: expected {', '.join(miss.expected)}; {', '.join(miss.first)}")
        write(f"{hits} of {len(result.answers)} queries")
    return 0 if not result.misses else 3


def _span(text: str) -> tuple[str, float]:
    from vibeserve.skills.card import SPANS

    name, _, share = text.partition("=")
    if name not in SPANS:
        raise argparse.ArgumentTypeError(f"'{name}' is not a span; valid: {', '.join(SPANS)}")
    try:
        value = float(share or 1.0)
    except ValueError:
        value = -1.0
    if not 0 < value <= 1:
        raise argparse.ArgumentTypeError(f"'{text}': a share is a number above 0, up to 1, such as {name}=0.4")
    return name, value


def add_check(parser: VerbParser) -> None:
    """Its options."""
    parser.add_argument("names", nargs="*", metavar="NAME", help="these alone")
    parser.add_argument("--static", action="store_true", dest="is_static", help="run no snippet")
    add_library(parser)


def add_route(parser: VerbParser) -> None:
    """Its options."""
    parser.add_argument("text", nargs="?", default="", metavar="BOTTLENECK", help="what is slow, in your words")
    parser.add_argument("--suite", action="store_true", dest="is_suite", help="every target with every description")
    parser.add_argument("--span", action="append", default=[], type=_span, metavar="SPAN=SHARE", help="of a profile")
    parser.add_argument("--first", type=int, default=5, metavar="N", help="how many to tell (default: %(default)s)")
    add_library(parser)
