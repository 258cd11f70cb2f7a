"""Re-tokenised counting against chunks that lie about tokens."""

from __future__ import annotations

from load_samples import PIECES, reply, word_tokenizer

from vibeserve.modalities.text.tokens import count_tokens, token_arrivals


def arrivals(chunks: list[tuple[float, str]]) -> tuple[float, ...]:
    return token_arrivals([reply(chunks)], tokenizer=word_tokenizer())[0]


def test_one_token_per_chunk_arrives_with_its_chunk() -> None:
    assert arrivals([(1.0, " the"), (2.0, " quick"), (3.0, " fox")]) == (1.0, 2.0, 3.0)


def test_many_tokens_in_one_chunk_arrive_together() -> None:
    assert arrivals([(1.0, " the"), (2.0, " quick brown fox")]) == (1.0, 2.0, 2.0, 2.0)


def test_a_token_split_over_chunks_arrives_with_its_last_piece() -> None:
    assert arrivals([(1.0, " th"), (2.0, "e"), (3.0, " quick")]) == (2.0, 3.0)


def test_empty_chunks_and_chunk_numbers_count_nothing() -> None:
    assert arrivals([(0.5, ""), (1.0, " the"), (1.5, ""), (2.0, " quick")]) == (1.0, 2.0)
    assert arrivals([]) == ()


def test_a_character_of_several_byte_tokens_arrives_whole() -> None:
    times = arrivals([(1.0, " the"), (2.0, " \N{SNOWMAN}")])
    assert times[0] == 1.0
    assert len(times) > 2, "the snowman is several byte tokens here"
    assert set(times[1:]) == {2.0}


def test_counting_ignores_what_the_server_claims() -> None:
    sample = reply([(float(k), piece) for k, piece in enumerate(PIECES)])
    assert count_tokens(sample, tokenizer=word_tokenizer()) == len(PIECES)


def test_a_chunk_that_arrives_out_of_order_never_moves_time_back() -> None:
    assert arrivals([(2.0, " the"), (1.0, " quick")]) == (2.0, 2.0)
