"""Child process: fetch files of one repository of a hub; a JSON job on stdin, the commit on stdout.

Run as `python -m vibeserve.weights.hub_download`. A process of its own, because a hub's client may raise anything.
"""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

from huggingface_hub import HfApi, snapshot_download


def main() -> int:
    job = json.load(sys.stdin)
    # without a revision the newest commit is looked up, so that the target can pin it
    revision = job["revision"] or HfApi().model_info(job["id"]).sha
    destination = Path(job["destination"])
    snapshot_download(job["id"], revision=revision, allow_patterns=job["patterns"], local_dir=destination)
    shutil.rmtree(destination / ".cache", ignore_errors=True)
    sys.stdout.write(json.dumps({"revision": revision}) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
