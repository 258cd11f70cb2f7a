"""The built-in contract of text models: completions, streamed, judged on the served token ids."""

from __future__ import annotations

from vibeserve.modalities.probes import ProbeSuite

PROBES = ProbeSuite(
    program="vibeserve.modalities.text.probes",
    checks=(
        "health",
        "live",
        "metrics",
        "models",
        "completion",
        "stream_equals_whole",
        "max_tokens",
        "token_id_prompt",
        "stop_string",
        "chat",
        "chat_stream_equals_whole",
        "chat_text",
        "seeded_sampling",
        "top_p",
        "sampling",
        "sampling_unseeded",
        "sampling_temperature",
        "sampling_top_p",
        "sampling_logprobs",
        "num_choices",
        "declared_parameters",
        "logprobs",
        "long_prompt",
        "prompt_start_matters",
        "long_context",
        "shared_prefixes",
        "a_b_a",
        "disconnect",
        "bad_request",
        "unknown_model",
        "request_id",
        "json_schema",
        "prediction",
        "prediction_usage",
        "prediction_errors",
    ),
)
"""in the order in which they run"""
