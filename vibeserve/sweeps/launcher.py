"""`python -m vibeserve.sweeps.launcher FOLDER PARENT`: the process in which Hydra's launcher runs a sweep's jobs.

A process of its own, because of what launchers do to signals, threads and exits: Ray installs handlers, a broken pool
raises. `warden` starts it and cleans up behind it.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from vibeserve.config.sweep import launch_jobs
from vibeserve.core.children import die_with_parent
from vibeserve.core.signals import terminable
from vibeserve.errors import VibeServeError
from vibeserve.sweeps.documents import INTERRUPTED, read_sweep
from vibeserve.sweeps.supervise import sweep_job

RAY_DEFAULTS = {"RAY_worker_niceness": "0", "RAY_USAGE_STATS_ENABLED": "0"}
"""Ray runs its workers at nice 15: whatever else runs on the machine would win against a server that is measured. And
it reports usage to its makers."""


def main(folder: Path) -> int:
    """Exit code: 0 when the launcher ran all jobs, however they ended."""
    for name, value in RAY_DEFAULTS.items():
        os.environ.setdefault(name, value)
    try:
        launch_jobs(read_sweep(folder).overrides, folder=folder, job=sweep_job)
    except KeyboardInterrupt:
        return INTERRUPTED
    except VibeServeError as error:
        sys.stderr.write(f"{error}\n")
        return error.exit_code
    return 0


if __name__ == "__main__":
    die_with_parent(int(sys.argv[2]))
    with terminable():
        sys.exit(main(Path(sys.argv[1])))
