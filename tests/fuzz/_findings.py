"""What a fuzzer finds."""

from __future__ import annotations

from typing import NamedTuple


class Finding(NamedTuple):
    """Something that must not happen: what, and the input that shows it."""

    what: str
    data: bytes

    def __str__(self) -> str:
        return f"{self.what}\n  bytes.fromhex({self.data.hex()!r})"
