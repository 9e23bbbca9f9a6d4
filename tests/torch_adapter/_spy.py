"""What torch is asked to do: the device and dtype of every tensor that is moved or cast."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

Move = tuple[str, str]


@contextlib.contextmanager
def moves() -> Iterator[list[Move]]:
    """(dtype, device) of what each move or cast gave, in order, while the block runs."""
    # Here, for this file is looked into for doctests also where there is no torch.
    from torch.utils._python_dispatch import TorchDispatchMode

    seen: list[Move] = []

    def dispatch(_mode: Any, function: Any, _types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = function(*args, **(kwargs or {}))
        if function.__name__.startswith("_to_copy"):
            seen.append((str(result.dtype).removeprefix("torch."), result.device.type))
        return result

    # Not a class statement: mypy must pass where torch is not installed, and its classes are Any.
    with type("Spy", (TorchDispatchMode,), {"__torch_dispatch__": dispatch})():
        yield seen
