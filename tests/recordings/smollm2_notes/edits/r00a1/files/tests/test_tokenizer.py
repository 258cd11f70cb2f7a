"""Incremental text: nothing lost, nothing split, nothing of a stop string."""

from __future__ import annotations

import random

import pytest
from runtime.interfaces import ModelConfig
from runtime.tokenizer import REPLACEMENT, Tokenizer, num_overlapping

TEXTS = (
    "plain words, and punctuation!",
    "na\u00efve caf\u00e9 \u2014 \u65e5\u672c\u8a9e\u306e\u6587\u7ae0 \U0001f600\U0001f468\u200d\U0001f467 end",
    "  leading and   inner spaces\n\n\tand lines ",
)


def pieces_of(tokenizer: Tokenizer, token_ids: list[int], *, stop: tuple[str, ...] = ()) -> list[str]:
    stream = tokenizer.detokenizer(stop)
    pieces = []
    for token_id in token_ids:
        pieces.append(stream.add(token_id))
        if stream.is_stopped:
            break
    return [*pieces, stream.flush()]


@pytest.mark.parametrize("text", TEXTS)
def test_pieces_add_up_and_hold_whole_characters(tokenizer: Tokenizer, text: str) -> None:
    token_ids = tokenizer.encode(text)
    pieces = pieces_of(tokenizer, token_ids)
    assert "".join(pieces) == tokenizer.decode(token_ids)
    if REPLACEMENT not in tokenizer.decode(token_ids):
        assert not any(REPLACEMENT in piece for piece in pieces)


def test_any_ids_add_up(tokenizer: Tokenizer, config: ModelConfig) -> None:
    draw = random.Random(0)
    for _ in range(200):
        token_ids = [draw.randrange(config.vocab_size) for _ in range(draw.randrange(1, 24))]
        assert "".join(pieces_of(tokenizer, token_ids)) == tokenizer.decode(token_ids)


@pytest.mark.parametrize("stop", ["word", "s, a", "punctuation!", "p"])
def test_text_ends_before_the_stop_string(tokenizer: Tokenizer, stop: str) -> None:
    text = tokenizer.decode(tokenizer.encode(TEXTS[0]))
    pieces = pieces_of(tokenizer, tokenizer.encode(TEXTS[0]), stop=(stop, "absent"))
    assert "".join(pieces) == text[: text.index(stop)]


def test_the_first_of_several_stop_strings_counts(tokenizer: Tokenizer) -> None:
    text = tokenizer.decode(tokenizer.encode(TEXTS[0]))
    pieces = pieces_of(tokenizer, tokenizer.encode(TEXTS[0]), stop=("punct", "words"))
    assert "".join(pieces) == text[: text.index("words")]


def test_a_stop_string_that_only_begins_is_released_at_the_end(tokenizer: Tokenizer) -> None:
    text = tokenizer.decode(tokenizer.encode(TEXTS[0]))
    assert "".join(pieces_of(tokenizer, tokenizer.encode(TEXTS[0]), stop=("!?",))) == text


@pytest.mark.parametrize(
    ("text", "stop", "size"), [("abc", "cd", 1), ("abab", "abac", 2), ("xyz", "a", 0), ("ab", "ab", 0), ("", "ab", 0)]
)
def test_overlap(text: str, stop: str, size: int) -> None:
    assert num_overlapping(text, stop) == size


def test_chat_messages_become_one_prompt(tokenizer: Tokenizer) -> None:
    ids = tokenizer.render_chat([{"role": "user", "content": "hello"}])
    longer = tokenizer.render_chat([{"role": "user", "content": "hello hello"}])
    assert 0 < len(ids) < len(longer)
