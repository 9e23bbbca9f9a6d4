"""Where an array lies, and how much memory of its own a process has."""

from __future__ import annotations

import pathlib
from typing import Any

import numpy as np


def address(array: Any) -> int:
    """Where the array's first byte is."""
    return int(array.__array_interface__["data"][0])


def lies_in_the_store(array: np.ndarray[Any, Any]) -> bool:
    """Whether all of an array's bytes are in the memory that this process shares with the store."""
    start = address(array)
    for line in pathlib.Path("/proc/self/maps").read_text("ascii").splitlines():
        low, high = (int(part, 16) for part in line.split()[0].split("-"))
        if low <= start < high:
            return "plasma" in line and start + array.nbytes <= high
    return False


def owner(array: Any) -> Any:
    """Whose memory the array is a view of, at the end of the chain."""
    while isinstance(array, np.ndarray) and array.base is not None:
        array = array.base
    return array.obj if isinstance(array, memoryview) else array


def private_bytes() -> int:
    """Memory that this process shares with no other: what a copy of an array would add to."""
    for line in pathlib.Path("/proc/self/status").read_text("ascii").splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) * 1024
    raise AssertionError("no RssAnon")
