"""The array fields of a sample: each knows how its values become tensors and come back.

A dense field is one tensor a sample.  A ragged field is two, flat values and the offsets of
its rows.  SPEC section 5.1.
"""

from __future__ import annotations

import itertools
import typing
from typing import Any, Final

import numpy as np

from ._arrays import Array, ValueRefusedError, flat_packer, native_contiguous, owned, wire_array
from ._container import TensorRef, TensorToWrite, tensor_of
from ._declarations import Axis, Computed, Field, Ragged, Rows, Tensor, wire_of
from ._dtypes import BY_WIRE_NAME, WireDtype
from .blocks import RowBlocks
from .errors import FieldError
from .payload import Piece, Recast

_OFFSETS: Final = BY_WIRE_NAME["I64"]
Refs = tuple[TensorRef, ...]


class Views(typing.Protocol):
    """A container of either layout, as far as values are read from it."""

    def view(self, ref: TensorRef) -> Array:
        """The tensor as a read-only array."""


class DenseField:
    """An array field whose value is one tensor.

    Attributes:
        name: the field's name.
        rows, sets, experts: as declared.
        nullable: whether None travels as null.
        null_is_empty: whether a null that is read becomes an empty array.
        is_list: whether the class wants lists.
        rank: of the tensor.
        wire: the wire dtype.
    """

    __slots__ = (
        "_dtype",
        "_pack",
        "_strict",
        "_wire_name",
        "experts",
        "is_list",
        "name",
        "null_is_empty",
        "nullable",
        "rank",
        "rows",
        "sets",
        "wire",
    )

    def __init__(self, field: Field) -> None:
        owner = typing.cast(Computed, field.owner)
        codec = typing.cast(Tensor | Ragged, owner.codec)
        self.name = field.name
        self.rows: Rows | None = owner.rows
        self.sets: Axis | None = owner.sets
        self.nullable = owner.null == "none"
        self.null_is_empty = owner.null == "empty"
        self.is_list = field.is_list
        self.rank = codec.rank if isinstance(codec, Tensor) else 1
        self._strict = isinstance(codec, Tensor) and codec.strict
        self.experts = isinstance(codec, Tensor) and codec.experts
        self.wire = typing.cast(WireDtype, wire_of(codec))
        self._wire_name = self.wire.name
        self._dtype = self.wire.dtype
        self._pack = flat_packer(self._dtype)

    def encode(self, index: int, value: Any, tensors: list[TensorToWrite]) -> tuple[int, ...]:
        """Adds the value's tensors to the list; returns the shape its rows are counted by.

        Raises:
            ValueRefusedError: the tensors would not be equal to the value.
        """
        if type(value) is not np.ndarray or not (
            value.dtype is self._dtype and value.flags.c_contiguous
        ):
            if isinstance(value, RowBlocks):
                return self._encode_blocks(index, value, tensors)
            value = wire_array(value, self._dtype, strict=self._strict)
        shape: tuple[int, ...] = value.shape
        if len(shape) != self.rank:
            self._check_rank(len(shape))
        tensors.append(tensor_of(f"{self.name}.{index}", self.wire, value))
        return shape

    def converted(self, value: Any) -> Array | None:
        """A value as a wire array; None where it is none."""
        if value is None:
            return None
        try:
            if type(value) is list and not self._strict:
                packed = self._pack(value)
                if packed is not None:
                    return packed
            return wire_array(value, self._dtype, strict=self._strict)
        except ValueRefusedError:
            return None

    def _encode_blocks(
        self, index: int, value: RowBlocks, tensors: list[TensorToWrite]
    ) -> tuple[int, ...]:
        """Rows in blocks are not joined: each is aliased, or widened when it is sent."""
        self._check_rank(len(value.shape))
        pieces: list[Piece] = []
        for block in map(native_contiguous, value.blocks):
            is_same = block.dtype == self._dtype
            holds_bools = block.dtype.kind == "b"
            if not is_same and (holds_bools or not np.can_cast(block.dtype, self._dtype, "safe")):
                raise ValueRefusedError(
                    f"holds {block.dtype} rows, which {self._dtype} cannot carry unchanged",
                    expected=str(self._dtype),
                    got=str(block.dtype),
                )
            pieces.append(block if is_same else Recast(block, self._dtype))
        nbytes = sum(piece.nbytes for piece in pieces)
        name = f"{self.name}.{index}"
        tensors.append((self.wire.order, name, self.wire.name, value.shape, pieces, nbytes))
        return value.shape

    def _check_rank(self, rank: int) -> None:
        if rank != self.rank:
            raise ValueRefusedError(
                f"has rank {rank}, not {self.rank}", expected=str(self.rank), got=str(rank)
            )

    def find(self, tensors: dict[str, TensorRef], index: int) -> tuple[Refs, typing.Sequence[int]]:
        """The field's tensors for one sample, and the shape its rows are counted by.

        Raises:
            FieldError: one is not there, or is of another dtype or rank.
        """
        ref = tensors.get(f"{self.name}.{index}")
        if ref is None or ref.dtype != self._wire_name or len(ref.shape) != self.rank:
            raise self._misfit(index, ref, self.wire)
        return (ref,), ref.shape

    def read(self, container: Views, refs: Refs, index: int) -> Any:  # noqa: ARG002  # ragged fields name the sample
        """The value: a read-only view, or for a ragged field a list of them."""
        return container.view(refs[0])

    def empty(self) -> Any:
        """What a null reads as where null means empty."""
        return np.empty((0,) * self.rank, self._dtype)

    def finish(self, value: Any, copy: bool) -> Any:
        """A value that was read, in the form the class wants: lists, or writable copies."""
        if value is None:
            return None
        if self.is_list:
            return value.tolist()
        return owned(value) if copy else value

    def error(self, index: int, rule: str, **facts: str) -> FieldError:
        """A FieldError about this field of one sample."""
        return FieldError(
            f"sample {index}, field {self.name} {rule}",
            field=self.name,
            sample_index=index,
            expected=facts.get("expected"),
            got=facts.get("got"),
        )

    def _misfit(self, index: int, ref: TensorRef | None, wire: WireDtype) -> FieldError:
        """The error about a tensor that is not there, or not of the dtype and the field's rank."""
        if ref is None:
            return self.error(index, "has no tensor, and is not listed in nulls")
        expected = f"{wire.name} of rank {self.rank}"
        got = f"{ref.dtype} of rank {len(ref.shape)}"
        return self.error(index, f"is {got}, not {expected}", expected=expected, got=got)


class RaggedField(DenseField):
    """An array field whose value is a list of runs of any length."""

    __slots__ = ()

    def encode(self, index: int, value: Any, tensors: list[TensorToWrite]) -> tuple[int, ...]:
        if not isinstance(value, (list, tuple)):
            raise ValueRefusedError(
                f"is a {type(value).__name__}, a ragged field is a list of rows"
            )
        rows: list[Array] = [np.empty(0, self._dtype)]
        for position, row in enumerate(value):
            array = wire_array(row, self._dtype, strict=False)
            if array.ndim != 1:
                raise ValueRefusedError(f"has a row of rank {array.ndim} at position {position}")
            rows.append(array)
        offsets = np.cumsum([len(row) for row in rows], dtype=np.int64)
        names = self._names(index)
        tensors.append(tensor_of(names[0], self.wire, np.concatenate(rows)))
        tensors.append(tensor_of(names[1], _OFFSETS, offsets))
        return (len(value),)

    def find(self, tensors: dict[str, TensorRef], index: int) -> tuple[Refs, typing.Sequence[int]]:
        names = self._names(index)
        values = self._vector(tensors, index, names[0], self.wire)
        offsets = self._vector(tensors, index, names[1], _OFFSETS)
        if offsets.shape[0] == 0:
            raise self.error(index, "has no offsets, not even the first")
        return (values, offsets), (offsets.shape[0] - 1,)

    def read(self, container: Views, refs: Refs, index: int) -> Any:
        values, offsets = container.view(refs[0]), container.view(refs[1])
        in_order = offsets[0] == 0 and (offsets[1:] >= offsets[:-1]).all()
        if not in_order or offsets[-1] != len(values):
            raise self.error(index, "has offsets that do not cover its values in order")
        return [values[start:stop] for start, stop in itertools.pairwise(offsets.tolist())]

    def empty(self) -> Any:
        return []

    def finish(self, value: Any, copy: bool) -> Any:
        if value is None or not (copy or self.is_list_of_lists):
            return value
        return [row.tolist() if self.is_list_of_lists else row.copy() for row in value]

    @property
    def is_list_of_lists(self) -> bool:
        """Whether the rows too are wanted as lists; the rows' container always is one."""
        return self.is_list

    def _vector(
        self, tensors: dict[str, TensorRef], index: int, name: str, wire: WireDtype
    ) -> TensorRef:
        ref = tensors.get(name)
        if ref is None or ref.dtype != wire.name or len(ref.shape) != 1:
            raise self._misfit(index, ref, wire)
        return ref

    def _names(self, index: int) -> tuple[str, str]:
        return f"{self.name}.values.{index}", f"{self.name}.offsets.{index}"


def array_field(field: Field) -> DenseField:
    """The compiled form of a declared array field."""
    codec = typing.cast(Computed, field.owner).codec
    return RaggedField(field) if isinstance(codec, Ragged) else DenseField(field)
