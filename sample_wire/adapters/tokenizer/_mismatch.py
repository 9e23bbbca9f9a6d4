"""Where the ids of a conversation differ from its messages rendered anew.

Both sides are split at the special ids, so that a difference in one message does not hide the
others.  Only text is compared inside a segment: other ids with the same text are what exact ids
are kept for.  Nothing is refused for a difference.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

# Tokens that open a message in the templates known here, and whether the message is then the
# assistant's.  After the ones with None the role stands as text.
OPENING_TOKENS: Final[Mapping[str, bool | None]] = {
    "<|im_start|>": None,
    "<|start_header_id|>": None,
    "<|system|>": False,
    "<|user|>": False,
    "<|observation|>": False,
    "<|assistant|>": True,
}
NUM_SHOWN_SEGMENTS: Final = 8
NUM_ROLE_IDS: Final = 12  # enough for "assistant", byte by byte too

Ids = npt.NDArray[np.int64]
Segment = tuple[Ids, bool]  # the bool: one special id


@dataclass(frozen=True, slots=True)
class IdComparison:
    """Compares two sequences of ids of one vocabulary.

    Attributes:
        decode: text of ids, special ones kept.
        special_ids: ids that stand alone between segments of text.
        openings: id that opens a message -> whether the message is the assistant's, None where
            the text after it tells.
        trailing_ids: ids that are taken off the end of both sides first.
    """

    decode: Callable[[Sequence[int]], str]
    special_ids: Iterable[int]
    openings: Mapping[int, bool | None]
    trailing_ids: frozenset[int]

    def differences(
        self, expected_ids: Sequence[int], actual_ids: Sequence[int]
    ) -> list[dict[str, Any]]:
        """One entry for each segment that differs, or one for different structures.

        Returns:
            Objects `{type, segment_index, expected_text, actual_text, detail}`; no entry means
            no difference.  Types: "special_token_count" (segment_index -1),
            "special_token_type", "assistant_text", "non_assistant_text".
        """
        expected, actual = self._segments(expected_ids), self._segments(actual_ids)
        if [special for _, special in expected] != [special for _, special in actual]:
            return [self._structures(expected, actual)]
        pairs = zip(expected, actual, strict=True)
        found = (
            self._difference(expected, at, one, other) for at, (one, other) in enumerate(pairs)
        )
        return [entry for entry in found if entry is not None]

    def _segments(self, ids: Sequence[int]) -> list[Segment]:
        array = self._without_trailing(np.asarray(ids, dtype=np.int64))
        marks = np.flatnonzero(np.isin(array, np.fromiter(self.special_ids, np.int64)))
        cuts = np.unique(np.concatenate([marks, marks + 1]))
        special = {*marks.tolist()}
        starts = [0, *cuts.tolist()]
        parts = zip(starts, np.split(array, cuts), strict=True)
        return [(part, start in special) for start, part in parts if len(part)]

    def _without_trailing(self, ids: Ids) -> Ids:
        end = len(ids)
        while end and int(ids[end - 1]) in self.trailing_ids:
            end -= 1
        return ids[:end]

    def _difference(
        self, expected: list[Segment], at: int, one: Segment, other: Segment
    ) -> dict[str, Any] | None:
        if np.array_equal(one[0], other[0]):
            return None
        expected_text, actual_text = self._text(one), self._text(other)
        if one[1]:
            return entry("special_token_type", at, expected_text, actual_text)
        if expected_text == actual_text:
            return None
        kind = "assistant_text" if self._is_assistant(expected, at) else "non_assistant_text"
        return entry(kind, at, expected_text, actual_text)

    def _is_assistant(self, segments: list[Segment], at: int) -> bool:
        """Whether a segment lies in a message of the assistant."""
        for before in range(at - 1, -1, -1):
            ids, special = segments[before]
            if special and int(ids[0]) in self.openings:
                says = self.openings[int(ids[0])]
                if says is not None:
                    return says
                role, is_special = segments[before + 1]
                text = "" if is_special else self.decode(role[:NUM_ROLE_IDS].tolist())
                return text.startswith("assistant")
        return False

    def _structures(self, expected: list[Segment], actual: list[Segment]) -> dict[str, Any]:
        sides = (expected, actual)
        marks = ([int(ids[0]) if special else -1 for ids, special in side] for side in sides)
        pairs = enumerate(zip(*marks, strict=False))
        first = next((at for at, (one, other) in pairs if one != other), min(map(len, sides)))
        detail = (
            f"{len(expected)} segments expected, {len(actual)} found; "
            f"they part at segment {first}, from where they are shown"
        )
        shown = slice(first, first + NUM_SHOWN_SEGMENTS)
        one, other = (" ".join(map(self._outline, side[shown])) for side in sides)
        return entry("special_token_count", -1, one, other, detail)

    def _outline(self, segment: Segment) -> str:
        ids, special = segment
        return self._text(segment) if special else f"({len(ids)} tokens)"

    def _text(self, segment: Segment) -> str:
        return self.decode(segment[0].tolist())


def openings_in(id_of: Callable[[str], int | None]) -> dict[int, bool | None]:
    """The ids of a vocabulary that open a message, as `IdComparison.openings`."""
    found = {id_of(token): says for token, says in OPENING_TOKENS.items()}
    return {token_id: says for token_id, says in found.items() if token_id is not None}


def entry(
    kind: str, segment_index: int, expected_text: str, actual_text: str, detail: str = ""
) -> dict[str, Any]:
    """One difference, in the form in which metadata carries it."""
    return {
        "type": kind,
        "segment_index": segment_index,
        "expected_text": expected_text,
        "actual_text": actual_text,
        "detail": detail,
    }
