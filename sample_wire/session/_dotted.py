"""Functions of an operator's own, named by dotted paths."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable
from typing import Any


def imported(path: str, what: str) -> Callable[..., Any]:
    """The synchronous function at a dotted path.

    Args:
        path: "package.module.name".
        what: the function's part, for errors.

    Raises:
        ValueError: nothing at that path, or what is there cannot be called synchronously.
    """
    module_name, _, name = path.rpartition(".")
    if not module_name:
        raise ValueError(f"{what} {path!r} is no dotted path")
    try:
        found = getattr(importlib.import_module(module_name), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise ValueError(f"{what} {path!r} cannot be imported: {error}") from error
    if (
        not callable(found)
        or isinstance(found, type)
        or any(
            inspect.iscoroutinefunction(part) or inspect.isasyncgenfunction(part)
            for part in (found, getattr(found, "__call__", None))  # noqa: B004  # its own, to look at
        )
    ):
        raise ValueError(f"{what} {path!r} is no synchronous function")
    return found  # type: ignore[no-any-return]  # what it returns is checked at each call
