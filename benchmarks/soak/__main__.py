"""`python -m benchmarks.soak [--requests N] [--components A,B] [--artifact DIR] [--json]`."""

from __future__ import annotations

import sys

from benchmarks.soak.command import main
from vibeserve.cli.boundary import within_boundary

sys.exit(within_boundary(main, sys.argv[1:]))
