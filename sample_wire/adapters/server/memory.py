"""Memory that large requests and replies leave behind, given back to the system."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Final

# From this size on a reply leaves holes among what a session keeps: as much again as that.
LARGE_REPLY_BYTES: Final = 1 << 23
# Tokenizers take 150 times as much: 1 GB stayed behind a text of 8 MB.
LARGE_TEXT_BYTES: Final = 1 << 20


def _trimming() -> Callable[[int], int] | None:
    """glibc's malloc_trim; None with another C library, which may need none."""
    return getattr(ctypes.CDLL(None), "malloc_trim", None)


_trim: Final = _trimming()


def give_back() -> None:
    """Gives free memory back to the system, where the C library can."""
    if _trim is not None:
        _trim(0)


def tidied(packing: Callable[[], None], reply_bytes: int) -> None:
    """Packs what is kept of a reply; behind a large one free memory goes back to the system.

    For a thread of its own: neither step holds the interpreter's lock for long.

    Args:
        packing: as Trajectory.packing gives it.
        reply_bytes: the size of the reply.
    """
    packing()
    if reply_bytes >= LARGE_REPLY_BYTES:
        give_back()
