"""The prefix cache: what earlier requests left in the KV cache, found by equal leading tokens."""

from __future__ import annotations

import threading
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from .model import KVState


class _Kept:
    """One state, with its tokens as an array."""

    def __init__(self, state: KVState) -> None:
        self.state = state
        self.ids = np.array(state.ids, np.int64)

    def num_equal(self, ids: npt.NDArray[np.int64]) -> int:
        """How many leading tokens are equal."""
        size = min(len(ids), len(self.ids))
        differs = np.flatnonzero(self.ids[:size] != ids[:size])
        return int(differs[0]) if len(differs) else size


class PrefixCache:
    """States of finished requests, the least used dropped first; safe for threads.

    Args:
        max_tokens: tokens that are kept in all.
    """

    def __init__(self, max_tokens: int) -> None:
        self._max_tokens = max_tokens
        self._kept: list[_Kept] = []  # the one used last is at the end
        self._lock = threading.Lock()

    def fill(self, state: KVState, prompt: Sequence[int]) -> int:
        """Copies the longest known prefix of a prompt into an empty state.

        The prompt's last token is left out in any case: its pass gives the first logits.

        Returns:
            How many tokens were copied.
        """
        wanted = np.array(prompt[:-1], np.int64)
        with self._lock:
            found = [(kept.num_equal(wanted), at) for at, kept in enumerate(self._kept)]
            num_tokens, at = max(found, default=(0, -1))
            if num_tokens:
                best = self._kept.pop(at)
                self._kept.append(best)
                state.take_prefix(best.state, num_tokens)
        return num_tokens

    def keep(self, state: KVState) -> None:
        """Takes over the state of a request that has ended, in place of its own prefixes."""
        state.shrink()
        new = _Kept(state)
        with self._lock:
            self._kept = [
                kept for kept in self._kept if kept.num_equal(new.ids) < len(kept.ids)
            ] + [new]
            while self._kept and sum(len(kept.ids) for kept in self._kept) > self._max_tokens:
                del self._kept[0]
