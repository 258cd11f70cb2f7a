"""Child process: probe a served API of text with the stock `openai` client (`python -m ... JOB.json`).

Reads a `ProbeJob`, prints a `ProbeReport`. The reference is loaded beside the first checks: sampling is held to its
distribution.
"""

from __future__ import annotations

import http.client
import sys
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import httpx2
import openai

from vibeserve.core.documents import canonical_json, read_document
from vibeserve.errors import ContractError
from vibeserve.modalities.probe_http import ProbeFailure
from vibeserve.modalities.probe_run import MALFORMED, run_check, shape_text
from vibeserve.modalities.probes import ProbeCheck, ProbeJob, ProbeReport
from vibeserve.modalities.text import PROBES
from vibeserve.modalities.text.probe_checks import CHECK_FUNCTIONS
from vibeserve.modalities.text.probe_known import prepare_known
from vibeserve.modalities.text.probe_session import ProbeSession


def main(argv: Sequence[str]) -> int:
    job = read_document(Path(argv[0]), ProbeJob)
    deadline_s = time.monotonic() + job.timeout_s
    session = ProbeSession(
        job.base_url, bundle=job.bundle, seed=job.seed, deadline_s=deadline_s, is_thorough=job.is_thorough
    )
    prepare_known(session)
    checks = tuple(run_check(name, partial(_detail, name, session), deadline_s=deadline_s) for name in PROBES.checks)
    session.end()
    sys.stdout.write(canonical_json(_report(session, checks)) + "\n")
    return 0


def _report(session: ProbeSession, checks: tuple[ProbeCheck, ...]) -> ProbeReport:
    """Without a reference nothing is said about the server: the target's own file is to blame, or the machine."""
    try:
        session.loading.result()
    except ContractError as error:
        return ProbeReport(problem=str(error).splitlines()[0])
    return ProbeReport(checks=checks)


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
        return shape_text(error)
    return ""


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
