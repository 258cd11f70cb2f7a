"""`vibeserve plan`."""

from __future__ import annotations

from vibeserve.cli.output import VerbParser, write, write_json, write_table


def main(argv: list[str]) -> int:
    """Compile a target and print the plan; nothing is started."""
    parser = VerbParser("plan", description="What a target would do and cost on this machine. Spends nothing.")
    parser.add_argument("target", metavar="NAME", help="a target's name (`vibeserve list`)")
    parser.add_argument("overrides", nargs="*", metavar="OVERRIDE", help="as for a build: GROUP=OPTION, KEY=VALUE")
    arguments = parser.parse_intermixed_args(argv)
    from vibeserve.config import compose_spec
    from vibeserve.hardware import probe
    from vibeserve.plan import compile_plan, plan_document

    name = arguments.target.removeprefix("+").removeprefix("target=")
    plan = compile_plan(compose_spec([f"+target={name}", *arguments.overrides]), facts=probe())
    if arguments.is_json:
        write_json(plan_document(plan))
    else:
        _write(plan)
    return 0


def _write(plan) -> None:  # type: ignore[no-untyped-def]
    spec = plan.spec
    write(f"plan {plan.plan_id}: {plan.target}")
    write(f"  model     {spec.model.id}, {spec.model.num_parameters / 1e6:.1f} M parameters, {spec.model.dtype}")
    write(f"  hardware  {spec.hardware.name}: engine on CPU {spec.hardware.engine_cpus} with {plan.threads} threads,")
    write(f"            load generator on CPU {spec.hardware.client_cpus}")
    write(f"  workload  {spec.workload.kind}, loads {' '.join(spec.workload.loads)}, headline {spec.workload.headline_load}")
    write(f"  baselines {', '.join(_baseline(name, item) for name, item in spec.baseline.items())}")
    memory = plan.memory
    write(f"  memory    {memory.total_gib:.2f} of {memory.capacity_gib:.1f} GiB a server")
    write(f"  budget    level {spec.budget.level.name}, {spec.budget.rounds} rounds, {spec.budget.wall_s / 60:.0f} minutes at most")
    write("")
    write_table([("step", "minutes", "needs"), *((step.name, f"{step.minutes:.1f}", ", ".join(step.needs)) for step in plan.steps)])
    write(f"about {plan.minutes:.0f} minutes")
    if plan.ceilings:
        write("")
        head = ("ceiling", "load", "value", "unit", "bound by")
        rows = [(item.metric, item.load or "any", f"{item.value:.4g}", item.unit, item.bound_by) for item in plan.ceilings]
        write_table([head, *rows])


def _baseline(name: str, baseline) -> str:  # type: ignore[no-untyped-def]
    need = "required" if baseline.required else "optional"
    version = f" {baseline.version}" if baseline.version else ""
    return f"{name}{version} ({baseline.baseline_class.name}, {need})"
