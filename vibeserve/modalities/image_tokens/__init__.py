"""The built-in contract of images drawn token by token: a prompt to codes under guidance, codes to one picture.

What does not depend on how an image is drawn is that of `vibeserve.modalities.image`.
"""

from __future__ import annotations

from vibeserve.modalities.probes import ProbeSuite

PROBES = ProbeSuite(
    program="vibeserve.modalities.image_tokens.probes",
    checks=(
        "health",
        "live",
        "metrics",
        "models",
        "repeats",
        "a_b_a",
        "concurrent",
        "own_size",
        "far_seeds",
        "temperatures",
        "guidance",
        "prompts",
        "token_ids",
        "told_seed",
        "bad_requests",
        "disconnect",
        "unknown_model",
        "unknown_route",
        "request_id",
    ),
)
"""in the order in which they run"""
