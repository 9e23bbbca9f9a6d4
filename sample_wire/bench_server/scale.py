"""Scale: how large a run is, and what that takes.

Shape letters: L routed layers, K experts per token.
"""

from __future__ import annotations

from typing import Final

import msgspec

from ..demo.engine import ReplaySettings

# What an agent's message costs beside its text, and the least that an answer gets.
_MIN_TURN_TOKENS: Final = 64
_ID_BYTES: Final = 4


class Scale(msgspec.Struct, frozen=True, kw_only=True):
    """How large a run is.  The defaults are the production shape.

    Args:
        sessions: that are collected.
        turns: of each.
        tokens_per_turn: tokens that a turn adds, its prompt's and its output's.
        layers, top_k, experts: L, K, and how many experts a layer has.

    Raises:
        ValueError: less than one of something, a turn too short for a message, or more experts
            per token than there are.
    """

    sessions: int = 2
    turns: int = 50
    tokens_per_turn: int = 2060
    layers: int = 25
    top_k: int = 10
    experts: int = 256

    def __post_init__(self) -> None:
        for name in ("sessions", "turns"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1")
        if self.tokens_per_turn < _MIN_TURN_TOKENS:
            raise ValueError(f"tokens_per_turn must be at least {_MIN_TURN_TOKENS}")
        self.engine()

    def engine(self) -> ReplaySettings:
        """What the engine is told.

        Raises:
            ValueError: sizes that do not hold.
        """
        return ReplaySettings(
            num_layers=self.layers,
            top_k=self.top_k,
            num_experts=self.experts,
            turn_tokens=self.tokens_per_turn,
            max_context=max((self.turns + 1) * self.tokens_per_turn, 1),
        )

    def num_rows(self, turns: int) -> int:
        """Routing rows of a session's first turns."""
        return turns * self.tokens_per_turn - 1

    def narrow_bytes(self) -> int:
        """Bytes of a session's rows, as narrow as the experts' numbers, and of its ids as int32."""
        item_bytes = 1 if self.experts <= 256 else 2 if self.experts <= 1 << 16 else 4
        row_bytes = self.layers * self.top_k * item_bytes
        return self.num_rows(self.turns) * row_bytes + _ID_BYTES * self.turns * self.tokens_per_turn

    def dump_bytes(self) -> int:
        """Bytes of the routing text in a records dump of an engine that sends every row again."""
        rows = sum(self.num_rows(turn + 1) for turn in range(self.turns))
        return rows * self.layers * self.top_k * 4 * 4 // 3


QUICK: Final = Scale(turns=4, tokens_per_turn=400)
