"""`vibeserve skills ablate`."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from vibeserve.ablation.documents import ARMS, PLAYBOOK, Ablation, ArmRow, SkillRow
from vibeserve.ablation.effects import claim, effect_row, interval_of
from vibeserve.ablation.running import FOLDER, Finished, build
from vibeserve.arguments import VerbParser
from vibeserve.config import compose_spec
from vibeserve.config.targets import project_root
from vibeserve.core.documents import to_data, write_document
from vibeserve.core.tables import aligned
from vibeserve.errors import InfraError, SpecError
from vibeserve.skills import Skill, target_skills, without
from vibeserve.skills.effects import EFFECT_FILE, EffectFile, read_effect

Build = Callable[..., Finished]
SMOKE = "budget=smoke"


def main(argv: Sequence[str]) -> int:
    """Run the target with and without skills. Returns 3 where a run that was asked for left nothing to compare."""
    arguments = _parser().parse_intermixed_args(argv)
    overrides = (SMOKE, *arguments.overrides)
    spec = compose_spec([f"+target={arguments.target}", *overrides])
    skills = target_skills(spec)
    _refuse_wrong(arguments.skill, skills, agents=arguments.agents)
    found = ablate(
        arguments.target, overrides, skills=skills, names=tuple(arguments.skill), agents=arguments.agents,
        project=project_root(), tell=_tell,
    )  # fmt: skip
    path = project_root() / FOLDER / f"{arguments.target}.json"
    write_document(path, found)
    if arguments.record:
        record(found, skills=skills)
    if arguments.is_json:
        import json

        sys.stdout.write(json.dumps(to_data(found), indent=2) + "\n")
    else:
        sys.stdout.write("\n".join(_lines(found)) + f"\nwritten to {path}\n")
    states = [*(arm.state for arm in found.arms), *(skill.state for skill in found.skills)]
    return 3 if "failed" in states else 0


def _parser() -> VerbParser:
    parser = VerbParser(
        "skills ablate",
        description="Build a target by the playbook with and without a skill (budget smoke) and record the difference "
        "of the certified headlines, with its interval.",
    )
    parser.add_argument("--target", required=True, metavar="NAME")
    parser.add_argument("--skill", action="append", default=[], metavar="NAME", help="default: each of the winner's")
    parser.add_argument("--agents", default="", metavar="BACKEND", help="also the arms of an agent: openai, codex ...")
    parser.add_argument("--record", action="store_true", help=f"write {EFFECT_FILE} into the skills' folders")
    parser.add_argument("overrides", nargs="*", metavar="OVERRIDE", help="further overrides of every run")
    return parser


def _refuse_wrong(names: Sequence[str], skills: Sequence[Skill], *, agents: str) -> None:
    components = {skill.name for skill in skills if skill.card is not None}
    known = {skill.name for skill in skills}
    valid = ", ".join(sorted(components))
    problems = [f"there is no skill '{name}'; valid: {valid}" for name in names if name not in known]
    problems += [
        f"'{name}' has no component: the playbook assembles nothing of it; an agent can be run with and without its "
        "note (--agents BACKEND)"
        for name in names
        if name in known - components and not agents
    ]
    if problems:
        raise SpecError("skills ablate: nothing to leave out", problems=problems)


def ablate(
    target: str, overrides: Sequence[str], *, skills: Sequence[Skill], names: Sequence[str], agents: str, project: Path,
    tell: Callable[[str], None], build: Build = build,
) -> Ablation:  # fmt: skip
    """Every arm, and the arm of the playbook (of the agent, where one is given) without each skill."""
    arms: list[ArmRow] = []
    runs: dict[str, Finished] = {}
    for name, own in ARMS.items():
        if name != PLAYBOOK and not agents:
            arms.append(ArmRow(name=name, state="open", why="no agent was given (--agents BACKEND)"))
            continue
        excluded = [skill.name for skill in skills] if name == "agent without skills" else []
        tell(f"{target}: {name}")
        more = (*own, *_excluding(excluded), *([f"agents={agents}"] if name != PLAYBOOK else []))
        runs[name] = build(target, (*overrides, *more), arm=name, project=project)
        arms.append(_arm_row(name, runs[name]))
    whole = "agent with components" if agents else PLAYBOOK
    extra = (f"agents={agents}",) if agents else ()
    rows = tuple(
        _without(target, (*overrides, *extra), name=name, base=runs[whole], skills=skills, project=project, tell=tell,
                 build=build)
        for name in names or runs[whole].components
    )  # fmt: skip
    return Ablation(target=target, overrides=tuple(overrides), arms=tuple(arms), skills=rows)


def _without(
    target: str, overrides: Sequence[str], *, name: str, base: Finished, skills: Sequence[Skill], project: Path,
    tell: Callable[[str], None], build: Build,
) -> SkillRow:  # fmt: skip
    if base.manifest is None:
        return SkillRow(skill=name, state="failed", why=f"the run with it: {base.why}")
    left = {skill.name for skill in without(skills, [name])}
    has_component = any(skill.card is not None for skill in skills if skill.name == name)
    if has_component and set(base.components) <= left:
        return SkillRow(skill=name, state="not used", why="the winner does without it", without=base.components)
    tell(f"{target}: without {name}")
    other = build(target, (*overrides, *_excluding([name])), arm=f"without {name}", project=project)
    if other.manifest is None:
        return SkillRow(skill=name, state="failed", why=f"the run without it: {other.why}")
    try:
        effect = effect_row(base.manifest, other.manifest)
    except InfraError as error:
        return SkillRow(skill=name, state="failed", why=str(error), without=other.components)
    return SkillRow(skill=name, state="measured", without=other.components, effect=effect)


def _excluding(names: Sequence[str]) -> tuple[str, ...]:
    return (f"skills.exclude=[{','.join(names)}]",) if names else ()


def _arm_row(name: str, done: Finished) -> ArmRow:
    row = ArmRow(name=name, state="failed", why=done.why, artifact=str(done.artifact), components=done.components)
    if done.manifest is None:
        return row
    try:
        headline, against = claim(done.manifest)
    except InfraError as error:
        return replace(row, why=str(error))
    ratio, low, high = interval_of(against)
    return replace(
        row, state="measured", metric=f"{headline.name} at {headline.load}", against=against.name, ratio=ratio,
        ci_low=low, ci_high=high,
    )  # fmt: skip


def record(found: Ablation, *, skills: Sequence[Skill]) -> None:
    """Leave each measured effect beside its skill; an earlier one of the same target goes."""
    for row in found.skills:
        if row.effect is None:
            continue
        skill = next(skill for skill in skills if skill.name == row.skill)
        kept = [each for each in read_effect(skill) if each.target != found.target]
        rows = tuple(sorted((*kept, row.effect), key=lambda each: each.target))
        write_document(skill.path / EFFECT_FILE, EffectFile(rows=rows))


def _tell(text: str) -> None:
    sys.stderr.write(f"ablate      {text}\n")
    sys.stderr.flush()


def _lines(found: Ablation) -> list[str]:
    def ratio(value: float | None, low: float | None, high: float | None) -> str:
        return "-" if value is None or low is None or high is None else f"{value:.3f} [{low:.3f}, {high:.3f}]"

    arms = [
        (arm.name, arm.state, f"{ratio(arm.ratio, arm.ci_low, arm.ci_high)} {arm.against}".strip(), arm.why)
        for arm in found.arms
    ]
    rows = [
        (
            row.skill, row.state,
            ratio(row.effect.effect, row.effect.ci_low, row.effect.ci_high) if row.effect else "-",
            row.why or f"without it: {', '.join(row.without) or 'the scaffold'}",
        )
        for row in found.skills
    ]  # fmt: skip
    level = next((row.effect.level for row in found.skills if row.effect), "quick")
    return [
        *aligned([("arm", "state", "headline against", "why"), *arms]), "",
        *aligned([("skill", "state", f"with over without, level {level}", ""), *rows]),
    ]  # fmt: skip
