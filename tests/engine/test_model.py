"""The embedded model: what it computes, and what that depends on."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Final

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sample_wire.adapters.tokenizer import ByteChatML
from sample_wire.demo.engine import EngineSettings, RouterChoice
from sample_wire.demo.engine.model import KVState, Model

from .slow_model import slow_run

SMALL: Final = EngineSettings(
    num_layers=2,
    num_experts=8,
    top_k=3,
    hidden_size=16,
    num_heads=2,
    expert_size=8,
    max_context=256,
)
MODEL: Final = Model(SMALL)
IDS: Final = [int(one) for one in np.random.default_rng(3).integers(0, ByteChatML.num_ids, 200)]
# float32 against float64, through two layers.
TOLERANCE: Final = 1e-4


def fed(model: Model, ids: Sequence[int], cuts: Sequence[int]) -> tuple[KVState, list[np.ndarray]]:
    """The state after these tokens, fed in pieces, and the logits behind each piece."""
    state = KVState(SMALL, len(ids))
    edges = [0, *sorted({cut for cut in cuts if 0 < cut < len(ids)}), len(ids)]
    logits = [model.forward(state, ids[one:other]) for one, other in itertools.pairwise(edges)]
    return state, logits


def test_logits_are_those_of_the_slow_model() -> None:
    expected = slow_run(SMALL, IDS[:90]).logits_TV
    _, logits = fed(MODEL, IDS[:90], range(90))
    np.testing.assert_allclose(logits, expected, atol=TOLERANCE)


def test_experts_are_the_top_k_of_the_slow_models_router() -> None:
    router_TLE = slow_run(SMALL, IDS[:90]).router_TLE
    state, _ = fed(MODEL, IDS[:90], [])
    for routed_LK, scores_LE in zip(state.routed_NLK, router_TLE, strict=False):
        for routed_K, scores_E in zip(routed_LK, scores_LE, strict=True):
            assert len({*routed_K.tolist()}) == SMALL.top_k
            chosen = scores_E[routed_K]
            others = np.delete(scores_E, routed_K)
            assert chosen.min() > others.max() - TOLERANCE


@given(st.lists(st.integers(1, 199), max_size=12))
def test_bits_do_not_depend_on_how_the_tokens_are_cut(cuts: list[int]) -> None:
    whole, in_one = fed(MODEL, IDS, [])
    cut, in_pieces = fed(MODEL, IDS, cuts)
    assert in_one[-1].tobytes() == in_pieces[-1].tobytes()
    assert whole.routed_NLK.tobytes() == cut.routed_NLK.tobytes()
    assert whole.keys_LHNC.tobytes() == cut.keys_LHNC.tobytes()
    assert whole.values_LHNC.tobytes() == cut.values_LHNC.tobytes()


@given(st.integers(1, 199), st.integers(0, 2**32 - 1))
def test_a_token_does_not_see_those_after_it(size: int, seed: int) -> None:
    others = np.random.default_rng(seed).integers(0, ByteChatML.num_ids, len(IDS) - size)
    whole, _ = fed(MODEL, IDS, [])
    changed, _ = fed(MODEL, [*IDS[:size], *others.tolist()], [])
    assert whole.routed_NLK[:size].tobytes() == changed.routed_NLK[:size].tobytes()


@given(st.integers(1, 199), st.lists(st.integers(1, 199), max_size=3))
def test_a_copied_prefix_goes_on_as_the_original(size: int, cuts: list[int]) -> None:
    whole, in_one = fed(MODEL, IDS, cuts)
    state = KVState(SMALL, len(IDS))
    state.take_prefix(whole, size)
    logits = MODEL.forward(state, IDS[size:])
    assert logits.tobytes() == in_one[-1].tobytes()
    assert state.routed_NLK.tobytes() == whole.routed_NLK.tobytes()


def test_every_router_tells_what_it_chose() -> None:
    told: list[RouterChoice] = []
    model = Model(SMALL, told.append)
    state, _ = fed(model, IDS[:100], [70])
    # The passes end at the edge of a block of 64 positions too.
    assert [(one.start, len(one.ids), one.layer) for one in told] == [
        (start, end, layer) for start, end in ((0, 64), (64, 70), (70, 100)) for layer in (0, 1)
    ]
    for one in told:
        assert [*one.ids] == IDS[: len(one.ids)]
        rows = state.routed_NLK[one.start : len(one.ids), one.layer]
        assert one.experts_TK.tolist() == rows.tolist()
        assert one.experts_TK.dtype == np.int32
        best = np.sort(one.logits_TE, axis=1)[:, ::-1][:, : SMALL.top_k]
        assert np.take_along_axis(one.logits_TE, one.experts_TK, axis=1).tolist() == best.tolist()


def test_seeds_give_other_weights() -> None:
    one, other = (Model(EngineSettings(seed=seed)) for seed in (0, 1))
    states = [KVState(EngineSettings(), 20) for _ in range(2)]
    assert not np.array_equal(one.forward(states[0], IDS[:20]), other.forward(states[1], IDS[:20]))


def test_all_experts_are_used_and_none_takes_all() -> None:
    settings = EngineSettings()
    state = KVState(settings, 1000)
    Model(settings).forward(state, [*b"The quick brown fox jumps over the lazy dog. " * 22][:960])
    for layer in range(settings.num_layers):
        counts = np.bincount(state.routed_NLK[:960, layer].ravel(), minlength=settings.num_experts)
        assert counts.max() < 960
        assert np.count_nonzero(counts) > settings.num_experts // 2


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"num_layers": 0}, "num_layers must be at least 1"),
        ({"max_context": 0}, "max_context must be at least 1"),
        ({"seed": -1}, "seed must not be negative"),
        ({"top_k": 33}, "top_k must be at most num_experts"),
        ({"num_heads": 3}, "hidden_size must be an even number for each head"),
        ({"min_tool_calls": 5}, "max_tool_calls must be at least min_tool_calls"),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, dict) else "",
)
def test_sizes_that_do_not_fit_are_refused_by_name(change: dict[str, int], told: str) -> None:
    with pytest.raises(ValueError, match=told):
        EngineSettings(**change)  # type: ignore[arg-type]  # names are those of integers


def test_the_routing_spec_has_the_models_sizes() -> None:
    spec = EngineSettings(num_layers=3, num_experts=16, top_k=2).routing_spec(incremental=True)
    assert (spec.num_layers, spec.num_experts, spec.top_k) == (3, 16, 2)
    assert spec.incremental
    assert spec.required
