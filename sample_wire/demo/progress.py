"""Progress on standard error: one line that is written over on a terminal, few lines in a log."""

from __future__ import annotations

import sys
from typing import Final

_CLEARED: Final = "\r\x1b[K"


class Progress:
    """Tells how far the work is; on a terminal `close` leaves nothing of it."""

    def __init__(self) -> None:
        self._is_terminal = sys.stderr.isatty()

    def step(self, text: str) -> None:
        """A step that is worth a line of a log."""
        self._write(_CLEARED + text if self._is_terminal else f"sample-wire: {text}\n")

    def detail(self, text: str) -> None:
        """One of many small steps: a terminal shows it, a log leaves it out."""
        if self._is_terminal:
            self._write(_CLEARED + text)

    def close(self) -> None:
        """Takes the line away."""
        if self._is_terminal:
            self._write(_CLEARED)

    def _write(self, text: str) -> None:
        sys.stderr.write(text)
        sys.stderr.flush()
