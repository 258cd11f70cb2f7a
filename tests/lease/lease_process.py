"""A run of its own process for the tests of leases: it takes a lease in a mode, writes when it had it, and ends.

`python lease_process.py ROOT RUN MODE HOLD_S NUM_TIMES` prints `has MODE START` and `left MODE END` lines, times of the
monotonic clock, which all processes share.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

from vibeserve.lease import Device, DeviceLease, Timing
from vibeserve.progress import LineProgress

TIMING = Timing(beat_s=0.05, poll_s=0.02, expiry_s=30.0)
CPU = Device(name="cpu", title="the CPU")


def tell(*words: object) -> None:
    sys.stdout.write(" ".join(map(str, words)) + "\n")
    sys.stdout.flush()


def main(root: str, run: str, mode: str, hold_s: float, num_times: int) -> None:
    lease = DeviceLease([CPU], root=Path(root), run=run, progress=LineProgress(sys.stderr), timing=TIMING)
    with lease.shared("building"):
        for _ in range(num_times):
            block = lease.exclusive("measuring") if mode == "exclusive" else lease.shared("judging")
            with block:
                tell("has", mode, time.monotonic())
                time.sleep(hold_s)
                tell("left", mode, time.monotonic())


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3], float(sys.argv[4]), int(sys.argv[5]))
