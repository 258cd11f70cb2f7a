"""What is right: the model in transformers. Greedy text by itself, and scores of what a server returned.

This is the built-in reference of text models; it is here to be looked at and changed. `TextReference.run` writes greedy
text, `score` runs the model over the served tokens and says how far each is from the best one.
"""

from __future__ import annotations

from vibeserve.modalities.text import reference
from vibeserve.modalities.text.reference import TextReference


def load(path: str, device: str, dtype: str) -> TextReference:
    """The model in folder `path`; `dtype` is float32 for what is right, bfloat16 for honest noise."""
    return reference.load(path, device, dtype)
