"""Places that make a SpecError and that the table of this folder does not reach: which test makes each of them.

No command line reaches them without a real run, an artifact or a broken installation, or the part that owns them has a
table of its own.
"""

from __future__ import annotations

ELSEWHERE: dict[str, str] = {}
"""place (`error_sites.Site.name`) -> test file"""
