"""Attributes of an object as a tuple, read at C speed."""

from __future__ import annotations

import operator
import typing
from collections.abc import Callable, Sequence
from typing import Any


def tuple_getter(names: Sequence[str]) -> Callable[[Any], tuple[Any, ...]]:
    """Reads attributes of an object as a tuple; at C speed where there are several."""
    if len(names) > 1:
        return typing.cast(Callable[[Any], tuple[Any, ...]], operator.attrgetter(*names))
    if names:
        only = operator.attrgetter(*names)
        return lambda item: (only(item),)
    return lambda _item: ()
