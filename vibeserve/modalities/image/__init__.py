"""The built-in contract of images: a prompt to one picture by flow matching, latents and pixels judged."""

from __future__ import annotations

from vibeserve.modalities.probes import ProbeSuite

PROBES = ProbeSuite(
    program="vibeserve.modalities.image.probes",
    checks=(
        "health",
        "live",
        "metrics",
        "models",
        "repeats",
        "a_b_a",
        "concurrent",
        "sizes",
        "seeds",
        "steps",
        "guidance",
        "prompts",
        "latents",
        "default_seed",
        "bad_requests",
        "disconnect",
        "unknown_model",
        "unknown_route",
        "request_id",
    ),
)
"""in the order in which they run"""
