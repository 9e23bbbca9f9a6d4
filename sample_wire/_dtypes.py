"""The one table of wire dtypes: wire name, numpy dtype and place in the layout.

SPEC section 4.2.  Tensors are laid out by rank of their dtype in this table, then by name.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

# numpy 1.26 holds at most 32 axes; fixed here so that every numpy gives one verdict.
MAX_RANK: Final = 32


class WireDtype(NamedTuple):
    """One row of the table.

    `name` is the spelling in the container header, `dtype` the little-endian numpy dtype,
    `itemsize` its bytes, `order` its place in the layout (0 is laid out first).
    """

    name: str
    dtype: np.dtype[np.generic]
    itemsize: int
    order: int


_LAYOUT: Final[tuple[tuple[str, npt.DTypeLike], ...]] = (
    ("U64", np.uint64),
    ("I64", np.int64),
    ("F64", np.float64),
    ("C64", np.complex64),
    ("F32", np.float32),
    ("U32", np.uint32),
    ("I32", np.int32),
    ("F16", np.float16),
    ("U16", np.uint16),
    ("I16", np.int16),
    ("I8", np.int8),
    ("U8", np.uint8),
    ("BOOL", np.bool_),
)

BY_WIRE_NAME: Final[dict[str, WireDtype]] = {
    name: WireDtype(name, np.dtype(kind), np.dtype(kind).itemsize, order)
    for order, (name, kind) in enumerate(_LAYOUT)
}
BY_NUMPY: Final[dict[np.dtype[np.generic], WireDtype]] = {
    row.dtype: row for row in BY_WIRE_NAME.values()
}


def wire_dtype(dtype: npt.DTypeLike) -> WireDtype | None:
    """The table's row for a numpy dtype of either byte order, or None if there is none."""
    return BY_NUMPY.get(np.dtype(dtype).newbyteorder("="))


def _narrower(wide: WireDtype) -> tuple[WireDtype, ...]:
    """The dtypes that a tensor of a wide one may be stored in, the first that fits first."""
    if wide.dtype.kind == "f":
        return (BY_WIRE_NAME["F32"],) if wide.name == "F64" else ()
    smaller = [
        row
        for row in BY_WIRE_NAME.values()
        if row.dtype.kind in "iu"
        and row.itemsize < wide.itemsize
        and np.can_cast(row.dtype, wide.dtype, "safe")
    ]
    return tuple(sorted(smaller, key=lambda row: (row.itemsize, row.dtype.kind == "i")))


# The compact layout, SPEC section 5.4: by wire name of the logical dtype.
NARROWER: Final[dict[str, tuple[WireDtype, ...]]] = {
    row.name: _narrower(row) if row.dtype.kind in "iuf" else () for row in BY_WIRE_NAME.values()
}
BY_NUMPY_NAME: Final[dict[str, WireDtype]] = {row.dtype.name: row for row in BY_WIRE_NAME.values()}
