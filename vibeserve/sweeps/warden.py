"""`python -m vibeserve.sweeps.warden FOLDER PARENT`: starts the launching process and outlives everything it leaves.

Whatever is started below it stays below it: orphans become its children (a subreaper), and it kills its whole tree
before it ends. Ray, for one, leaves agents behind when its driver is ended.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

from vibeserve.core.children import adopt_orphans, die_with_parent
from vibeserve.core.documents import write_document
from vibeserve.core.signals import terminable
from vibeserve.lease import Owner
from vibeserve.sandbox import tree
from vibeserve.sweeps.documents import INTERRUPTED, LAUNCHER

LAUNCHER_ARGV = (sys.executable, "-m", "vibeserve.sweeps.launcher")
GRACE_S = 30.0
"""for the launching process and its jobs, when the sweep's process was killed and nobody else ends them"""


def main(folder: Path) -> int:
    """Exit code of the launching process."""
    write_document(folder / LAUNCHER, Owner.myself(run="sweep"))
    launcher = subprocess.Popen([*LAUNCHER_ARGV, str(folder), str(os.getpid())])
    try:
        code = launcher.wait()
    except KeyboardInterrupt:
        tree.send(launcher.pid, signal.SIGTERM)
        try:
            launcher.wait(GRACE_S)
        except subprocess.TimeoutExpired:
            launcher.kill()
        code = INTERRUPTED
    finally:
        tree.kill_all(os.getpid())
        _reap()
    return code if code >= 0 else 128 - code


def _reap() -> None:
    """Collect what was killed: not every machine has an init that does."""
    while True:
        try:
            os.waitpid(-1, 0)
        except ChildProcessError:
            return


if __name__ == "__main__":
    die_with_parent(int(sys.argv[2]))
    adopt_orphans()
    with terminable():
        sys.exit(main(Path(sys.argv[1])))
