"""The prefix cache: what it finds, and what it drops."""

from __future__ import annotations

from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sample_wire.demo.engine import EngineSettings
from sample_wire.demo.engine.cache import PrefixCache
from sample_wire.demo.engine.model import KVState

SETTINGS: Final = EngineSettings(num_layers=1, hidden_size=4, num_heads=2)
# Few ids, so that sequences share prefixes by chance.
SEQUENCES: Final = st.lists(st.integers(0, 1), min_size=1, max_size=6)


def state_of(ids: list[int]) -> KVState:
    state = KVState(SETTINGS, len(ids))
    state.ids = ids
    return state


def found(cache: PrefixCache, prompt: list[int]) -> int:
    state = KVState(SETTINGS, len(prompt))
    num_tokens = cache.fill(state, prompt)
    assert state.ids == prompt[:num_tokens]
    return num_tokens


def shared(one: list[int], other: list[int]) -> int:
    pairs = zip(one, other, strict=False)
    return next((at for at, (a, b) in enumerate(pairs) if a != b), min(len(one), len(other)))


@given(st.lists(SEQUENCES, max_size=8), SEQUENCES)
def test_the_longest_known_prefix_is_found(kept: list[list[int]], prompt: list[int]) -> None:
    cache = PrefixCache(1000)
    for ids in kept:
        cache.keep(state_of(ids))
    assert found(cache, prompt) == max((shared(ids, prompt[:-1]) for ids in kept), default=0)


def test_the_last_token_of_a_prompt_is_never_taken_from_the_cache() -> None:
    cache = PrefixCache(1000)
    cache.keep(state_of([1, 2, 3, 4]))
    assert found(cache, [1, 2, 3]) == 2


def test_the_least_used_are_dropped_first() -> None:
    cache = PrefixCache(9)
    for first in (1, 2, 3):
        cache.keep(state_of([first, 0, 0]))
    assert found(cache, [1, 0, 0, 9]) == 3  # used again: the oldest is now 2
    cache.keep(state_of([4, 0, 0]))
    assert [found(cache, [first, 0, 0, 9]) for first in (1, 2, 3, 4)] == [3, 0, 3, 3]


def test_a_longer_state_takes_the_place_of_its_prefixes() -> None:
    cache = PrefixCache(7)
    cache.keep(state_of([9, 9]))
    for size in range(1, 6):
        cache.keep(state_of([1, 2, 3, 4, 5][:size]))
    assert found(cache, [9, 9, 0]) == 2
    assert found(cache, [1, 2, 3, 4, 5, 0]) == 5


@pytest.mark.parametrize("max_tokens", [0, 2])
def test_what_has_no_room_is_not_kept(max_tokens: int) -> None:
    cache = PrefixCache(max_tokens)
    cache.keep(state_of([1, 2, 3]))
    assert found(cache, [1, 2, 3, 4]) == 0


def test_a_state_that_is_kept_holds_no_room_for_tokens_that_never_came() -> None:
    """A conversation without a limit has room for the whole context while it is generated."""
    state = KVState(SETTINGS, 100_000)
    state.ids = [1, 2, 3]
    PrefixCache(9).keep(state)
    small = KVState(SETTINGS, 3)
    for name in ("keys_LHNC", "values_LHNC", "routed_NLK"):
        kept = getattr(state, name)
        assert kept.base is None
        assert kept.shape == getattr(small, name).shape
