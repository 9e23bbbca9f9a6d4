"""The recorded traffic of real engines, as records."""

from __future__ import annotations

import functools
import importlib.resources
import json
from pathlib import Path
from typing import Any, Final

from ._records import Record

FOLDER: Final = Path(__file__).parents[1] / "data" / "captures"
PACKAGED: Final = "vllm_tito_s21_t5"


def capture_bytes(name: str) -> bytes:
    """The capture's file; one of them comes with the package."""
    if name == PACKAGED:
        return importlib.resources.files("sample_wire.demo").joinpath(f"{name}.json").read_bytes()
    return (FOLDER / f"{name}.json").read_bytes()


@functools.cache
def _parsed(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(capture_bytes(name))
    return found


def turns_of(name: str) -> list[Record]:
    """The turns of a recorded session."""
    return [*_parsed(name)["turns"]]


def exchanges() -> dict[str, Record]:
    """The single exchanges, by their note."""
    return {exchange["note"]: exchange for exchange in _parsed("sgl_misc")["exchanges"]}
