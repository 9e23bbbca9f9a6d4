"""The ids of a session as JSON text: that of a prompt is made from the text of the turn before.

103,000 ids take 2 ms as a list and its text.  All but the last of them were there already.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from .._json import encode_json
from ..assembly import Turn

# Between two steps other threads have their turn: 8 million ids at once take half a second.
_STEP_IDS: Final = 1 << 17


def ids_text(ids: npt.NDArray[np.int64]) -> bytes:
    """Ids as the inside of a JSON array."""
    steps = range(0, len(ids), _STEP_IDS)
    return b",".join(encode_json(ids[start : start + _STEP_IDS].tolist())[1:-1] for start in steps)


def ids_array(ids: Sequence[int]) -> npt.NDArray[np.int64]:
    """Ids as an array."""
    found = np.empty(len(ids), np.int64)
    for start in range(0, len(ids), _STEP_IDS):
        found[start : start + _STEP_IDS] = ids[start : start + _STEP_IDS]
    return found


def joined(*texts: bytes | memoryview) -> bytes:
    """The text of ids one after another."""
    return b",".join(filter(None, texts))


class IdsText:
    """The text of the newest turn's ids, which mostly begins with that of the turn before it.

    One text for a session: what is asked for beside these two turns is made anew.  It may be
    asked while another thread goes on to the next turn.
    """

    __slots__ = ("_held",)

    def __init__(self) -> None:
        # The turn, the one before it if all of that is kept, where its text ends, the text: one
        # value, so that none is seen without the others.
        self._held: tuple[Turn | None, Turn | None, int, bytes] = (None, None, 0, b"")

    def of(self, turn: Turn | None, num_kept: int) -> bytes | memoryview:
        """The text of a turn's first num_kept ids, prompt and output."""
        if turn is None:
            return b""
        newest, before, end, text = self._held
        if num_kept == turn.num_tokens:
            if turn is newest:
                return text
            if turn is before:
                return memoryview(text)[:end]
        return ids_text(turn.tokens[:num_kept].to_array(np.int64))

    def take(self, turn: Turn, base: Turn | None, prompt: bytes) -> None:
        """Goes on to a turn on base, whose prompt has this text."""
        output = turn.tokens[turn.num_prompt :].to_array(np.int64)
        keeps_all = base is not None and turn.num_shared == base.num_tokens
        end = len(self.of(base, base.num_tokens)) if base is not None and keeps_all else 0
        self._held = turn, base if keeps_all else None, end, joined(prompt, ids_text(output))
