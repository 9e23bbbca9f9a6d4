"""What a command does where the packages of its extra are not installed."""

from __future__ import annotations

import sys
from typing import Final

USAGE: Final = 2  # the exit status of wrong usage, and of this


def without_extra(error: ModuleNotFoundError, text: str) -> int:
    """Says what to install, and returns the exit status.

    Args:
        text: one line with a place for the error.

    Raises:
        ModuleNotFoundError: the error itself, where it is a module of ours that is missing.
    """
    if (error.name or "").startswith("sample_wire"):
        raise error
    sys.stderr.write(text.format(error))
    return USAGE
