"""`vibeserve plan`."""

from __future__ import annotations

from vibeserve.arguments import VerbParser
from vibeserve.cli.output import write, write_json, write_table


def main(argv: list[str]) -> int:
    """Compile a target and print the plan; nothing is started. A target that cannot run from here is planned too."""
    parser = VerbParser("plan", description="What a target would need, reach at best and cost. Spends nothing.")
    parser.add_argument("words", nargs="*", metavar="NAME [OVERRIDE ...]", help="a target, GROUP=OPTION, KEY=VALUE")
    arguments = parser.parse_intermixed_args(argv)
    from vibeserve.cli.plan_text import ceiling_rows, placement_lines, plan_lines
    from vibeserve.config import compose_spec
    from vibeserve.config.host_options import configured_hosts
    from vibeserve.hardware import probe
    from vibeserve.plan import compile_plan, plan_document

    # a bare word is a target's name; everything else is an override, as for a build
    overrides = [word if "=" in word or word.startswith("~") else f"+target={word}" for word in arguments.words]
    plan = compile_plan(compose_spec(overrides), facts=probe(), hosts=configured_hosts())
    if arguments.is_json:
        write_json(plan_document(plan))
        return 0
    for line in plan_lines(plan):
        write(line)
    if plan.ceilings:
        write("")
        write_table(ceiling_rows(plan))
    if plan.obstacles:
        write("")
        write("this target does not run from here:")
        for line in placement_lines(plan):
            write(f"  {line}")
    return 0
