"""The compact layout, read: a container whose tensors look as in the exact layout.

The header and the document together say what each tensor is logically: its dtype, and its shape
with the rows that it shares with an earlier sample.  All of it is checked before an array is
made; then every array is made when it is asked for.  SPEC section 5.4.
"""

from __future__ import annotations

import collections
from collections.abc import Collection, Mapping
from math import prod
from typing import Final, cast

import numpy as np

from ._arrays import Array
from ._container import Container, TensorRef
from ._dtypes import BY_NUMPY_NAME, BY_WIRE_NAME, NARROWER
from ._meta import META_TENSOR
from ._spans import over_spans
from .errors import FieldError, LimitError

MAX_SHARED_BYTES: Final = 4 << 30
# Of a sample's number; there are never so many.
_MAX_DIGITS: Final = 19


class CompactRef(TensorRef, frozen=True, kw_only=True):
    """A tensor as it is logically; data_offsets are of what is stored of it.

    Attributes:
        name: in the container.
        stored: its entry in the header.
        prefix: name of the earlier sample's tensor that its first rows are taken from, or None.
        num_shared: how many rows.
    """

    name: str
    stored: TensorRef
    prefix: str | None = None
    num_shared: int = 0


class CompactContainer:
    """The tensors of a payload of format 2; the counterpart of Container.

    Args:
        container: the bytes.
        shared, dtypes: as the document has them.
        fields: names of the computed fields, which errors may tell.
        transitions: names of those tensor fields that may share rows.
        widen: give arrays of the logical dtype; else of the stored one.
        max_shared_bytes: of the arrays that have shared rows, all rows, in the logical dtype.

    Attributes:
        tensors: every tensor, `_samples_meta` too, by name.

    Raises:
        FieldError, LimitError: SPEC section 9.2, rules F12 to F14 and L2.
    """

    __slots__ = ("_container", "_fields", "_num_users", "_prefixes", "_widen", "tensors")

    def __init__(
        self,
        container: Container,
        shared: Mapping[str, tuple[int, int]],
        dtypes: Mapping[str, str],
        fields: Collection[str],
        transitions: Collection[str],
        *,
        widen: bool,
        max_shared_bytes: int,
    ) -> None:
        self._container = container
        self._fields = fields
        self._widen = widen
        odd = dtypes.keys() ^ (container.tensors.keys() - {META_TENSOR})
        if odd:
            raise self._misfit(min(odd), "is not named by dtypes, or only there")
        self.tensors: dict[str, TensorRef] = dict(container.tensors)
        for name, dtype in dtypes.items():
            self.tensors[name] = self._logical(name, dtype)
        # Arrays that later samples take rows of, while they are needed, and how many still do.
        self._prefixes: dict[str, Array | None] = {}
        self._num_users: collections.Counter[str] = collections.Counter()
        left = max_shared_bytes
        samples = {name: self._sample_of(name, transitions) for name in shared}
        for name, sample in sorted(samples.items(), key=lambda item: item[1]):
            ref = self._with_shared(name, sample, *shared[name])
            left -= prod(ref.shape) * BY_WIRE_NAME[ref.dtype].itemsize
            if left < 0:
                raise LimitError(
                    f"the arrays with shared rows take more than {max_shared_bytes} bytes",
                    expected=f"at most {max_shared_bytes} bytes",
                )
            self.tensors[name] = ref

    def view(self, ref: TensorRef) -> Array:
        """The tensor as a read-only array: with all its rows, and widened if that was asked for.

        A view of the buffer where it is stored as it is wanted; else an array of its own.

        Args:
            ref: of `tensors`, but not that of the document.
        """
        chain = [cast(CompactRef, ref)]
        while (name := chain[-1].prefix) is not None and self._prefixes[name] is None:
            chain.append(cast(CompactRef, self.tensors[name]))
        for item in reversed(chain):
            array = self._made(item)
            if item.name in self._prefixes:
                self._prefixes[item.name] = array
        return array

    def _made(self, ref: CompactRef) -> Array:
        own = self._container.view(ref.stored)
        dtype = BY_WIRE_NAME[ref.dtype].dtype if self._widen else own.dtype
        if ref.prefix is None and own.dtype == dtype:
            return own
        try:
            whole: Array = np.empty(ref.shape, dtype)
        except MemoryError:
            raise LimitError(f"there is no memory for an array of shape {ref.shape}") from None
        if ref.prefix is None:
            _copy(whole, own)
        else:
            _copy(whole[: ref.num_shared], self._first_rows(ref.prefix, ref.num_shared))
            _copy(whole[ref.num_shared :], own)
        whole.flags.writeable = False
        return whole

    def _first_rows(self, name: str, num_rows: int) -> Array:
        """Rows of an array that has been made, which is let go after its last user."""
        rows = self._prefixes[name]
        assert rows is not None, "prefixes are made before what takes their rows"
        self._num_users[name] -= 1
        if self._num_users[name] <= 0:
            self._prefixes[name] = None
        return rows[:num_rows]

    def _logical(self, name: str, dtype: str) -> CompactRef:
        stored = self._container.tensors[name]
        wire = BY_NUMPY_NAME.get(dtype)
        if wire is None:
            raise self._misfit(name, "is of no dtype of the format, by dtypes")
        if stored.dtype not in (wire.name, *(row.name for row in NARROWER[wire.name])):
            raise self._misfit(name, f"is {stored.dtype}, which no {wire.name} is stored as")
        return CompactRef(wire.name, stored.shape, stored.data_offsets, name=name, stored=stored)

    def _with_shared(self, name: str, sample: int, earlier: int, num_rows: int) -> CompactRef:
        prefix = f"{_place(name)[0]}.{earlier}"
        mine, other = self.tensors.get(name), self.tensors.get(prefix)
        if not isinstance(mine, CompactRef) or not isinstance(other, CompactRef):
            raise self._misfit(name, "shares rows, but it or the other sample has no tensor")
        if earlier >= sample:
            raise self._misfit(name, "shares rows with a sample that is not before it")
        is_alike = mine.stored.dtype == other.stored.dtype and mine.dtype == other.dtype
        if not (is_alike and mine.shape and other.shape and mine.shape[1:] == other.shape[1:]):
            raise self._misfit(name, "shares rows of another dtype or shape")
        if not 0 < num_rows <= other.shape[0]:
            raise self._misfit(name, f"shares {num_rows} rows, the other has {other.shape[0]}")
        self._prefixes[prefix] = None
        self._num_users[prefix] += 1
        shape = [mine.shape[0] + num_rows, *mine.shape[1:]]
        return CompactRef(
            mine.dtype,
            shape,
            mine.data_offsets,
            name=name,
            stored=mine.stored,
            prefix=prefix,
            num_shared=num_rows,
        )

    def _sample_of(self, name: str, transitions: Collection[str]) -> int:
        """The sample that a tensor with shared rows belongs to."""
        field, sample = _place(name)
        if sample is None or field not in transitions:
            raise self._misfit(name, "has no rows that samples may share")
        return sample

    def _misfit(self, name: str, rule: str) -> FieldError:
        """The error about a tensor, named only where its field is a known one: a payload's own
        words are not repeated."""
        field, sample = _place(name)
        field = field.removesuffix(".values").removesuffix(".offsets")
        if sample is None or field not in self._fields:
            return FieldError(f"a tensor {rule}")
        return FieldError(
            f"sample {sample}, field {field} {rule}", field=field, sample_index=sample
        )


def _place(name: str) -> tuple[str, int | None]:
    """The field and the sample of a tensor's name; no sample where it is not spelled as one."""
    field, _, text = name.rpartition(".")
    is_number = text.isascii() and text.isdigit() and len(text) < _MAX_DIGITS
    return field, int(text) if is_number and str(int(text)) == text else None


def _copy(target: Array, source: Array) -> None:
    flat, items = target.reshape(-1), source.reshape(-1)

    def copy(start: int, stop: int) -> None:
        with np.errstate(all="ignore"):  # a signalling NaN becomes a quiet one
            np.copyto(flat[start:stop], items[start:stop])

    over_spans(flat.size, flat.nbytes, copy)
