"""Torch warns of what it is handed every time, not once a process: a warning is an error here."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def _warn_always() -> Iterator[None]:
    if importlib.util.find_spec("torch") is None:
        yield
        return
    import torch

    torch.set_warn_always(True)
    yield
    torch.set_warn_always(False)
