"""`python -m benchmarks.overhead [--json] [--rounds 1,10,100,1000,10000] [--run DIR]`."""

from __future__ import annotations

import sys

from benchmarks.overhead.command import main
from vibeserve.cli.boundary import within_boundary

sys.exit(within_boundary(main, sys.argv[1:]))
