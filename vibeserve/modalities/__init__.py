"""What is right, what is asked and how far a reply may be off: the built-in modalities, and target folders' own.

Both are written to `vibeserve.contract`, and everything else in the framework reaches them through `Bundle`.
"""

from __future__ import annotations

from vibeserve.modalities.bundle import Bundle, BundleRef, bundle_ref, open_bundle

__all__ = ["Bundle", "BundleRef", "bundle_ref", "open_bundle"]
