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
    except Exception as error:  # a module's own code may raise anything
        raise ValueError(f"{what} {path!r} cannot be imported: {error}") from error
    if not _is_synchronous(found):
        raise ValueError(f"{what} {path!r} is no synchronous function")
    return found  # type: ignore[no-any-return]  # what it returns is checked at each call


def _is_synchronous(found: object) -> bool:
    """Whether it is a function, or an object that is called as one; a class is neither."""
    if not callable(found) or isinstance(found, type):
        return False
    called = (found, getattr(found, "__call__", None))  # noqa: B004  # its own, to look at
    return not any(
        inspect.iscoroutinefunction(part) or inspect.isasyncgenfunction(part) for part in called
    )
