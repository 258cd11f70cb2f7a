"""Whether a server is spread over as many ranks as its target declares."""

from __future__ import annotations

from collections.abc import Mapping

from vibeserve.core.nouns import Refusal
from vibeserve.service import Server

BUSY_S = 0.02
"""of CPU time that a rank has used while its server was probed: two ticks of the kernel's clock"""


def absent_ranks(server: Server, *, before: Mapping[int, float], wanted: int) -> list[Refusal]:
    """A refusal where fewer than `wanted` processes of its tree have computed since `before` (its CPU seconds by
    process). One rank is any server: nothing is counted then."""
    if wanted <= 1:
        return []
    after = server.cpu_by_process()
    busy = [pid for pid, seconds in after.items() if seconds - before.get(pid, 0.0) >= BUSY_S]
    if len(busy) >= wanted:
        return []
    text = (
        f"parallelism.tensor is {wanted}, and {len(busy)} of its {len(after)} processes computed while it was probed. "
        f"Valid: {wanted} ranks, each a process of the server's own tree (component tensor-parallel)"
    )
    return [Refusal(gate="ranks", reason_class="absent_rank", text=text)]
