"""A job of a sweep that builds nothing. `budget.rounds` says how it ends; it records that it was run in `runs.txt`.

1 ends well, 2 is killed, 3 has a bug, 4 works until it is ended, 5 is refused, 6 ignores SIGTERM, 7 shows how it was
started. `PARENT` is where the real one is tied to the process that starts it.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path

from vibeserve.core.documents import read_document, write_document
from vibeserve.progress import JsonProgress
from vibeserve.sweeps.documents import EVENTS, JOB, RESULT, JobDocument, JobResult

REFUSED = JobResult(exit_code=3, text="the result is not certified", plan_id="f" * 16)
DONE = JobResult(exit_code=0, plan_id="0" * 16)


def main(folder: Path) -> None:
    overrides = read_document(folder / JOB, JobDocument).overrides
    rounds = int(dict(override.split("=", 1) for override in overrides)["budget.rounds"])
    with Path("runs.txt").open("a") as stream:
        stream.write(f"{folder.name} {rounds}\n")
    with (folder / EVENTS).open("a") as stream:
        JsonProgress(stream).event("fake", f"rounds {rounds}")
    if rounds == 2:
        os.kill(os.getpid(), signal.SIGKILL)
    if rounds == 3:
        raise ZeroDivisionError("a bug")
    if rounds in (4, 6):
        if rounds == 6:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
        (folder / "works").write_text(str(os.getpid()))
        time.sleep(600)
    if rounds == 7:
        seen = {"cwd": str(Path.cwd()), "threads": os.environ.get("OMP_NUM_THREADS"), "session": os.getsid(0)}
        (folder / "seen.json").write_text(json.dumps(seen))
    write_document(folder / RESULT, REFUSED if rounds == 5 else DONE)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
