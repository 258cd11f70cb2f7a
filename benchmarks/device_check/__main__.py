"""`python -m benchmarks.device_check --out DIR [--layers N] [--limit-s S]`."""

from __future__ import annotations

import sys

from benchmarks.device_check.command import main
from vibeserve.cli.boundary import within_boundary

sys.exit(within_boundary(main, sys.argv[1:]))
