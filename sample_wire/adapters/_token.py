"""The bearer token of session servers: what it may be, for who asks for it and who sends it."""

from __future__ import annotations

import re
from typing import Final

_TOKEN: Final = re.compile("[!-~]+")


def checked_token(token: str) -> str:
    """A token that an HTTP header can carry.

    Raises:
        ValueError: it is none; its text is not told.
    """
    if _TOKEN.fullmatch(token) is None:
        raise ValueError("a token is one or more visible ASCII characters")
    return token
