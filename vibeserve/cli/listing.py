"""`vibeserve list`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from vibeserve.cli.output import VerbParser, write, write_json, write_table


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
        head = ("target", "model", "hardware", "workload", "runs here")
        write_table([head, *(_cells(row) for row in rows)])
    return 0


def target_rows(cwd: Path) -> list[dict[str, Any]]:
    """One document per target. A target that does not compose is listed too: `why_not` says what is wrong with it."""
    from vibeserve.config import check_target, list_targets
    from vibeserve.hardware import mismatch, probe

    facts = probe()
    rows = []
    for target in list_targets(cwd):
        check = check_target(target, cwd=cwd)
        row: dict[str, Any] = {"schema_version": 1, "name": target.name, "origin": target.origin}
        row["path"] = str(target.path)
        spec = check.spec
        row["model"] = spec.model.id if spec else None
        row["hardware"] = spec.hardware.name if spec else None
        row["workload"] = spec.workload.kind if spec else None
        row["modality"] = spec.model.modality.name if spec else None
        row["twin"] = spec.target.twin if spec else None
        why_not = mismatch(spec.hardware, facts) if spec else check.errors[0]
        rows.append({**row, "runnable_here": why_not is None, "why_not": why_not or ""})
    return rows


def _cells(row: dict[str, Any]) -> tuple[str, ...]:
    here = "yes" if row["runnable_here"] else f"no: {row['why_not']}"
    return (row["name"], *(str(row[key] or "?") for key in ("model", "hardware", "workload")), here)
