"""Child process: probe a served API with the stock `openai` client; a `ProbeReport` on stdout.

`python -m vibeserve.accuracy.probes --base-url URL --model-dir DIR --seed N --timeout-s S`
"""

from __future__ import annotations

import argparse
import http.client
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import httpx2
import openai

from vibeserve.accuracy.probe_checks import CHECK_FUNCTIONS
from vibeserve.accuracy.probe_session import ProbeFailure, ProbeSession
from vibeserve.accuracy.probing import CHECKS, ProbeCheck, ProbeReport
from vibeserve.core.documents import canonical_json

MALFORMED = (AttributeError, IndexError, KeyError, RecursionError, TypeError, ValueError)
"""what reading an answer of another shape raises"""


def main(argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m vibeserve.accuracy.probes")
    parser.add_argument("--base-url", required=True)
    parser.add_argument("--model-dir", required=True, type=Path)
    parser.add_argument("--seed", required=True, type=int)
    parser.add_argument("--timeout-s", required=True, type=float)
    options = parser.parse_args(argv)
    deadline_s = time.monotonic() + options.timeout_s
    session = ProbeSession(options.base_url, model_dir=options.model_dir, seed=options.seed, deadline_s=deadline_s)
    checks = tuple(_run(name, session, deadline_s=deadline_s) for name in CHECKS)
    sys.stdout.write(canonical_json(ProbeReport(checks=checks)) + "\n")
    return 0


def _run(name: str, session: ProbeSession, *, deadline_s: float) -> ProbeCheck:
    started_s = time.monotonic()
    if started_s >= deadline_s:
        return ProbeCheck(name=name, ok=False, detail="not run: the probes' time was over")
    detail = _detail(name, session)
    return ProbeCheck(name=name, ok=not detail, detail=detail, wall_s=round(time.monotonic() - started_s, 3))


def _detail(name: str, session: ProbeSession) -> str:
    """Empty when the check holds."""
    try:
        CHECK_FUNCTIONS[name](session)
    except ProbeFailure as error:
        return str(error)
    except openai.APIStatusError as error:
        return f"answered {error.status_code}: {str(error.message)[:200]}"
    except openai.OpenAIError as error:
        return f"{type(error).__name__}: {str(error)[:200]}"
    except (OSError, http.client.HTTPException, httpx2.HTTPError) as error:
        # the client wraps what fails while connecting, not what fails in the middle of a stream
        return f"no answer: {type(error).__name__}"
    except MALFORMED as error:
        return f"answer of another shape: {type(error).__name__}: {str(error)[:200]}"
    return ""


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
