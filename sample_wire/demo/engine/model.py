"""A tiny mixture-of-experts language model: attention with a KV cache, a top-k router, experts.

Every token goes through products of the same shape, whatever is with it in the batch and
wherever the cache ends: BLAS adds in another order for other shapes, and a router that is near a
tie would then choose other experts.  So a token's log-probs and experts depend on the tokens
before it and on nothing else, and equal requests get equal answers.

Shape letters: T tokens, N positions, D hidden columns, H heads, C columns of a head, L layers,
E experts, K experts per token, F columns inside an expert, V vocabulary.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from ...adapters.tokenizer.chatml import IM_END, IM_START
from .settings import EngineSettings
from .weights import Floats, Layer, random_weights

Ids = npt.NDArray[np.int32]

# Positions are taken in blocks: the queries of one see keys up to its end, masked.
BLOCK: Final = 64
_ROPE_BASE: Final = 10_000.0
_EDGES: Final = (IM_START, IM_END)
_ROLE: Final = len("assistant\n")
_EPSILON: Final = np.float32(1e-6)
# Added to the scores of a block's tokens for that block's positions: none sees a later one.
_FUTURE: Final[Floats] = np.triu(np.full((BLOCK, BLOCK), -np.inf, np.float32), k=1)


class RouterChoice(NamedTuple):
    """What the router of one layer did with the tokens of one forward pass.

    Attributes:
        ids: all tokens of the sequence up to the last one of this pass.
        start: position of the first token of this pass.
        layer: the layer.
        logits_TE: float32, what the router's choice is made by.
        experts_TK: int32, the experts chosen.
    """

    ids: tuple[int, ...]
    start: int
    layer: int
    logits_TE: Floats
    experts_TK: Ids


class KVState:
    """Tokens that went through the model, with what attention needs of them and their routing.

    Args:
        settings: the model's.
        capacity: tokens that it will have room for.

    Attributes:
        ids: the tokens.
        routed_NLK: int32 [capacity, L, K]; row i is of the pass that token i went through.
    """

    def __init__(self, settings: EngineSettings, capacity: int) -> None:
        size = -(-capacity // BLOCK) * BLOCK
        head_size = settings.hidden_size // settings.num_heads
        shape = (settings.num_layers, settings.num_heads, size, head_size)
        self.ids: list[int] = []
        # Zeros, not anything: positions behind the end are multiplied by 0.
        self.keys_LHNC: Floats = np.zeros(shape, np.float32)
        self.values_LHNC: Floats = np.zeros(shape, np.float32)
        self.routed_NLK: Ids = np.zeros((size, settings.num_layers, settings.top_k), np.int32)

    def shrink(self) -> None:
        """Lets go of the room that no token has taken."""
        size = -(-len(self.ids) // BLOCK) * BLOCK
        self.keys_LHNC = self.keys_LHNC[:, :, :size].copy()
        self.values_LHNC = self.values_LHNC[:, :, :size].copy()
        self.routed_NLK = self.routed_NLK[:size].copy()

    def take_prefix(self, other: KVState, num_tokens: int) -> None:
        """Starts with a copy of the first tokens of another one."""
        self.ids = other.ids[:num_tokens]
        kept = slice(num_tokens)
        self.keys_LHNC[:, :, kept] = other.keys_LHNC[:, :, kept]
        self.values_LHNC[:, :, kept] = other.values_LHNC[:, :, kept]
        self.routed_NLK[kept] = other.routed_NLK[kept]


class Model:
    """The model; forward may run in several threads, each with a KVState of its own.

    Args:
        settings: sizes and seed.
        on_choice: is told what every router chose, or None.
    """

    def __init__(
        self, settings: EngineSettings, on_choice: Callable[[RouterChoice], None] | None = None
    ) -> None:
        self._settings = settings
        self._on_choice = on_choice
        self._weights = random_weights(settings)
        self._cosines_NC, self._sines_NC = _rotations(settings)

    def forward(self, state: KVState, ids: Sequence[int]) -> Floats:
        """Takes tokens behind those of the state, which has room for them.

        Args:
            ids: one token or more.

        Returns:
            float32 [V], the logits of the token that follows the last one.
        """
        first = len(state.ids)
        state.ids.extend(ids)
        while first < len(state.ids):
            end = min(len(state.ids), (first // BLOCK + 1) * BLOCK)
            hidden_TD = self._block(state, first, end)
            first = end
        last_D: Floats = _normed(hidden_TD[-1])
        logits_V: Floats = last_D @ self._weights.head_DV + self._weights.bias_V
        logits_V[IM_END] += end_bias(state.ids, self._settings.mean_answer_tokens)
        return logits_V

    def _block(self, state: KVState, first: int, end: int) -> Floats:
        hidden_TD: Floats = self._weights.embedding_VD[state.ids[first:end]]
        for number, layer in enumerate(self._weights.layers):
            hidden_TD = hidden_TD + self._attention(state, number, layer, hidden_TD, first)
            hidden_TD = hidden_TD + self._experts(state, number, layer, hidden_TD, first)
        return hidden_TD

    def _attention(
        self, state: KVState, number: int, layer: Layer, hidden_TD: Floats, first: int
    ) -> Floats:
        num_tokens, width = hidden_TD.shape
        end, seen = first + num_tokens, (first // BLOCK + 1) * BLOCK
        mixed = _each(_normed(hidden_TD), layer.attention_in)
        mixed = mixed.reshape(num_tokens, 3, self._settings.num_heads, -1)
        turned = self._turned(mixed[:, :2], first)
        keys_HNC, values_HNC = state.keys_LHNC[number], state.values_LHNC[number]
        keys_HNC[:, first:end] = turned[:, 1].swapaxes(0, 1)
        values_HNC[:, first:end] = mixed[:, 2].swapaxes(0, 1)
        queries_THC = turned[:, 0] * np.float32(turned.shape[-1] ** -0.5)
        scores_THN = (keys_HNC[:, :seen] @ queries_THC[..., None])[..., 0]
        at = first % BLOCK
        scores_THN[..., -BLOCK:] += _FUTURE[at : at + num_tokens, None]
        weights_THN = _softmax(scores_THN)
        heads_THC = (weights_THN[:, :, None] @ values_HNC[:, :seen])[:, :, 0]
        return _each(heads_THC.reshape(num_tokens, width), layer.attention_out)

    def _experts(
        self, state: KVState, number: int, layer: Layer, hidden_TD: Floats, first: int
    ) -> Floats:
        normed_TD = _normed(hidden_TD)
        logits_TE = _each(normed_TD, layer.router)
        experts_TK = np.argsort(-logits_TE, axis=1, kind="stable")[:, : self._settings.top_k]
        # The softmax over all, cut to these and scaled to a sum of 1, is the softmax over these.
        weights_TK = _softmax(logits_TE[np.arange(len(logits_TE))[:, None], experts_TK])
        end = first + len(hidden_TD)
        state.routed_NLK[first:end, number] = experts_TK
        if self._on_choice is not None:
            ids = tuple(state.ids[:end])
            chosen = experts_TK.astype(np.int32)
            self._on_choice(RouterChoice(ids, first, number, logits_TE, chosen))
        inner_TK1F: Floats = normed_TD[:, None, None] @ layer.expert_in[experts_TK]
        inner_TK1F = inner_TK1F / (1 + np.exp(-inner_TK1F))  # x * sigmoid(x)
        outer_TKD = (inner_TK1F @ layer.expert_out[experts_TK])[:, :, 0]
        mixed_TD: Floats = (weights_TK[:, None] @ outer_TKD)[:, 0]
        return mixed_TD

    def _turned(self, vectors: Floats, first: int) -> Floats:
        """Rotary positions: each pair of columns is turned by an angle that grows by position.

        Args:
            vectors: [T, 2, H, C], the queries and the keys.
        """
        places = slice(first, first + len(vectors))
        cosines, sines = self._cosines_NC[places, None, None], self._sines_NC[places, None, None]
        half = vectors.shape[-1] // 2
        left, right = vectors[..., :half], vectors[..., half:]
        turned = np.empty_like(vectors)
        turned[..., :half] = left * cosines - right * sines
        turned[..., half:] = left * sines + right * cosines
        return turned


def end_bias(ids: Sequence[int], mean_answer_tokens: int) -> float:
    """What is added to the logit of the end of a turn behind these tokens.

    Trained models end their turns; random weights must be helped to, at low temperatures too.
    So the end is next to impossible at first, becomes likelier with each token of the turn, and
    is likelier than all else at about twice the mean.
    """
    size = next((n for n, one in enumerate(reversed(ids)) if one in _EDGES), len(ids))
    return math.log(0.03 / mean_answer_tokens) + 4 * max(size - _ROLE, 0) / mean_answer_tokens


def _each(vectors_TD: Floats, weight: Floats) -> Floats:
    """One product for each token, and not one for all: see the top of this module."""
    found: Floats = (vectors_TD[:, None] @ weight)[:, 0]
    return found


def _normed(vectors: Floats) -> Floats:
    """Scaled to a root mean square of 1."""
    squares = np.add.reduce(vectors * vectors, axis=-1, keepdims=True)
    means = squares * np.float32(1 / vectors.shape[-1])
    found: Floats = vectors / np.sqrt(means + _EPSILON)
    return found


def _softmax(logits: Floats) -> Floats:
    powers: Floats = np.exp(logits - np.maximum.reduce(logits, axis=-1, keepdims=True))
    powers /= np.add.reduce(powers, axis=-1, keepdims=True)
    return powers


def _rotations(settings: EngineSettings) -> tuple[Floats, Floats]:
    half = settings.hidden_size // settings.num_heads // 2
    speeds = _ROPE_BASE ** (-np.arange(half) / half)
    angles = np.arange(settings.max_context)[:, None] * speeds
    return np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32)
