"""Materialise a model: package file (GGUF), local folder, hub revision or seeded random, as one digested folder."""

from __future__ import annotations

from vibeserve.weights.cache import ModelDir, end_token_ids, load_tokenizer, materialise, model_problems, read_model_dir

__all__ = ["ModelDir", "end_token_ids", "load_tokenizer", "materialise", "model_problems", "read_model_dir"]
