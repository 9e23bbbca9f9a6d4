"""How one id is drawn, and the log-prob that is told of it."""

from __future__ import annotations

from typing import Any, Final

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sample_wire.demo.engine.sampling import Sampler, SamplingParams

NUM_IDS: Final = 260
LOGITS: Final = np.random.default_rng(5).normal(0, 3, NUM_IDS).astype(np.float32)
ORDER: Final = np.argsort(-LOGITS).tolist()
IM_END: Final = 257


def drawn(
    number: int = 0, allowed: frozenset[int] | None = None, seed: int = 0, **params: Any
) -> tuple[int, float]:
    return Sampler(SamplingParams(**params), (seed,)).draw(LOGITS, number, allowed)


def log_prob(token_id: int, temperature: float, allowed: frozenset[int]) -> float:
    """ln of the softmax over the allowed ids, written another way."""
    exponents = [(float(LOGITS[one]) - float(LOGITS[token_id])) / temperature for one in allowed]
    return -float(np.logaddexp.reduce(exponents))


@given(
    st.integers(0, 2**64),
    st.sampled_from([0.3, 1.0, 2.5]),
    st.frozensets(st.integers(0, NUM_IDS - 1), min_size=2) | st.none(),
)
def test_the_log_prob_is_that_of_the_masked_softmax_at_the_temperature(
    seed: int, temperature: float, allowed: frozenset[int] | None
) -> None:
    token_id, found = drawn(allowed=allowed, seed=seed, temperature=temperature)
    everything = frozenset(range(NUM_IDS))
    assert token_id in (allowed or everything)
    expected = log_prob(token_id, temperature, allowed or everything)
    assert found == pytest.approx(expected, rel=1e-6, abs=1e-6)


def test_a_forced_id_has_log_prob_zero() -> None:
    token_id, found = drawn(allowed=frozenset([ORDER[-1]]))
    assert (token_id, found, np.signbit(found)) == (ORDER[-1], 0.0, False)


def test_temperature_zero_takes_the_likeliest_id() -> None:
    everything = frozenset(range(NUM_IDS))
    token_id, found = drawn(temperature=0.0)
    assert token_id == ORDER[0]
    assert found == pytest.approx(log_prob(ORDER[0], 1.0, everything), rel=1e-6)


@given(st.integers(0, 2**64))
def test_top_k_draws_from_the_k_likeliest_only(seed: int) -> None:
    assert drawn(seed=seed, top_k=3, temperature=5.0)[0] in ORDER[:3]


@given(st.integers(0, 2**64), st.floats(0.01, 0.99))
def test_top_p_draws_from_the_fewest_ids_that_reach_it(seed: int, top_p: float) -> None:
    probs = np.exp(LOGITS[ORDER].astype(np.float64))
    probs /= probs.sum()
    num_kept = next(n for n in range(1, NUM_IDS + 1) if probs[:n].sum() >= top_p)
    assert drawn(seed=seed, top_p=top_p)[0] in ORDER[:num_kept]


def test_ids_come_as_often_as_their_probabilities_say() -> None:
    sampler = Sampler(SamplingParams(temperature=2.0), (1, 2))
    counts = np.zeros(NUM_IDS)
    num_draws = 20_000
    for _ in range(num_draws):
        counts[sampler.draw(LOGITS, 0, None)[0]] += 1
    probs = np.exp(LOGITS.astype(np.float64) / 2)
    probs /= probs.sum()
    # Five standard deviations; the draws are seeded.
    assert np.all(np.abs(counts / num_draws - probs) < 5 * np.sqrt(probs / num_draws))


def test_the_same_seed_draws_the_same_ids_and_another_draws_others() -> None:
    def ids(*seed: int) -> list[int]:
        sampler = Sampler(SamplingParams(), seed)
        return [sampler.draw(LOGITS, number, None)[0] for number in range(20)]

    assert ids(7, 0) == ids(7, 0)
    assert ids(7, 0) != ids(7, 1) != ids(8, 0)
    assert ids(-1, 0) != ids(1, 0)


def test_a_bias_is_added_to_the_logit() -> None:
    token_id = ORDER[40]
    assert drawn(temperature=0.0, logit_bias={str(token_id): 100.0}) == (token_id, 0.0)


def test_no_id_that_stops_is_drawn_before_the_minimum() -> None:
    params: dict[str, Any] = {"logit_bias": {str(IM_END): 100.0, "10": 90.0}, "temperature": 0.0}
    assert drawn(number=1, min_new_tokens=2, **params)[0] == 10
    assert drawn(number=2, min_new_tokens=2, **params)[0] == IM_END


def test_a_grammar_may_end_the_turn_before_the_minimum() -> None:
    allowed = frozenset([IM_END, 10])
    params: dict[str, Any] = {"logit_bias": {str(IM_END): 100.0}, "temperature": 0.0}
    assert drawn(allowed=allowed, min_new_tokens=2, **params)[0] == IM_END


@pytest.mark.parametrize(
    "params",
    [
        {"temperature": -0.1},
        {"top_p": 0},
        {"top_p": 1.1},
        {"top_k": -2},
        {"n": 0},
        {"max_new_tokens": -1},
        {"logit_bias": {"260": 1.0}},
        {"logit_bias": {"-1": 1.0}},
        {"logit_bias": {"x": 1.0}},
        {"stop_token_ids": [260]},
        {"logit_bias": {"65": 100.5}},
        {"logit_bias": {"65": -1e308}},
        {"min_new_tokens": 9, "max_new_tokens": 5},
        {"min_new_tokens": 3, "stop_token_ids": [*range(NUM_IDS)]},
        {"no_such_parameter": 1},
    ],
    ids=str,
)
def test_a_parameter_out_of_bounds_is_refused(params: dict[str, Any]) -> None:
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert(params, SamplingParams)
