"""The inputs have the shapes that the figures are stated for."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks._data import NUM_EXPERTS, SHAPES, ShapeName, plain_text, sample_of

NAMES = ["S", "M", pytest.param("P", marks=pytest.mark.heavy)]


@pytest.mark.parametrize("name", NAMES)
def test_mask_has_one_run_of_ones_a_turn(name: ShapeName) -> None:
    mask = sample_of(name, "arrays").loss_mask
    assert mask is not None
    starts = np.diff(np.concatenate(([0], mask)).astype(np.int8)) == 1
    assert int(starts.sum()) == SHAPES[name].num_turns
    assert mask.shape == (SHAPES[name].R,)


@pytest.mark.parametrize("name", NAMES)
def test_response_is_sixty_percent_of_the_tokens(name: ShapeName) -> None:
    assert round(SHAPES[name].R / SHAPES[name].T, 2) == 0.6


@pytest.mark.parametrize("name", NAMES)
def test_response_is_ascii_of_the_stated_length(name: ShapeName) -> None:
    response = sample_of(name, "arrays").response
    assert response.isascii()
    assert len(response) == SHAPES[name].num_chars


def test_plain_text_holds_nothing_to_escape() -> None:
    sample = sample_of("S", "arrays")
    plain = plain_text(sample).response
    assert len(plain) == len(sample.response)
    assert not set(plain) & set('"\\\n')


@pytest.mark.parametrize("name", ["M", pytest.param("P", marks=pytest.mark.heavy)])
def test_experts_of_a_cell_differ_and_are_below_256(name: ShapeName) -> None:
    routed_TLK = sample_of(name, "arrays").rollout_routed_experts
    assert routed_TLK is not None
    assert routed_TLK.shape == (SHAPES[name].T - 1, SHAPES[name].L, SHAPES[name].K)
    assert routed_TLK.min() >= 0
    assert routed_TLK.max() < NUM_EXPERTS
    assert (np.diff(np.sort(routed_TLK[:1000]), axis=-1) > 0).all()


def test_lists_hold_the_values_of_the_arrays() -> None:
    arrays, lists = sample_of("S", "arrays"), sample_of("S", "lists")
    assert isinstance(lists.tokens, list)
    assert lists.tokens == arrays.tokens.tolist()
