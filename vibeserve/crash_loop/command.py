"""`invoke crash-loop`: kill runs where it hurts, start them again, say what that cost."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from vibeserve.arguments import VerbParser
from vibeserve.core.children import adopt_orphans
from vibeserve.core.documents import to_data
from vibeserve.core.paths import lease_dir
from vibeserve.core.signals import terminable
from vibeserve.crash_loop.lives import Project
from vibeserve.crash_loop.loop import Setting, Tally, kill_at_appends, kill_at_random
from vibeserve.crash_loop.script import one_round
from vibeserve.errors import SpecError
from vibeserve.loopback.server import ScriptedServer

AGENTS = ("scripted", "playbook")
FAST = (
    "evaluation.clock=fake", "evaluation.window_scale=0.02", "evaluation.num_rescored=4", "budget.rounds=1",
    "budget.attempts=1", "budget.wall_s=36000",
)  # fmt: skip
"""of the deterministic run: its decisions come from declared factors, so its windows may be short"""
REAL = ("evaluation.clock=real", "evaluation.window_scale=1", "budget.wall_s=36000")


def main(argv: Sequence[str]) -> int:
    """Command line of `invoke crash-loop`. Exit code 3 where something was lost, repeated or left behind."""
    arguments = _parser().parse_intermixed_args(argv)
    if arguments.points < 0 or arguments.real < 0 or arguments.within <= 0:
        raise SpecError("crash-loop: --points and --real are numbers from 0 on, --within is above 0 s")
    adopt_orphans()
    say = _quiet if arguments.is_json else _say
    with TemporaryDirectory(prefix="vibeserve-crash-") as scratch:
        root = Path(arguments.keep).resolve() if arguments.keep else Path(scratch)
        request = Request(
            target=arguments.target, agents=arguments.agents, overrides=tuple(arguments.overrides), root=root,
            is_real=arguments.real > 0,
        )  # fmt: skip
        # ended politely, it ends the run that it is watching
        with terminable(), made_setting(request, say=say) as setting:
            if arguments.real:
                tally = kill_at_random(
                    setting, num_kills=arguments.real, within_s=arguments.within, seed=arguments.seed
                )
            else:
                tally = kill_at_appends(setting, num_points=arguments.points, seed=arguments.seed)
    sys.stdout.write(json.dumps(document(tally), indent=2) + "\n" if arguments.is_json else text(tally))
    return 0 if tally.is_clean else 3


def _parser() -> VerbParser:
    parser = VerbParser(
        "crash-loop", is_task=True, description="Kill runs at every append of their journal, or at random times."
    )
    parser.add_argument("--target", default="tiny_cpu", help="target to build (default: tiny_cpu)")
    parser.add_argument("--points", type=int, default=0, metavar="N", help="so many of the kills (default: all)")
    parser.add_argument("--real", type=int, default=0, metavar="N", help="N kills of real runs, at random times")
    parser.add_argument("--within", type=float, default=60.0, metavar="S", help="a real life ends within S s (60)")
    parser.add_argument("--seed", type=int, default=1, help="of what is drawn")
    parser.add_argument(
        "--agents", choices=AGENTS, default=AGENTS[0],
        help="a scripted model on loopback, whose requests are counted, or the playbook",
    )  # fmt: skip
    parser.add_argument("--keep", metavar="DIR", help="keep the projects in DIR")
    parser.add_argument("overrides", nargs="*", metavar="OVERRIDE", help="further overrides of the runs")
    return parser


@dataclass(frozen=True, kw_only=True)
class Request:
    """What is to be killed."""

    target: str
    agents: str
    overrides: tuple[str, ...]
    root: Path
    is_real: bool

    def words(self, *agents: str) -> list[str]:
        return [f"+target={self.target}", *(REAL if self.is_real else FAST), *agents, *self.overrides]

    @property
    def leases(self) -> Path:
        """Real runs measure, so they queue with everyone; the others must not make anybody wait."""
        return lease_dir() if self.is_real else self.root / "leases"


@contextmanager
def made_setting(request: Request, *, say: Callable[[str], None]) -> Iterator[Setting]:
    """The model where there is one, and projects that ask it."""
    if request.agents == "playbook":
        yield _setting(request, request.words(), asked=list, say=say)
        return
    with ScriptedServer(script=one_round) as server:
        seen = 0

        def asked() -> list[str]:
            nonlocal seen
            keys = [logged.key for logged in server.requests if logged.step is not None]
            seen, fresh = len(keys), keys[seen:]
            return fresh

        words = request.words("agents=openai", f"agents.base_url={server.base_url}", "agents.model=scripted")
        yield _setting(request, words, asked=asked, say=say)


def _setting(
    request: Request, words: list[str], *, asked: Callable[[], list[str]], say: Callable[[str], None]
) -> Setting:
    environment = {
        "VIBESERVE_LEASES": str(request.leases), "OPENAI_API_KEY": "sk-loopback", "PYTHONUNBUFFERED": "1",
    }  # fmt: skip

    def make_project(name: str) -> Project:
        root = request.root / name
        shutil.rmtree(root, ignore_errors=True)
        root.mkdir(parents=True)
        return Project(root=root, words=words, environment=environment)

    return Setting(
        make_project=make_project, asked=asked, say=say,
        artifact=lambda project: project.root / "artifacts" / request.target / "latest",
    )  # fmt: skip


def document(tally: Tally) -> dict[str, Any]:
    """The counts, with what they count in words."""
    return {"schema_version": 1, **to_data(tally), "seconds": round(tally.seconds, 1)}


def text(tally: Tally) -> str:
    lines = [
        f"{tally.points} kills, {tally.resumed} resumed; lost {tally.lost}, repeated {tally.repeated}, "
        f"orphans {tally.orphans}, leases held {tally.leases}; {tally.seconds:.0f} s",
        *(f"  {problem}" for problem in tally.problems),
    ]
    return "\n".join(lines) + "\n"


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def _quiet(line: str) -> None:
    """With --json stdout holds one document."""
