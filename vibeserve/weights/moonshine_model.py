"""Moonshine's own files as a transformers model with its tokenizer. Child process only."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from tokenizers import AddedToken, Tokenizer, decoders, models
from transformers import MoonshineConfig, MoonshineForConditionalGeneration, PreTrainedTokenizerFast

from vibeserve.errors import WeightsError
from vibeserve.weights.moonshine_files import read_moonshine

TOKENIZER_FILE = "tokenizer.bin"
FIRST_BYTE, NUM_BYTES = 3, 256
"""ids of single bytes, which a piece may be spelt as"""
SPACE = "\u2581"
CONTINUED = 128
"""lengths from here on take a second byte: the first one less this, plus this many times the second"""


def load_moonshine(folder: Path) -> tuple[Any, Any]:
    """Model (f32) and tokenizer. WeightsError where the files are not those of the tiny model."""
    tensors = {name: torch.from_numpy(values.copy()) for name, values in read_moonshine(folder).items()}
    model = MoonshineForConditionalGeneration(MoonshineConfig()).eval()
    expected = model.state_dict()
    wrong = [name for name in expected if name not in tensors or tensors[name].shape != expected[name].shape]
    if wrong:
        told = f"{len(wrong)} of {len(expected)} tensors are missing or of another size, such as {wrong[0]}"
        raise WeightsError(f"{folder}: {told}")
    model.load_state_dict({name: tensors[name] for name in expected})
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer_of(read_pieces(folder / TOKENIZER_FILE)), bos_token="<s>", eos_token="</s>",
        unk_token="<unk>", clean_up_tokenization_spaces=False,
    )  # fmt: skip
    return model, tokenizer


def read_pieces(path: Path) -> list[bytes]:
    """Pieces by token id. WeightsError for a file that ends in the middle of one."""
    data, pieces, place = path.read_bytes(), [], 0
    while place < len(data):
        length, place = data[place], place + 1
        if length >= CONTINUED and place < len(data):
            length, place = length - CONTINUED + CONTINUED * data[place], place + 1
        pieces.append(data[place : place + length])
        place += length
    if place != len(data) or len(pieces) < FIRST_BYTE + NUM_BYTES:
        raise WeightsError(f"{path}: is no list of token pieces")
    return pieces


def tokenizer_of(pieces: list[bytes]) -> Tokenizer:
    """A tokenizer that decodes: pieces with their spaces, and bytes. It has no merges, so it cannot encode."""
    names = [piece.decode(errors="replace") for piece in pieces]
    for number in range(NUM_BYTES):
        names[FIRST_BYTE + number] = f"<0x{number:02X}>"
    seen: set[str] = set()
    for number, name in enumerate(names):
        names[number] = name if name not in seen else f"<repeated_{number}>"
        seen.add(names[number])
    vocabulary = {name: number for number, name in enumerate(names)}
    tokenizer = Tokenizer(models.BPE(vocabulary, [], unk_token="<unk>", byte_fallback=True))
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace(SPACE, " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    special = [name for name in names if name in ("<unk>", "<s>", "</s>") or name.startswith("<<ST_")]
    tokenizer.add_special_tokens([AddedToken(name, special=True, normalized=False) for name in special])
    return tokenizer
