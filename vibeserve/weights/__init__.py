"""Materialise a model: package file (GGUF), local folder, hub revision or seeded random, as one digested folder."""

from __future__ import annotations

from vibeserve.weights.cache import ModelDir, end_token_ids, load_tokenizer, materialise, model_problems, read_model_dir
from vibeserve.weights.copied import files_of
from vibeserve.weights.packages import folder_digest

__all__ = [
    "ModelDir",
    "end_token_ids",
    "files_of",
    "folder_digest",
    "load_tokenizer",
    "materialise",
    "model_problems",
    "read_model_dir",
]
