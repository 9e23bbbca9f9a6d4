"""A sample class with one field for each wire dtype, and a way to send one value through it."""

from __future__ import annotations

from typing import Annotated, Any

from sample_wire import Computed, EncodeError, Ragged, Sample, Tensor

from ._samples import refused, round_trip


def plain(dtype: str, rank: int = 1, *, strict: bool = False) -> Computed:
    """The declaration of an optional array field without rows."""
    return Computed(codec=Tensor(dtype, rank, strict), merge="last", null="none")


class Typed(Sample):
    """Optional arrays without rows, one for each dtype."""

    u64: Annotated[Any, plain("uint64")] = None
    i64: Annotated[Any, plain("int64")] = None
    f64: Annotated[Any, plain("float64")] = None
    c64: Annotated[Any, plain("complex64")] = None
    f32: Annotated[Any, plain("float32")] = None
    u32: Annotated[Any, plain("uint32")] = None
    i32: Annotated[Any, plain("int32")] = None
    f16: Annotated[Any, plain("float16")] = None
    u16: Annotated[Any, plain("uint16")] = None
    i16: Annotated[Any, plain("int16")] = None
    i8: Annotated[Any, plain("int8")] = None
    u8: Annotated[Any, plain("uint8")] = None
    flag: Annotated[Any, plain("bool")] = None
    strict_i32: Annotated[Any, plain("int32", strict=True)] = None
    grid: Annotated[Any, plain("int32", 2)] = None
    number: Annotated[Any, plain("float32", 0)] = None
    runs: Annotated[
        Any, Computed(codec=Ragged("int32"), rows="tokens", merge="last", null="none")
    ] = None


def sent(field: str, value: object) -> Any:
    """What comes back of a value in a field."""
    sample = Typed()
    setattr(sample, field, value)
    return getattr(round_trip(sample), field)


def not_sent(field: str, value: object) -> EncodeError:
    """The error that a value in a field is refused with; it names the field and the sample."""
    sample = Typed()
    setattr(sample, field, value)
    error = refused(sample)
    assert (error.field, error.sample_index) == (field, 0)
    assert f"field {field} " in str(error)
    return error
