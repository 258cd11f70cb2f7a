"""Everything that a model's API and an agent may do wrong, through the caller and the back ends that a run has."""

from __future__ import annotations

import pytest

from vibeserve.loopback.command import CLIENTS, client_version
from vibeserve.loopback.faults import CASES, fault_lines, fault_rows

DONE, INFRA = "done", "infra"
EXPECTED = {
    "a correct edit": {DONE},
    "malformed JSON, then mended": {DONE},
    "malformed JSON for ever": {"refused: unusable_output"},
    "empty answer for ever": {"refused: unusable_output", "refused: max_turns"},
    "refusal for ever": {"refused: unusable_output", "refused: max_turns"},
    "endless tool loop": {"refused: max_turns"},
    "huge output of a tool": {DONE},
    "stream cut once": {DONE},
    "stream cut for ever": {INFRA},
    "429 twice": {DONE},
    "429 for ever": {INFRA},
    "500 for ever": {INFRA},
    "error page with status 200": {INFRA},
    "wrong key": {"infra, lasting"},
    "server not there": {INFRA},
    "cap of one token": {"cap"},
    "an agent that forks a daemon": {DONE},
}
"""what a run sees; a client may ask its model once more by itself before it gives up"""
NUM_PARALLEL = 6
FREE = ("wrong key", "server not there")


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("client", CLIENTS)
def test_each_fault_has_its_outcome_and_costs_what_was_answered(client: str) -> None:
    if not client_version(client):
        pytest.skip(f"{client} is not installed")
    rows = {row.fault: row for row in fault_rows([client], num_parallel=NUM_PARALLEL)}
    assert set(rows) == set(EXPECTED) == {case.name for case in CASES}
    found = {name: row.outcome for name, row in rows.items() if row.outcome not in EXPECTED[name]}
    assert found == {}, "\n".join(fault_lines(list(rows.values())))
    assert all(rows[name].tokens == 0 for name in FREE)
    assert all(row.tokens > 0 and row.requests > 0 for name, row in rows.items() if name not in FREE)
    assert rows["cap of one token"].requests == 1, "the request in flight, and no more"
    assert all("NOT EDITED" not in row.detail for row in rows.values())
