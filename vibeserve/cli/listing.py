"""`vibeserve list`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from vibeserve.arguments import VerbParser
from vibeserve.cli.output import write, write_json, write_table

if TYPE_CHECKING:
    from vibeserve.hardware import HardwareFacts
    from vibeserve.spec import Spec

MAX_REASON_CHARS = 72
"""of the text table; `--json` has every reason whole"""


def main(argv: list[str]) -> int:
    """List the targets that can be named here."""
    parser = VerbParser("list", description="Targets that can be named here, and whether they run on this machine.")
    arguments = parser.parse_args(argv)
    rows = target_rows(Path.cwd())
    if arguments.is_json:
        write_json(rows)
    elif not rows:
        write("no targets here; add targets/NAME.yaml")
    else:
        head = ("target", "model", "hardware", "workload", "twin", "runs here")
        write_table([head, *(_cells(row) for row in rows)])
    return 0


def target_rows(cwd: Path) -> list[dict[str, Any]]:
    """One document per target. A target that does not compose is listed too: `why_not` says what is wrong with it."""
    from vibeserve.config import check_target, list_targets
    from vibeserve.hardware import probe

    facts = probe()
    rows = []
    for target in list_targets(cwd):
        check = check_target(target, cwd=cwd)
        row: dict[str, Any] = {"schema_version": 1, "name": target.name, "origin": target.origin}
        row["path"] = str(target.path)
        spec = check.spec
        row["model"] = spec.model.id if spec else None
        row["hardware"] = _hardware(spec) if spec else None
        row["workload"] = spec.workload.kind if spec else None
        row["modality"] = spec.model.modality.name if spec else None
        row["twin"] = spec.target.twin if spec else None
        row["description"] = spec.target.description if spec else None
        reasons = why_not_here(spec, facts=facts) if spec else [check.errors[0]]
        rows.append({**row, "runnable_here": not reasons, "why_not": "; ".join(reasons)})
    return rows


def why_not_here(spec: Spec, *, facts: HardwareFacts) -> list[str]:
    """Everything that would end a run of `spec` on the machine of `facts` before anything is spent; empty = it runs."""
    from vibeserve.baselines.presence import required_texts
    from vibeserve.hardware import mismatch
    from vibeserve.plan.placement import obstacles_of

    elsewhere = mismatch(spec.hardware, facts)
    others = [obstacle.text for obstacle in obstacles_of(spec, facts, hosts=()) if obstacle.kind != "host"]
    # what is installed here says nothing of a machine elsewhere
    return [elsewhere, *others] if elsewhere else [*others, *required_texts(spec)]


def _hardware(spec: Spec) -> str:
    hardware = spec.hardware
    return hardware.name if hardware.count == 1 else f"{hardware.count} x {hardware.name}"


def _cells(row: dict[str, Any]) -> tuple[str, ...]:
    here = "yes" if row["runnable_here"] else f"no: {_shortened(row['why_not'])}"
    known = (str(row[key] or "?") for key in ("model", "hardware", "workload"))
    return (row["name"], *known, str(row["twin"] or "-"), here)


def _shortened(text: str) -> str:
    return text if len(text) <= MAX_REASON_CHARS else text[: MAX_REASON_CHARS - 3].rsplit(" ", 1)[0] + " ..."
