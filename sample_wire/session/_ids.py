"""The ids of a conversation without a list of them: as a sequence, and as JSON text.

103,000 ids take 2 ms as a list and its text.  All but the last of them were in the turn before,
so that the text of a prompt is made from that of the turn before it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import overload

import numpy as np
import numpy.typing as npt

from .._json import encode_json

Ids = npt.NDArray[np.int64]


class TokenIds(Sequence[int]):
    """Ids of an array as a sequence of ints; only those that are looked at are made."""

    __slots__ = ("_ids",)

    def __init__(self, ids: Ids) -> None:
        self._ids = ids

    def __len__(self) -> int:
        return len(self._ids)

    @overload
    def __getitem__(self, index: int) -> int: ...
    @overload
    def __getitem__(self, index: slice) -> list[int]: ...
    def __getitem__(self, index: int | slice) -> int | list[int]:
        found: int | list[int] = self._ids[index].tolist()
        return found


def ids_text(ids: Ids) -> bytes:
    """Ids as the inside of a JSON array."""
    return encode_json(ids.tolist())[1:-1]


def joined(*texts: bytes | memoryview) -> bytes:
    """The text of ids one after another."""
    return b",".join(filter(None, texts))


class IdsText:
    """The text of the latest turn's ids, and how much of it is that of each turn before.

    Immutable, as the state that it belongs to.
    """

    __slots__ = ("_ends", "_text")

    def __init__(self, text: bytes = b"", ends: tuple[int | None, ...] = ()) -> None:
        self._text = text
        self._ends = ends

    def upto(self, num_turns: int, held: Ids, num_kept: int) -> bytes | memoryview:
        """The text of the first num_kept ids of those that so many turns came to."""
        end = self._ends[num_turns - 1] if num_turns else 0
        if end is None or num_kept < len(held):
            return ids_text(held[:num_kept])
        return memoryview(self._text)[:end]

    def after(self, num_turns: int, prompt: bytes, outputs: Ids, *, is_longer: bool) -> IdsText:
        """The text once a turn follows that many turns.

        Args:
            prompt: the text of its prompt.
            outputs: its output ids.
            is_longer: whether the prompt begins with all ids of the turn before.
        """
        text = joined(prompt, ids_text(outputs))
        ends = self._ends[:num_turns]
        if not is_longer:
            ends = (*ends[:-1], None)  # those before it may drop ids too, but none of the last
        return IdsText(text, (*ends, len(text)))
