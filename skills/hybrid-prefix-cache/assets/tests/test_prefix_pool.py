"""The tree of extents: exact matches, eviction that spares what is read, one bound."""

from __future__ import annotations

import pytest
from runtime.prefix_pool import Extent, PrefixPool, Snapshot, num_equal

TOKEN_BYTES, SNAPSHOT_BYTES = 10, 100


@pytest.fixture
def pool() -> PrefixPool:
    return PrefixPool(max_bytes=1000, token_bytes=TOKEN_BYTES, snapshot_bytes=SNAPSHOT_BYTES)


def add(pool: PrefixPool, token_ids: list[int], *places: int, parent: Extent | None = None, start: int = 0) -> Extent:
    """A finished sequence's extent with snapshots behind `places` tokens."""
    extent = Extent(start=start, capacity=len(token_ids), parent=parent, keys={}, values={}, token_ids=list(token_ids))
    num_bytes = len(token_ids) * TOKEN_BYTES + len(places) * SNAPSHOT_BYTES
    assert pool.make_room(num_bytes, spared=parent)
    pool.add(extent)
    for place in places:
        pool.keep(extent, place, Snapshot(states={}, windows={}))
    pool.release(extent)
    return extent


def test_a_match_ends_at_a_snapshot_and_leaves_a_token(pool: PrefixPool) -> None:
    kept = add(pool, [1, 2, 3, 4, 5, 6], 2, 5)
    assert pool.match([1, 2, 3, 4, 5, 6, 7]).num_tokens == 5
    assert pool.match([1, 2, 3, 4, 9, 9]).num_tokens == 2
    assert pool.match([1, 2, 3, 4, 9, 9]).num_known == 4
    assert pool.match([1, 2, 3, 4, 5]).num_tokens == 2
    assert pool.match([1, 2, 3]).extent is kept
    assert pool.match([1, 2]).extent is None


def test_a_near_miss_matches_up_to_its_first_other_token(pool: PrefixPool) -> None:
    add(pool, [1, 2, 3, 4, 5, 6], 1, 6)
    for place in range(1, 6):
        ids = [1, 2, 3, 4, 5, 6, 7]
        ids[place] = 9
        found = pool.match(ids)
        assert (found.num_tokens, found.num_known) == (1, place)
    assert pool.match([9, 2, 3, 4, 5, 6, 7]).num_tokens == 0
    assert pool.match([2, 1, 3, 4, 5, 6, 7]).num_tokens == 0


def test_the_longest_of_several_branches_is_taken(pool: PrefixPool) -> None:
    root = add(pool, [1, 2, 3, 4], 3)
    one = add(pool, [5, 6, 7], 5, parent=root, start=3)
    other = add(pool, [5, 6, 8], 6, parent=root, start=3)
    assert pool.match([1, 2, 3, 5, 6, 8, 9]).extent is other
    assert pool.match([1, 2, 3, 5, 6, 7, 9]).extent is one
    assert pool.match([1, 2, 3, 4, 5, 6]).extent is root


def test_what_was_used_longest_ago_goes_first_and_parents_after_their_children(pool: PrefixPool) -> None:
    root = add(pool, [1] * 20, 20)
    child = add(pool, [2] * 20, 40, parent=root, start=20)
    late = add(pool, [3] * 20, 20)
    assert pool.num_bytes == 900
    pool.mark_used(child)
    assert pool.make_room(200)
    assert pool.match([3] * 21).extent is None
    assert pool.match([1] * 20 + [2] * 21).extent is child
    assert pool.make_room(800)
    assert pool.match([1] * 21).extent is None
    assert (pool.num_bytes, late.children) == (0, [])


def test_what_is_read_is_never_evicted(pool: PrefixPool) -> None:
    root = add(pool, [1] * 20, 20)
    running = Extent(start=20, capacity=30, parent=root, keys={}, values={})
    pool.add(running)
    spare = add(pool, [4] * 10, 10)
    assert not pool.make_room(600)
    assert pool.match([1] * 21).extent is root
    assert pool.match([4] * 11).extent is None
    pool.release(running)
    assert not pool.make_room(1001)
    assert (pool.num_bytes, spare.is_running) == (0, False)


def test_a_prefix_that_is_about_to_be_used_is_spared(pool: PrefixPool) -> None:
    root = add(pool, [1] * 40, 40)
    add(pool, [2] * 10, 10)
    assert not pool.make_room(600, spared=root)
    assert pool.match([1] * 41).extent is root


def test_a_tail_that_nobody_could_resume_goes_with_its_sequence(pool: PrefixPool) -> None:
    root = add(pool, [1] * 20, 20)
    before = pool.num_bytes
    add(pool, [2] * 20, parent=root, start=20)
    assert pool.num_bytes == before
    assert root.children == []


def test_shared_tokens_cannot_be_computed_again(pool: PrefixPool) -> None:
    root = Extent(start=0, capacity=10, parent=None, keys={}, values={}, token_ids=[1] * 10)
    pool.add(root)
    pool.keep(root, 5, Snapshot(states={}, windows={}))
    pool.clear(root)
    assert (pool.num_bytes, root.token_ids) == (100, [])
    root.token_ids = [1] * 10
    pool.add(Extent(start=10, capacity=1, parent=root, keys={}, values={}))
    with pytest.raises(ValueError, match="other sequences share"):
        pool.clear(root)


@pytest.mark.parametrize("place", [0, 1, 6, 7, 99])
def test_equal_beginnings_are_counted_exactly(place: int) -> None:
    one, other = list(range(100)), list(range(100))
    other[place] = -1
    assert num_equal(one, other) == place
    assert num_equal(one[10:], [5] * 10 + one[10:], offset=10) == 90
    assert num_equal(one, []) == 0
