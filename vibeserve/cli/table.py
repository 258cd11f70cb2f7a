"""Every verb: its name, where it lives, what it does. Data only: the front reads it before anything is imported."""

from __future__ import annotations

VERBS: tuple[tuple[str, str, str], ...] = (
    ("init", "vibeserve.cli.initialising:main", "write a first target: a file from answers, a folder from a model"),
    ("list", "vibeserve.cli.listing:main", "targets that can be named here, and whether they run on this machine"),
    ("check", "vibeserve.cli.checking:main", "validate target files, with file:line:column for every fault"),
    ("schema", "vibeserve.cli.schemas:main", "JSON Schema of targets and other files, for editors and programs"),
    ("plan", "vibeserve.cli.planning:main", "what a target would do and cost; spends nothing"),
    ("doctor", "vibeserve.cli.doctor:main", "what this machine offers, and what is missing"),
    ("status", "vibeserve.cli.status:main", "how far runs are, what they found and cost; --watch: live"),
    ("inbox", "vibeserve.cli.inbox:main", "answer what a run asks of a person or another tool (agents=external)"),
    ("steer", "vibeserve.cli.steering:main", "pause, stop, constrain or change a run while it searches"),
    ("backlog", "vibeserve.cli.ideas:backlog", "ideas of a run: what was tried, parked or given up"),
    ("note", "vibeserve.cli.ideas:note", "notes that the planner of a run reads"),
    ("serve", "vibeserve.artifact.commands:serve", "start the runtime of an artifact"),
    ("verify", "vibeserve.artifact.commands:verify", "re-check the claim of an artifact"),
    ("upgrade", "vibeserve.upgrading.command:main", "certify a runtime for another model, driver or machine"),
    ("sign", "vibeserve.artifact.commands:sign", "sign an artifact with an OpenSSH key"),
    ("report", "vibeserve.report.commands:main", "write report.html of an artifact anew, or print its verdict"),
    ("compare", "vibeserve.comparison.commands:main", "artifacts side by side, each beside its own baselines"),
    ("audit", "vibeserve.cli.auditing:main", "try the gates: the exploit suite, or one runtime's folder"),
    ("skills", "vibeserve.cli.skill_library:main", "notes and components: list, check, route, extend, export, ablate"),
    ("peers", "vibeserve.baselines.cli:main", "peers to compare with: list them, install one"),
)
"""(verb, `module:function` with `function(argv: list[str]) -> int`, summary)"""

USAGE = """\
usage: vibeserve +target=NAME [GROUP=OPTION ...] [KEY=VALUE ...] [--json | --plain] [--require-goal]
       vibeserve -m +target=A,B [GROUP=X,Y ...]         every combination
       vibeserve VERB ...                               `vibeserve VERB --help`

Synthesises a serving runtime for one declared model, hardware and workload, and certifies it.

verbs:
{verbs}

options:
  -h, --help     this text
  --version      version of VibeServe
  --json         JSON instead of text (progress as JSON lines)
  --plain        lines only, on a terminal too
  --require-goal exit 3 when the result is certified but a declared goal is missed

exit codes: 0 done, 2 bad spec, 3 refused or not certified, 4 budget, 5 infrastructure, 130 interrupted
"""


def usage() -> str:
    """The text of `vibeserve --help`."""
    width = max(len(name) for name, _, _ in VERBS)
    return USAGE.format(verbs="\n".join(f"  {name:<{width}}  {summary}" for name, _, summary in VERBS))
