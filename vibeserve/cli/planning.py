"""`vibeserve plan`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vibeserve.cli.output import VerbParser, write, write_json, write_table

if TYPE_CHECKING:
    from vibeserve.plan import Plan
    from vibeserve.spec import Baseline


def main(argv: list[str]) -> int:
    """Compile a target and print the plan; nothing is started."""
    parser = VerbParser("plan", description="What a target would do and cost on this machine. Spends nothing.")
    parser.add_argument("words", nargs="*", metavar="NAME [OVERRIDE ...]", help="a target, GROUP=OPTION, KEY=VALUE")
    arguments = parser.parse_intermixed_args(argv)
    from vibeserve.config import compose_spec
    from vibeserve.hardware import probe
    from vibeserve.plan import compile_plan, plan_document

    # a bare word is a target's name; everything else is an override, as for a build
    overrides = [word if "=" in word or word.startswith("~") else f"+target={word}" for word in arguments.words]
    plan = compile_plan(compose_spec(overrides), facts=probe())
    if arguments.is_json:
        write_json(plan_document(plan))
    else:
        _write(plan)
    return 0


def _write(plan: Plan) -> None:
    spec, budget = plan.spec, plan.spec.budget
    write(f"plan {plan.plan_id}: {plan.target}")
    write(f"  model     {spec.model.id}, {spec.model.num_parameters / 1e6:.1f} M parameters, {spec.model.dtype}")
    write(f"  hardware  {spec.hardware.name}: engine on CPU {spec.hardware.engine_cpus} with {plan.threads} threads,")
    write(f"            load generator on CPU {spec.hardware.client_cpus}")
    loads = " ".join(spec.workload.loads)
    write(f"  workload  {spec.workload.kind}, loads {loads}, headline {spec.workload.headline_load}")
    write(f"  baselines {', '.join(_baseline(name, item) for name, item in spec.baseline.items())}")
    memory = plan.memory
    write(f"  memory    {memory.total_gib:.2f} of {memory.capacity_gib:.1f} GiB a server")
    write(f"  budget    level {budget.level.name}, {budget.rounds} rounds, {budget.wall_s / 60:.0f} minutes at most")
    write("")
    steps = [(step.name, f"{step.minutes:.1f}", ", ".join(step.needs)) for step in plan.steps]
    write_table([("step", "minutes", "needs"), *steps])
    write(f"about {plan.minutes:.0f} minutes")
    if plan.ceilings:
        write("")
        head = ("ceiling", "load", "value", "unit", "bound by")
        rows = [(it.metric, it.load or "any", f"{it.value:.4g}", it.unit, it.bound_by) for it in plan.ceilings]
        write_table([head, *rows])


def _baseline(name: str, baseline: Baseline) -> str:
    need = "required" if baseline.required else "optional"
    version = f" {baseline.version}" if baseline.version else ""
    return f"{name}{version} ({baseline.baseline_class.name}, {need})"
