"""`python -m benchmarks.cases [--only A,B] [--run] [--json] [--root DIR]`."""

from __future__ import annotations

import sys

from benchmarks.cases.command import main
from vibeserve.cli.boundary import within_boundary

sys.exit(within_boundary(main, sys.argv[1:]))
