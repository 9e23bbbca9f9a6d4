"""The weights of the embedded model: random and seeded.

Only the output's bias is not random: it makes printable text frequent, letters as in English.

Shape letters: as in model.
"""

from __future__ import annotations

import string
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from ...adapters.tokenizer.chatml import IM_END, ByteChatML
from .settings import EngineSettings

Floats = npt.NDArray[np.float32]

# Letters by how frequent they are in English, the blank first.
_COMMON: Final = " etaoinshrdlcumwfgypbvkjxqz"


class Layer(NamedTuple):
    """The weights of one layer."""

    attention_in: Floats  # [D, 3 D]: queries, keys, values
    attention_out: Floats  # [D, D]
    router: Floats  # [D, E]
    expert_in: Floats  # [E, D, F]
    expert_out: Floats  # [E, F, D]


class Weights(NamedTuple):
    """All weights."""

    embedding_VD: Floats
    layers: list[Layer]
    head_DV: Floats
    bias_V: Floats


def random_weights(settings: EngineSettings) -> Weights:
    """The weights of one seed; arrays of their own."""
    random = np.random.default_rng(settings.seed)
    width = settings.hidden_size
    return Weights(
        embedding_VD=_normal(random, (ByteChatML.num_ids, width), 1.0),
        layers=[_random_layer(random, settings) for _ in range(settings.num_layers)],
        head_DV=_normal(random, (width, ByteChatML.num_ids), width**-0.5),
        bias_V=_output_bias(),
    )


def _normal(random: np.random.Generator, shape: tuple[int, ...], scale: float) -> Floats:
    return random.standard_normal(shape, dtype=np.float32) * np.float32(scale)


def _random_layer(random: np.random.Generator, settings: EngineSettings) -> Layer:
    width, inner, num_experts = settings.hidden_size, settings.expert_size, settings.num_experts
    return Layer(
        attention_in=_normal(random, (width, 3 * width), width**-0.5),
        attention_out=_normal(random, (width, width), width**-0.5),
        # Wide enough that tokens part ways, narrow enough that no expert takes them all.
        router=_normal(random, (width, num_experts), 1.5 * width**-0.5),
        expert_in=_normal(random, (num_experts, width, inner), width**-0.5),
        expert_out=_normal(random, (num_experts, inner, width), inner**-0.5),
    )


def _output_bias() -> Floats:
    """float32 [V]: how frequent ids are in text; what is not printable is next to impossible."""
    bias_V = np.full(ByteChatML.num_ids, -30.0)
    bias_V[[*string.printable[: -len(string.whitespace)].encode()]] = -6.0
    bias_V[[*(string.digits + ".,").encode()]] = -3.0
    bias_V[[*_COMMON.encode()]] = -0.12 * np.arange(len(_COMMON))
    bias_V -= np.log(np.exp(bias_V).sum())
    bias_V[IM_END] = 0  # it depends on the length of the turn: end_bias in model
    return bias_V.astype(np.float32)
