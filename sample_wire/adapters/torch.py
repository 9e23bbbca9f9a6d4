"""Samples as torch tensors, and as one packed batch for attention over variable lengths.

On the CPU a tensor lies in the very memory that the sample's array lies in: the payload, a
mapped file, shared memory, Ray's object store.  Torch knows no read-only tensors, so nothing
but the rule itself keeps such memory as it is: **do not write into a tensor of `to_torch` in
place**.  In a mapped file that would end the process, and in Ray's store it would change the
sample for everybody.  `decode_samples(..., copy=True)` or `tensor.clone()` gives one to write to.

What goes to another device goes in the dtype that it has, uint8 routing as uint8, and is
widened there: in one call torch would widen it on the host and move four times the bytes.

Needs the extra `torch`.  Shape letters: N samples, T tokens of one sample, S tokens of all of
them, R response tokens, L routed layers, K experts per token.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeAlias, cast, overload

import numpy as np
import torch

from .._arrays import Array, ValueRefusedError, native_contiguous, wire_array
from .._declarations import Computed, Field, Json, Ragged, Rows, Tensor, wire_of
from ..codec import SamplesReply
from ..errors import EncodeError
from ..rows import Axes, axes_of, expected_rows, validate
from ..schema import Schema, schema_of

__all__ = ["NOT_CAPTURED", "PackedBatch", "packed_batch", "to_torch"]

# What stands where no id was captured: engines and the wire use it for routing rows too.
NOT_CAPTURED: Final = -1
Device: TypeAlias = torch.device | str | int | None
SampleTensors: TypeAlias = dict[str, torch.Tensor | list[torch.Tensor] | None]


@overload
def to_torch(  # type: ignore[overload-overlap]  # a reply is an object too; it comes first
    sample_or_reply: SamplesReply[Any], device: Device = None, *, schema: Schema | None = None
) -> list[SampleTensors]: ...
@overload
def to_torch(
    sample_or_reply: object, device: Device = None, *, schema: Schema | None = None
) -> SampleTensors: ...
def to_torch(
    sample_or_reply: object, device: Device = None, *, schema: Schema | None = None
) -> SampleTensors | list[SampleTensors]:
    """The array fields of a sample, or of every sample of a reply, as tensors by field name.

    Args:
        sample_or_reply: a sample, or what decode_samples or collect gave.
        device: where to; None leaves them in the host's memory.
        schema: of the sample; None takes the one that its class declares on itself.

    Returns:
        Tensors of the dtype and shape that the field is declared with (tokens int64 [T],
        loss_mask uint8 [R], rollout_log_probs float64 [R], rollout_routed_experts int32
        [T-1, L, K], and so on), lists of them for ragged fields, None where the field is null.

        In the host's memory they share that of the sample's arrays, also where those are
        read-only: do not write into them.  They keep it alive.  Copied are only arrays that
        torch cannot take as they are: misaligned, not C-contiguous, in the other byte order,
        of a narrower dtype than declared, or lists.

    Raises:
        EncodeError: a value that the declared dtype does not hold; names the field, and in a
            reply the sample.

    Cost: on the host no copy of an array of the declared dtype; else one, in its own dtype.
    """
    if isinstance(sample_or_reply, SamplesReply):
        samples = enumerate(sample_or_reply.samples)
        return [_tensors(sample, device, schema, index) for index, sample in samples]
    return _tensors(sample_or_reply, device, schema, None)


def _tensors(
    sample: object, device: Device, schema: Schema | None, index: int | None
) -> SampleTensors:
    found: SampleTensors = {}
    for field in _array_fields(schema or schema_of(type(sample))):
        value = getattr(sample, field.name)
        if value is None:
            found[field.name] = None
        elif isinstance(_codec(field), Ragged):
            arrays = [_host_array(field, row, index) for row in value]
            found[field.name] = [_widened(field, array, device) for array in arrays]
        else:
            found[field.name] = _widened(field, _host_array(field, value, index), device)
    return found


@dataclasses.dataclass(frozen=True, slots=True)
class PackedBatch:
    """Samples one behind the other, without padding between them.

    Sample i lies at [cu_seqlens[i], cu_seqlens[i + 1]) of the first axis of every tensor.

    Attributes:
        cu_seqlens: int32 [N+1], where each sample begins, and where the last one ends.
        max_seqlen: tokens of the longest sample.
        tensors: by field name, each with S rows, one for each token.
    """

    cu_seqlens: torch.Tensor
    max_seqlen: int
    tensors: Mapping[str, torch.Tensor]


def packed_batch(
    samples: Sequence[object], device: Device = None, *, schema: Schema | None = None
) -> PackedBatch:
    """One packed batch of samples: every per-row field with a row for each of the S tokens.

    Row t of each sample's part is about token t:

    - tokens: the token itself;
    - loss_mask, rollout_log_probs and other fields of the response: of the token itself, given
      those before it.  A prompt token has the field's declared fill: mask 0, log-prob 0.0.
    - rollout_routed_experts [S, L, K], rollout_indexer_topk and other fields with T-1 rows: of
      the forward pass over that token.  The last token of a sample was never fed to the model:
      its row is -1 (NaN in a float field), and so are all rows of a sample in which the field
      is null.  -1 is no expert: mask it before it is used as an index.

    Args:
        samples: N >= 1, of one class, decoded or not.
        device: where the batch is made; None takes the host.
        schema: of the samples; None takes the one that their class declares on itself.

    Returns:
        The batch, in memory of its own.  Dtypes are as declared; unsigned ones with T-1 rows
        become the next signed one, to hold -1.  A field that is null in all samples is left
        out, and so are ragged fields and those without rows.

    Raises:
        EncodeError: a sample breaks a row rule; a field's rows differ in shape; a response's
            field is null in one sample and not in another; a value that the declared dtype
            does not hold; the schema has no axis of tokens.  Names the field and the sample.
        ValueError: no samples.

    Cost: one copy of every array, each moved in the dtype that it has.
    """
    if not samples:
        raise ValueError("a packed batch needs a sample")
    schema = schema or schema_of(type(samples[0]))
    if "tokens" not in schema.axis_fields:
        raise EncodeError("the schema has no axis of tokens")
    for index, sample in enumerate(samples):
        _check_rows(sample, schema, index)
    axes = [axes_of(sample, schema) for sample in samples]
    lengths = [of_one["tokens"] for of_one in axes]
    starts = [*itertools.accumulate(lengths, initial=0)]
    tensors = {}
    for field in _array_fields(schema):
        values = [getattr(sample, field.name) for sample in samples]
        is_dense = _rows(field) is not None and isinstance(_codec(field), Tensor)
        if is_dense and any(value is not None for value in values):
            tensors[field.name] = _packed(field, values, axes, starts, device)
    seqlens = torch.tensor(starts, dtype=torch.int32).to(device)
    return PackedBatch(seqlens, max(lengths), tensors)


def _check_rows(sample: object, schema: Schema, index: int) -> None:
    try:
        validate(sample, schema=schema)
    except EncodeError as error:
        raise EncodeError(
            f"sample {index}, {error}",
            field=error.field,
            sample_index=index,
            expected=error.expected,
            got=error.got,
        ) from None


def _packed(
    field: Field, values: list[Any], axes: list[Axes], starts: list[int], device: Device
) -> torch.Tensor:
    """One field's rows at their tokens, and what stands at all others."""
    rows = cast(Rows, _rows(field))
    arrays = [
        None if value is None else _host_array(field, value, index)
        for index, value in enumerate(values)
    ]
    shape = (starts[-1], *_row_shape(field, arrays))
    dtype, filler = _filling(field)
    batch = torch.full(shape, filler, dtype=dtype, device=device)
    for index, (array, of_one) in enumerate(zip(arrays, axes, strict=True)):
        num_rows = expected_rows(rows, of_one)
        if not num_rows or (array is None and rows == "transitions"):
            continue
        if array is None:
            raise _refused(field, "is null in this sample and not in others", index)
        # The response's rows are those of the sample's last tokens, all others begin with it.
        first = starts[index + 1] - num_rows if rows == "response" else starts[index]
        batch[first : first + num_rows].copy_(_moved(array, device))
    return batch


def _row_shape(field: Field, arrays: Sequence[Array | None]) -> tuple[int, ...]:
    """The shape that all rows share.  An array without rows may say any."""
    shapes = {index: array.shape[1:] for index, array in enumerate(arrays) if array is not None}
    with_rows = {index: shapes[index] for index in shapes if len(cast(Array, arrays[index]))}
    first = next(iter((with_rows or shapes).values()))
    for index, shape in with_rows.items():
        if shape != first:
            raise _refused(field, f"has rows of shape {shape}, others have {first}", index)
    return first


def _filling(field: Field) -> tuple[torch.dtype, float]:
    """The dtype of a field in a batch, and what stands where it has no row."""
    declared = _dtype(field)
    if _rows(field) != "transitions":
        return _torch_dtype(declared), cast(Computed, field.owner).fill or 0
    if declared.kind in "fc":
        return _torch_dtype(declared), float("nan")
    signed = np.result_type(declared, np.int8)
    if signed.kind != "i":
        raise _refused(field, f"is {declared}, and no dtype holds its values and -1")
    return _torch_dtype(signed), NOT_CAPTURED


def _widened(field: Field, array: Array, device: Device) -> torch.Tensor:
    return _moved(array, device).to(_torch_dtype(_dtype(field)))


def _moved(array: Array, device: Device) -> torch.Tensor:
    """The array on the device, in the dtype that it has; in the host's memory, itself."""
    if not array.flags.writeable:
        array = np.asarray(_WritableAlias(array))
    return torch.from_numpy(array).to(device)


def _host_array(field: Field, value: object, index: int | None) -> Array:
    """The value as an array that torch takes, in its own dtype if the declared one holds that.

    The value itself where it is such an array.
    """
    declared = _dtype(field)
    try:
        if isinstance(value, np.ndarray) and np.can_cast(value.dtype, declared, "safe"):
            array = native_contiguous(value)
        else:
            array = wire_array(value, declared, strict=False)
    except ValueRefusedError as error:
        raise _refused(field, error.rule, index) from None
    return array if array.flags.aligned else array.copy()


class _WritableAlias:
    """Says of a read-only array's memory that it may be written, and keeps it alive.

    Torch warns of read-only arrays, once a process, and then shares them all the same.  Who
    may write what is said where the tensors are handed out.
    """

    def __init__(self, array: Array) -> None:
        self.array = array
        told = array.__array_interface__
        self.__array_interface__ = told | {"data": (told["data"][0], False)}


def _array_fields(schema: Schema) -> list[Field]:
    fields = schema.computed(schema.field_sets[-1])
    return [field for field in fields if not isinstance(cast(Computed, field.owner).codec, Json)]


def _codec(field: Field) -> Tensor | Ragged:
    return cast(Tensor | Ragged, cast(Computed, field.owner).codec)


def _rows(field: Field) -> Rows | None:
    return cast(Computed, field.owner).rows


def _dtype(field: Field) -> np.dtype[Any]:
    wire = wire_of(_codec(field))
    assert wire is not None  # the guard refuses such a declaration
    return wire.dtype


def _torch_dtype(dtype: np.dtype[Any]) -> torch.dtype:
    return torch.from_numpy(np.empty(0, dtype)).dtype


def _refused(field: Field, rule: str, index: int | None = None) -> EncodeError:
    where = "" if index is None else f"sample {index}, "
    return EncodeError(f"{where}field {field.name} {rule}", field=field.name, sample_index=index)
