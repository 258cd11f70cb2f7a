"""`vibeserve upgrade ARTIFACT [OVERRIDE ...]`."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from vibeserve.arguments import VerbParser

if TYPE_CHECKING:
    from vibeserve.upgrading.upgrade import Asked, Upgrade


def main(argv: Sequence[str]) -> int:
    """Say what differs, then gate the packaged runtime under it; search only where it is refused. Exit codes are those
    of a build."""
    arguments = _parser().parse_intermixed_args(list(argv))
    from vibeserve.artifact import resolve_artifact
    from vibeserve.core.documents import to_data
    from vibeserve.core.signals import finishing, terminable
    from vibeserve.progress import LineProgress
    from vibeserve.upgrading.upgrade import ask, preview, upgrade

    asked = ask(resolve_artifact(Path(arguments.artifact)), arguments.words, expect=arguments.expect)
    # with --json the one document is on stdout, so that what it does meanwhile is told on stderr
    told = sys.stderr if arguments.is_json else sys.stdout
    told.write("".join(f"{line}\n" for line in difference_lines(asked)))
    if arguments.is_diff:
        done = preview(asked)
    else:
        with terminable(), finishing():
            done = upgrade(asked, progress=LineProgress(told))
    if arguments.is_json:
        sys.stdout.write(json.dumps(to_data(done), indent=2) + "\n")
    elif not arguments.is_diff:
        sys.stdout.write("".join(f"{line}\n" for line in outcome_lines(done)))
    return 0


def _parser() -> VerbParser:
    parser = VerbParser(
        "upgrade",
        description="Certify an artifact's runtime for another model, driver or machine; search only if it is refused.",
    )
    parser.add_argument("artifact", metavar="ARTIFACT", help="folder, such as artifacts/smollm2_cpu/latest")
    parser.add_argument("words", nargs="*", metavar="OVERRIDE", help="GROUP=OPTION or KEY=VALUE: what is another now")
    parser.add_argument(
        "--expect", metavar="DIGEST", help="SHA-256 of SHA256SUMS as the artifact's origin published it"
    )
    parser.add_argument("--diff", action="store_true", dest="is_diff", help="only say what differs; starts nothing")
    return parser


def difference_lines(asked: Asked) -> Iterator[str]:
    """Both plans, and every fact that is another now."""
    yield f"upgrade     {asked.plan.target} {asked.manifest.plan_id} ({asked.manifest.status}) -> {asked.plan.plan_id}"
    if not asked.changes:
        yield "unchanged   nothing differs from what it was certified for; vibeserve verify re-checks the claim"
    for change in asked.changes:
        yield f"changed     {change}"


def outcome_lines(done: Upgrade) -> Iterator[str]:
    """What became of it; nothing where nothing was run."""
    if done.result is None:
        return
    if done.outcome == "reused":
        calls = "no agent was asked" if not done.agent_calls else f"{done.agent_calls} calls of agents"
        yield f"reused      {done.started_from} passes every gate as it is; {calls}"
    else:
        for text in done.refused:
            yield f"refused     {text}"
        yield f"searched    from {done.started_from}: {done.rounds} rounds, {done.agent_calls} calls of agents"
    for text in done.reopened:
        yield f"reopened    {text}"
    yield str(done.result)
