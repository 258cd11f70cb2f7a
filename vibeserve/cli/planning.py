"""`vibeserve plan`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vibeserve.arguments import VerbParser
from vibeserve.cli.checking import is_override
from vibeserve.cli.output import write, write_json, write_table
from vibeserve.errors import SpecError

if TYPE_CHECKING:
    from vibeserve.plan import Plan
    from vibeserve.spec import Spec


def main(argv: list[str]) -> int:
    """Compile a target and print the plan; nothing is started. A target that cannot run from here is planned too."""
    parser = VerbParser("plan", description="What a target would need, reach at best and cost. Spends nothing.")
    parser.add_argument("words", nargs="*", metavar="NAME [OVERRIDE ...]", help="a target, GROUP=OPTION, KEY=VALUE")
    arguments = parser.parse_intermixed_args(argv)
    from vibeserve.agents.preflight import preflight
    from vibeserve.cli.plan_text import ceiling_rows, placement_lines, plan_lines
    from vibeserve.config import compose_spec
    from vibeserve.config.compose import placing
    from vibeserve.core.documents import to_data
    from vibeserve.plan import plan_document

    # a bare word is a target's name; everything else is an override, as for a build
    _refuse_valueless([word for word in arguments.words if not is_override(word)])
    overrides = [word if is_override(word) else f"+target={word}" for word in arguments.words]
    spec = compose_spec(overrides)
    with placing(overrides):
        plan = _plan(spec)
    if arguments.is_json:
        write_json({**plan_document(plan), "agents": to_data(preflight(spec))})
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
    elif too_short := _why_too_short(plan):
        write("")
        write(f"a run refuses this: {too_short}")
    return 0


def _refuse_valueless(bare: list[str]) -> None:
    """SpecError where one of several bare words is no target: then it is a key whose value was forgotten."""
    from vibeserve.config.targets import target_names

    known = target_names() if len(bare) > 1 else []
    others = [word for word in bare if word not in known]
    if known and others:
        name = next((word for word in bare if word in known), "NAME")
        raise SpecError(f"'{others[0]}' lacks its =VALUE", hint=f"vibeserve plan {name} {others[0]}=VALUE")


def _why_too_short(plan: Plan) -> str:
    from vibeserve.build.runs import refuse_short_budget
    from vibeserve.errors import BudgetError

    try:
        refuse_short_budget(plan)
    except BudgetError as error:
        return str(error).splitlines()[0]
    return ""


def _plan(spec: Spec) -> Plan:
    """The plan as a run would make it: its bandwidth is read with the device held, so that neither disturbs a run that
    measures nor is disturbed by one."""
    import os
    import sys

    from vibeserve.baselines.presence import with_presence
    from vibeserve.build.bandwidth import read_bandwidth
    from vibeserve.config.host_options import configured_hosts
    from vibeserve.config.own_files import refuse_own_files
    from vibeserve.core.paths import lease_dir
    from vibeserve.hardware import probe
    from vibeserve.lease import DeviceLease, devices_of
    from vibeserve.plan import compile_plan
    from vibeserve.plan.unmeasured import compile_unmeasured
    from vibeserve.progress import LineProgress

    refuse_own_files(spec)
    facts, hosts = probe(), configured_hosts()
    unmeasured = compile_unmeasured(spec, facts=facts, hosts=hosts)
    run = f"plan-{spec.target.name}-{os.getpid()}"
    lease = DeviceLease(devices_of(spec.hardware, facts), root=lease_dir(), run=run, progress=LineProgress(sys.stderr))
    reading = read_bandwidth(unmeasured, facts=facts, lease=lease)
    return with_presence(compile_plan(spec, facts=reading.facts(facts), hosts=hosts))
