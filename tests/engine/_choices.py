"""What the routers of an engine chose, by the tokens that each choice was made behind."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from hashlib import blake2b

import numpy as np
import numpy.typing as npt

from sample_wire.demo.engine import RouterChoice

Rows = npt.NDArray[np.int32]


class ChoiceLog:
    """Is told every router's choice, and finds those of a sequence again."""

    def __init__(self) -> None:
        self._told: list[RouterChoice] = []
        self._chosen: dict[tuple[bytes, int], list[int]] = {}

    def __call__(self, choice: RouterChoice) -> None:
        """What the engine calls, from its threads."""
        self._told.append(choice)

    def rows(self, ids: Sequence[int], num_layers: int) -> Rows:
        """[T-1, L, K]: what was chosen for all tokens but the last.

        Raises:
            KeyError: a token never went through the model behind the tokens before it.
        """
        self._sort()
        names = [name for _, name in zip(ids[:-1], _prefixes(ids, 0), strict=False)]
        chosen = [[self._chosen[name, layer] for layer in range(num_layers)] for name in names]
        return np.array(chosen, np.int32)

    def _sort(self) -> None:
        """Puts down what was told; what was chosen twice must be equal."""
        while self._told:
            choice = self._told.pop()
            names = _prefixes(choice.ids, choice.start)
            for name, experts in zip(names, choice.experts_TK.tolist(), strict=True):
                assert self._chosen.setdefault((name, choice.layer), experts) == experts


def _prefixes(ids: Sequence[int], start: int) -> Iterator[bytes]:
    """Names of the prefixes that end with the tokens from start on."""
    array = np.array(ids, np.int64)
    hashed = blake2b(array[:start].tobytes(), digest_size=16)
    for token_id in array[start:]:
        hashed.update(token_id.tobytes())
        yield hashed.digest()
