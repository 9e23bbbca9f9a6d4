"""The compact layout, written: from the tensors of the exact layout to those of format 2.

Tensors of one field are stored in one dtype, the narrowest that holds them all; rows that a
sample has in common with an earlier one are left out.  Fields are known by what they declare.
SPEC section 5.4.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

import numpy as np

from ._arrays import Array
from ._container import TensorToWrite
from ._dtypes import BY_WIRE_NAME, WireDtype
from ._narrowing import NarrowIntegers, narrowed, narrowing_of
from ._shared_rows import Rows, shared_rows
from .errors import EncodeError
from .payload import Piece, Recast


class CompactTensors(NamedTuple):
    """Tensors of format 2 and what the document says of them.

    Attributes:
        tensors: in the order of the layout.
        shared: tensor name to the earlier sample and the number of rows left out.
        dtypes: tensor name to the logical dtype's numpy name.
    """

    tensors: list[TensorToWrite]
    shared: dict[str, tuple[int, int]]
    dtypes: dict[str, str]


class _Stored(NamedTuple):
    """One tensor of a field: as in the exact layout, its arrays flat, and each of them narrowed
    as far as was known when it came."""

    tensor: TensorToWrite
    sources: Sequence[Array]
    pieces: Sequence[Array]

    @property
    def sample(self) -> int:
        return _split(self.tensor[1])[1]


def compact_tensors(
    tensors: Sequence[TensorToWrite],
    experts: Collection[str],
    transitions: Collection[str],
    num_experts: int | None,
) -> CompactTensors:
    """The tensors of all samples in the compact layout.

    Args:
        tensors: those of the exact layout, of each field in order of the samples.
        experts: names of the fields that hold expert ids.
        transitions: names of the tensor fields whose first rows may be shared.
        num_experts: how many experts there are, or None: then by the largest id.

    Raises:
        EncodeError: an expert id beyond num_experts; it is named.
    """
    fields: dict[str, list[TensorToWrite]] = {}
    for tensor in tensors:
        fields.setdefault(_split(tensor[1])[0], []).append(tensor)
    written: list[TensorToWrite] = []
    shared: dict[str, tuple[int, int]] = {}
    for name, of_field in fields.items():
        declared = num_experts if name in experts else None
        wire, stored = _narrowed(of_field, declared)
        # Equal floats may differ in bits, and bits in a NaN.
        may_share = len(stored) > 1 and name in transitions and wire.dtype.kind in "iu"
        common = _shared(stored) if may_share else {}
        for item in stored:
            found = common.get(item.sample)
            written.append(_written(item, wire, found[1] if found else 0))
            if found:
                shared[item.tensor[1]] = found
    written.sort()
    logical = {tensor[1]: BY_WIRE_NAME[tensor[2]].dtype.name for tensor in tensors}
    names = [tensor[1] for tensor in written]
    return CompactTensors(
        written,
        {name: shared[name] for name in names if name in shared},
        {name: logical[name] for name in names},
    )


def _split(name: str) -> tuple[str, int]:
    """What is the same in the tensor's name of every sample, and the sample."""
    field, _, sample = name.rpartition(".")
    return field, int(sample)


def _narrowed(
    tensors: Sequence[TensorToWrite], num_experts: int | None
) -> tuple[WireDtype, list[_Stored]]:
    """The tensors of one field, at least one, and the dtype that all of them fit into."""
    rule = narrowing_of(BY_WIRE_NAME[tensors[0][2]], (num_experts or 1) - 1)
    stored = []
    for tensor in tensors:
        sources = [_flat(piece) for piece in tensor[4]]
        pieces = [rule.add(source) for source in sources]
        if num_experts is not None and isinstance(rule, NarrowIntegers):
            _check_ids(tensor, sources, rule, num_experts)
        stored.append(_Stored(tensor, sources, pieces))
    return rule.wire, stored


def _flat(piece: Piece) -> Array:
    if isinstance(piece, Recast):
        return piece.flat
    assert isinstance(piece, np.ndarray), "only the document lies in other buffers"
    return piece.reshape(-1)


def _check_ids(
    tensor: TensorToWrite, sources: Sequence[Array], rule: NarrowIntegers, num_experts: int
) -> None:
    if rule.low >= -1 and rule.high < num_experts:
        return
    whole = np.concatenate(sources)
    at = int(np.argmax((whole < -1) | (whole >= num_experts)))
    place = tuple(map(int, np.unravel_index(at, tuple(tensor[3]))))
    raise _id_error(tensor[1], whole[at], place, num_experts)


def _id_error(name: str, found: Any, place: tuple[int, ...], num_experts: int) -> EncodeError:
    field, sample = _split(name)
    return EncodeError(
        f"sample {sample}, field {field} holds id {found} at position {place}, "
        f"there are {num_experts} experts",
        field=field,
        sample_index=sample,
        expected=f"-1 or 0 to {num_experts - 1}",
        got=str(found),
    )


def _shared(stored: Sequence[_Stored]) -> dict[int, tuple[int, int]]:
    return shared_rows([Rows(item.sample, tuple(item.tensor[3]), item.sources) for item in stored])


def _written(item: _Stored, wire: WireDtype, num_shared: int) -> TensorToWrite:
    """The tensor in its stored dtype, without the rows that are shared."""
    _, name, logical, shape, given, _ = item.tensor
    pieces: Sequence[Piece] = given
    if wire.name != logical:
        # An array stays one, so that readers of a Payload need not join it; blocks are many.
        recast = narrowed if len(item.sources) == 1 else _recast
        pieces = [
            piece if piece.dtype == wire.dtype else recast(source, wire)
            for source, piece in zip(item.sources, item.pieces, strict=True)
        ]
    if num_shared:
        row_items = int(np.prod(shape[1:], dtype=np.int64))
        pieces = _without_first(pieces, num_shared * row_items)
        shape = (shape[0] - num_shared, *shape[1:])
    return wire.order, name, wire.name, shape, pieces, sum(piece.nbytes for piece in pieces)


def _recast(source: Array, wire: WireDtype) -> Recast:
    return Recast(source, wire.dtype)


def _without_first(pieces: Sequence[Piece], num_items: int) -> list[Piece]:
    kept: list[Piece] = []
    for piece in pieces:
        whole = piece if isinstance(piece, Recast) else _flat(piece)
        if num_items < whole.size:
            kept.append(whole[num_items:])
        num_items = max(num_items - whole.size, 0)
    return kept
