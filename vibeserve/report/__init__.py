"""`report.html` and `VERDICT.md`: self-contained pages drawn from the manifest."""

from __future__ import annotations

from vibeserve.report.page import render_report
from vibeserve.report.profile import ProfileRow
from vibeserve.report.verdict import render_verdict

__all__ = ["ProfileRow", "render_report", "render_verdict"]
