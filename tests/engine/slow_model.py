"""The embedded model written again as plainly as it can be: float64, no cache, token by token.

Shape letters: T tokens, L layers, E experts, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from sample_wire.adapters.tokenizer.chatml import IM_END, IM_START
from sample_wire.demo.engine import EngineSettings
from sample_wire.demo.engine.weights import Layer, random_weights

Vector = npt.NDArray[np.float64]


class Slow(NamedTuple):
    """What the model makes of a sequence."""

    logits_TV: npt.NDArray[np.float64]
    router_TLE: npt.NDArray[np.float64]


def slow_run(settings: EngineSettings, ids: Sequence[int]) -> Slow:
    """All logits and all router logits of one sequence."""
    weights = random_weights(settings)
    states: list[Vector] = [weights.embedding_VD[one].astype(np.float64) for one in ids]
    router: list[list[Vector]] = [[] for _ in ids]
    for layer in weights.layers:
        states = _attended(states, layer, settings.num_heads)
        for at, state in enumerate(states):
            router[at].append(_normed(state) @ layer.router)
            states[at] = state + _experts(_normed(state), router[at][-1], layer, settings.top_k)
    logits = np.array([_normed(state) @ weights.head_DV + weights.bias_V for state in states])
    size = 0
    for at, one in enumerate(ids):
        size = 0 if one in (IM_START, IM_END) else size + 1
        mean = settings.mean_answer_tokens
        logits[at, IM_END] += np.log(0.03 / mean) + 4 * max(size - 10, 0) / mean
    return Slow(logits, np.array(router))


def _attended(states: list[Vector], layer: Layer, num_heads: int) -> list[Vector]:
    projected = [np.split(_normed(state) @ layer.attention_in, 3 * num_heads) for state in states]
    found = []
    for at, state in enumerate(states):
        heads = []
        for head in range(num_heads):
            query = _turned(projected[at][head], at)
            seen = projected[: at + 1]
            keys = [_turned(one[num_heads + head], place) for place, one in enumerate(seen)]
            powers = [float(np.exp(query @ key / len(query) ** 0.5)) for key in keys]
            values = [one[2 * num_heads + head] for one in seen]
            mixed = sum(power * value for power, value in zip(powers, values, strict=True))
            heads.append(np.asarray(mixed) / sum(powers))
        found.append(state + np.concatenate(heads) @ layer.attention_out)
    return found


def _experts(normed: Vector, scores: Vector, layer: Layer, top_k: int) -> Vector:
    """Of the softmax over all experts the top k, scaled to a sum of 1."""
    probs = np.exp(scores) / np.exp(scores).sum()
    best = sorted(range(len(probs)), key=lambda one: -probs[one])[:top_k]
    total = np.zeros_like(normed)
    for one in best:
        inner = normed @ layer.expert_in[one]
        total += probs[one] * ((inner / (1 + np.exp(-inner))) @ layer.expert_out[one])
    return np.asarray(total / sum(probs[one] for one in best))


def _normed(state: Vector) -> Vector:
    return np.asarray(state / np.sqrt((state**2).mean() + 1e-6))


def _turned(vector: Vector, place: int) -> Vector:
    """Each pair of columns as a complex number, turned by the angle of its place."""
    half = len(vector) // 2
    angles = place * 10_000.0 ** (-np.arange(half) / half)
    turned = (vector[:half] + 1j * vector[half:]) * np.exp(1j * angles)
    return np.concatenate([turned.real, turned.imag])
