"""Files of a hub's repository, fetched by a child process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from vibeserve.errors import WeightsError

MODEL_FILES = ("*.json", "*.safetensors", "*.jinja", "*.model", "*.txt")
"""what a model needs; not the same weights again in other formats"""
TIMEOUT_S = 3600.0


def fetch_from_hub(
    model_id: str,
    *,
    revision: str,
    destination: Path,
    patterns: Sequence[str] = MODEL_FILES,
    timeout_s: float = TIMEOUT_S,
) -> str:
    """Fill `destination` with the files of one commit and return it; an empty revision means the newest one.

    Raises WeightsError (exit 5) where it cannot be had: no connection, no such repository, no access.
    """
    job = {"id": model_id, "revision": revision, "destination": str(destination), "patterns": list(patterns)}
    argv = [sys.executable, "-m", "vibeserve.weights.hub_download"]
    environment = {**os.environ, "HF_HUB_DISABLE_PROGRESS_BARS": "1"}
    what = f"fetching {model_id}{f' at revision {revision}' if revision else ''} from the hub"
    try:
        done = subprocess.run(
            argv, input=json.dumps(job), capture_output=True, text=True, env=environment, timeout=timeout_s, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise WeightsError(f"{what} did not finish in {timeout_s:.0f} s") from error
    if done.returncode != 0:
        tail = "\n".join(f"  | {line}" for line in done.stderr.strip().splitlines()[-3:])
        raise WeightsError(
            f"{what} failed\n{tail}\nnext: check the id, the revision and the connection to the hub, or use a copy"
            " of the repository in a folder (model.source.kind folder, vibeserve init NAME --from FOLDER)"
        )
    found: str = json.loads(done.stdout.strip().splitlines()[-1])["revision"]
    return found
