"""What `vibeserve init` needs to know: from options, from questions on a terminal, and else from the defaults."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, fields
from pathlib import Path

from vibeserve.config.targets import group_options
from vibeserve.config.words import suggest, unknown
from vibeserve.errors import SpecError

DEFAULT_NAME = "mine"
NAME_FORM = r"[A-Za-z0-9][A-Za-z0-9_-]*"


@dataclass(frozen=True, kw_only=True)
class Answers:
    """The defaults give a target that runs on any machine: a small real model on this CPU."""

    model: str = "smollm2_135m"
    hardware: str = "cpu"
    workload: str = "chat"
    goal: str = "output_throughput:1.5x:competent"
    budget: str = "small"


QUESTIONS: dict[str, str] = {
    "model": "which model",
    "hardware": "which hardware",
    "workload": "what is asked of it",
    "goal": "what to reach (METRIC:1.5x:BASELINE, METRIC:300ms, METRIC:4GiB or METRIC:2/s)",
    "budget": "how long to search",
}
GROUPS = ("model", "hardware", "workload", "budget")
"""answers that name an option of a group"""


@dataclass(frozen=True, kw_only=True)
class GoalAnswer:
    """One goal as its fields: `metric`, perhaps `load`, one bound, and `against` where the bound is a ratio."""

    metric: str
    bound: str
    value: str
    load: str = ""
    against: str = ""

    def line(self) -> str:
        """The goal as one line of a target file."""
        parts = [f"metric: {self.metric}", f"load: {self.load}" if self.load else "", f"{self.bound}: {self.value}"]
        parts.append(f"against: {self.against}" if self.against else "")
        return "{" + ", ".join(part for part in parts if part) + "}"


UNITS = {"x": "min_ratio", "ms": "max_ms", "gib": "max_gib", "/s": "min_per_s"}
"""end of a goal's value -> field of the goal"""

GOAL_FORM = re.compile(
    r"(?P<metric>[a-z0-9_]+)(@(?P<load>[\w.]+))?:(?P<value>\d+(\.\d+)?)\s*(?P<unit>x|ms|gib|/s)(:(?P<against>\w+))?",
    flags=re.IGNORECASE,
)


def parse_goal(text: str) -> GoalAnswer:
    """`ttft_p50@c4:300ms` and the like. What the metric and the load may be is the check's to say."""
    found = GOAL_FORM.fullmatch(text.strip())
    if found is None:
        raise SpecError(
            f"--goal '{text}' is not a goal",
            problems=["valid: METRIC[@LOAD]:VALUE, a value being 1.5x:BASELINE, 300ms, 4GiB or 2/s"],
            hint="for example --goal output_throughput:1.5x:competent --goal ttft_p50@c4:300ms",
        )
    bound = UNITS[found["unit"].lower()]
    if (bound == "min_ratio") != bool(found["against"]):
        problem = "a ratio names what it is against" if bound == "min_ratio" else "only a ratio is against something"
        hint = "for example --goal output_throughput:1.5x:competent"
        raise SpecError(f"--goal '{text}' is not a goal", problems=[problem], hint=hint)
    return GoalAnswer(
        metric=found["metric"], load=found["load"] or "", bound=bound, value=found["value"],
        against=found["against"] or "",
    )  # fmt: skip


def check_name(name: str) -> None:
    """SpecError for a name that cannot stand behind `+target=`."""
    if not re.fullmatch(NAME_FORM, name):
        cleaned = re.sub(r"[^A-Za-z0-9_-]+", "_", Path(name).name.removesuffix(".yaml")).strip("_-")
        raise SpecError(
            f"'{name}' cannot be a target's name",
            problems=["valid: letters, digits, _ and -, beginning with a letter or a digit"],
            hint=f"vibeserve init {cleaned or DEFAULT_NAME}",
        )


def check_options(given: dict[str, str], *, root: Path) -> None:
    """SpecError that lists every given option that its group does not have."""
    options = group_options(root)
    wrong = [
        f"--{group}: {unknown(group, value, options[group])}"
        for group, value in given.items()
        if group in options and value not in options[group]
    ]
    if wrong:
        raise SpecError("options are not valid", problems=wrong, hint="conf/GROUP/NAME.yaml adds an option of your own")


def ask(given: dict[str, str], *, root: Path, read: Callable[[str], str], say: Callable[[str], None]) -> dict[str, str]:
    """One question for everything that is not given. An empty answer takes the default, a wrong one is asked again."""
    options = group_options(root)
    defaults = {item.name: str(item.default) for item in fields(Answers)}
    answers = dict(given)
    for name, question in QUESTIONS.items():
        if name in answers:
            continue
        if name in GROUPS:
            say(f"{name}: {', '.join(options[name])}")
        answers[name] = _ask_one(name, question, defaults[name], options=options.get(name, []), read=read, say=say)
    return answers


def _ask_one(
    name: str,
    question: str,
    default: str,
    *,
    options: list[str],
    read: Callable[[str], str],
    say: Callable[[str], None],
) -> str:
    while True:
        answer = read(f"{question}? [{default}] ").strip() or default
        if name == "goal":
            try:
                parse_goal(answer)
            except SpecError as error:
                say(f"  {error.problems[0]}")
                continue
            return answer
        if answer in options:
            return answer
        say(f"  no {name} '{answer}'{suggest(answer, options)}")
