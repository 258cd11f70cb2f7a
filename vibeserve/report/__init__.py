"""`report.html`: one self-contained page drawn from the manifest."""

from __future__ import annotations

from vibeserve.report.page import render_report

__all__ = ["render_report"]
