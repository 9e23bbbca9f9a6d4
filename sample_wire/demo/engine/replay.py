"""The replay mode: answers from a seeded recipe, at any size, where a model would take hours.

A token's routing is told by the token and all tokens before it, as a model's is: equal prefixes
get equal rows, and other prefixes others.  Nothing is kept between requests.

Shape letters: N tokens, R rows of the table, P sets of experts, L layers, K experts per token.
"""

from __future__ import annotations

import string
import threading
import time
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from ...adapters.tokenizer.chatml import IM_END
from .generation import ABORT, Generation
from .grammar import StructuralTag
from .running import Running
from .sampling import SamplingParams
from .settings import ReplaySettings

_ROW_BITS: Final = 14
_NUM_SETS: Final = 1024
# Odd, so that no power of it is 0 modulo 2**64.
_FACTOR: Final = np.uint64(0xD1342543DE82EF95)
_HALF: Final = np.uint64(32)
_LETTERS: Final = np.frombuffer((string.ascii_lowercase + "    ").encode(), np.uint8)
_MEAN_LOSS: Final = 0.4


class ReplayEngine(Running):
    """Answers with seeded noise of the size that it is told; stands in for a large model.

    The same prompt gets the same output and the same rows.  Of a request's parameters
    max_new_tokens, sampling_seed and n are heeded; it calls no tools.

    Args:
        settings: see ReplaySettings.
    """

    def __init__(self, settings: ReplaySettings) -> None:
        super().__init__()
        self.settings = settings
        self._rows_RLK = _random_rows(settings)
        self._powers = np.multiply.accumulate(np.full(settings.max_context, _FACTOR))

    def generate(
        self,
        prompt: Sequence[int],
        params: SamplingParams,
        tag: StructuralTag | None,  # noqa: ARG002  # every engine is given it
        aborted: threading.Event,
        number: int = 0,
    ) -> Generation:
        """As Engine.generate."""
        made = Generation(list(prompt), started=time.time())
        made.num_cached = (len(prompt) - 1) // self.settings.turn_tokens * self.settings.turn_tokens
        made.first_token = time.time()
        if aborted.is_set():
            made.finish_reason = dict(ABORT)
        else:
            self._say(made, params, number)
        numbers = self._prefix_numbers([*made.prompt, *made.ids][:-1])
        made.routed_NLK = _TableRows(self._rows_RLK, numbers >> np.uint64(64 - _ROW_BITS))
        made.ended = time.time()
        return made

    def _say(self, made: Generation, params: SamplingParams, number: int) -> None:
        """The output: letters, and the end of the turn where there is room for all of it."""
        size = self.settings.turn_tokens - len(made.prompt) % self.settings.turn_tokens
        room = self.settings.max_context - len(made.prompt)
        limit = min(room, room if params.max_new_tokens is None else params.max_new_tokens)
        seed = self.settings.seed if params.sampling_seed is None else params.sampling_seed
        told = int(self._prefix_numbers(made.prompt)[-1])
        random = np.random.default_rng([seed % 2**64, number, told])
        made.ids = random.choice(_LETTERS, min(size, limit)).tolist()
        losses = random.exponential(_MEAN_LOSS, len(made.ids))
        made.log_probs = (-losses.astype(np.float32)).tolist()
        if size <= limit:
            made.ids[-1] = IM_END
            made.finish_reason = {"type": "stop", "matched": IM_END}
        else:
            made.finish_reason = {"type": "length", "length": len(made.ids)}

    def _prefix_numbers(self, ids: Sequence[int]) -> npt.NDArray[np.uint64]:
        """uint64 [N]: for each token a number that it and all tokens before it tell."""
        places = np.array(ids, np.uint64) + np.uint64(1)
        numbers = np.cumsum(places * self._powers[: len(places)], dtype=np.uint64)
        numbers ^= numbers >> _HALF
        return numbers * _FACTOR


class _TableRows:
    """Rows of a table, chosen by index; an array of them is made where one is asked for."""

    def __init__(self, table_RLK: npt.NDArray[Any], index_N: npt.NDArray[np.uint64]) -> None:
        self._table_RLK = table_RLK
        self._index_N = index_N

    def __len__(self) -> int:
        return len(self._index_N)

    def __getitem__(self, places: slice) -> npt.NDArray[Any]:
        found: npt.NDArray[Any] = self._table_RLK[self._index_N[places]]
        return found


def _random_rows(settings: ReplaySettings) -> npt.NDArray[Any]:
    """[R, L, K], as narrow as the experts' numbers: in each layer of a row K different experts."""
    random = np.random.default_rng(settings.seed)
    order = random.random((_NUM_SETS, settings.num_experts)).argsort(axis=1)
    sets_PK = order[:, : settings.top_k].astype(np.min_scalar_type(settings.num_experts - 1))
    chosen_RL = random.integers(_NUM_SETS, size=(1 << _ROW_BITS, settings.num_layers))
    rows: npt.NDArray[Any] = sets_PK[chosen_RL]
    return rows
