"""encode_samples and decode_samples: the one place that knows both sides of the wire.

Encoding refuses what would not come back equal and sends only bytes of the caller's values.
Decoding gives a reply or a DecodeError for any bytes, repairs nothing, and never touches the
caller's template.  Both loop over a Plan; no field is named here.

Shape letters: N samples.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, Generic, Literal, TypeVar, get_args

import msgspec
import numpy as np

from ._arrays import ValueRefusedError
from ._compact import MAX_SHARED_BYTES
from ._compact_write import compact_tensors
from ._container import MAX_HEADER_BYTES, TensorToWrite, build_container
from ._declarations import Rows
from ._dtypes import BY_WIRE_NAME
from ._json import MAX_JSON_DEPTH
from ._meta import META_TENSOR, compact_document, write_document
from ._plan import Plan, plan_of
from .errors import EncodeError
from .overlay import independent, updated
from .payload import Payload, as_bytes_view
from .reader import MAX_SAMPLES, PayloadReader
from .rows import Axes, RowRuleError, check_rows
from .sample import Sample
from .schema import Schema, schema_of

_UINT8: Final = BY_WIRE_NAME["U8"]
SampleT = TypeVar("SampleT")
Layout = Literal["exact", "compact"]
LAYOUTS: Final = get_args(Layout)


class SamplesReply(msgspec.Struct, Generic[SampleT], frozen=True):
    """What decode_samples returns.

    Attributes:
        samples: N samples of the template's type.
        session_metadata: the session's JSON object; its own, not shared.
        empty_reason: why there are no samples, or None.
    """

    samples: list[SampleT]
    session_metadata: dict[str, Any]
    empty_reason: str | None


def encode_samples(
    samples: Sequence[object],
    session_metadata: dict[str, Any] | None = None,
    *,
    empty_reason: str | None = None,
    field_set: int = 1,
    layout: Layout = "exact",
    num_experts: int | None = None,
    schema: Schema | None = None,
) -> Payload:
    """One payload with these samples.

    Args:
        samples: N >= 0 instances of the schema's class.  A reader takes 4096 by default.
        session_metadata: a JSON object about the session, or None for an empty one.
        empty_reason: text that says why there are no samples, or None.
        field_set: 1, or 2 to carry reward as well.
        layout: "exact" sends the declared dtypes; "compact" the narrowest that lose nothing, and
            rows that samples have in common once.  Send it to who asked for format 2.
        num_experts: how many experts the model has.  The compact layout then takes expert ids'
            width from it, and refuses ids beyond it; None goes by the largest id of the payload.
            The exact layout does not look at it.
        schema: None takes what the samples' class declares; then they are all of one class.

    Returns:
        The unjoined payload.  It aliases the samples' arrays wherever those are C-contiguous
        native arrays of the dtype that is sent: change none of them before it is sent.

    Raises:
        EncodeError: a value would not come back equal, or a row rule is broken; it is named.
        TypeError: a sample is not of the schema's class, or num_experts is no integer.
        ValueError: no such layout, or num_experts is not above 0.

    Cost: no copy of an array that is in wire form; one of every other.  The compact layout looks
        at every value, and its copies are narrow: a quarter of an int32 array of up to 256
        experts.  Rows of several samples are compared with those of up to 8 samples before.

    Source: SPEC sections 5.4 and 7.
    """
    _check_layout(layout, num_experts)
    if not isinstance(samples, (list, tuple)):
        raise TypeError(f"samples are a list or tuple, not a {type(samples).__name__}")
    only = type(samples[0]) if samples and schema is None else None
    schema = schema or (schema_of(only) if only else Sample.__sample_schema__)
    plan = plan_of(schema, field_set)
    if layout == "compact":
        tensors, documents = _encode_each(plan, samples, only)
        found = compact_tensors(tensors, plan.experts, plan.transitions, num_experts)
        text = write_document(documents, session_metadata, empty_reason)
        text = compact_document(text, found.shared, found.dtypes)
        return build_container([*found.tensors, _document_tensor(text)])
    if len(samples) == 1 and plan.direct_write is not None and type(samples[0]) is plan.sample_type:
        payload = plan.direct_write(samples[0], session_metadata, empty_reason)
        if payload is not None:
            return payload
    tensors, documents = _encode_each(plan, samples, only)
    text = write_document(documents, session_metadata, empty_reason)
    return build_container([*tensors, _document_tensor(text)])


def _check_layout(layout: Layout, num_experts: int | None) -> None:
    if layout not in LAYOUTS:
        raise ValueError(f"layout is one of {LAYOUTS}, not {layout!r}")
    if num_experts is None:
        return
    if isinstance(num_experts, bool) or not isinstance(num_experts, (int, np.integer)):
        raise TypeError(f"num_experts is an integer, not a {type(num_experts).__name__}")
    if num_experts < 1:
        raise ValueError(f"num_experts is at least 1, not {num_experts}")


def _document_tensor(text: bytes) -> TensorToWrite:
    size = len(text)
    return _UINT8.order, META_TENSOR, _UINT8.name, (size,), (memoryview(text),), size


def _encode_each(
    plan: Plan, samples: Sequence[object], only: type | None
) -> tuple[list[TensorToWrite], list[bytes]]:
    """The samples' tensors in the exact layout, and their JSON objects.

    `only` is the class that all samples must have, if any.
    """
    tensors: list[TensorToWrite] = []
    documents: list[bytes] = []
    for index, sample in enumerate(samples):
        if not isinstance(sample, plan.sample_type) or only not in (None, type(sample)):
            raise TypeError(
                f"sample {index} is a {type(sample).__name__}, not a {plan.sample_type.__name__}"
            )
        documents.append(_encode_sample(plan, index, sample, tensors))
    return tensors, documents


def _encode_sample(plan: Plan, index: int, sample: object, tensors: list[TensorToWrite]) -> bytes:
    """Adds the sample's tensors to the list; returns its JSON object."""
    axes: Axes = {}
    shapes: list[tuple[str, Rows, Sequence[int]]] = []
    nulls: list[str] = []
    for field, value in zip(plan.arrays, plan.array_values(sample), strict=True):
        if value is None:
            if not field.nullable:
                raise _encode_error(index, field.name, "is None, which it cannot be")
            nulls.append(field.name)
            if field.sets is not None:
                axes[field.sets] = 0
            continue
        try:
            shape = field.encode(index, value, tensors)
        except ValueRefusedError as error:
            raise _encode_error(index, field.name, error.rule, error.expected, error.got) from None
        if field.sets is not None:
            axes[field.sets] = shape[0]
        if field.rows is not None:
            shapes.append((field.name, field.rows, shape))
    text, values = plan.documents.write_sample(plan.json_values(sample), nulls, index)
    for at, _, axis in plan.json_axes:
        axes[axis] = values[at]
    try:
        check_rows(axes, shapes, plan.axis_names)
    except RowRuleError as error:
        raise error.of_sample(EncodeError, index) from None
    return text


def _encode_error(
    index: int, name: str, rule: str, expected: str | None = None, got: str | None = None
) -> EncodeError:
    return EncodeError(
        f"sample {index}, field {name} {rule}",
        field=name,
        sample_index=index,
        expected=expected,
        got=got,
    )


def decode_samples(
    buffer: object,
    template: SampleT,
    *,
    field_set: int = 1,
    copy: bool = False,
    widen: bool = True,
    max_samples: int = MAX_SAMPLES,
    max_depth: int = MAX_JSON_DEPTH,
    max_header_bytes: int = MAX_HEADER_BYTES,
    max_shared_bytes: int = MAX_SHARED_BYTES,
    schema: Schema | None = None,
) -> SamplesReply[SampleT]:
    """The samples of a payload, each laid over a copy of the template, which stays as it is.

    Args:
        buffer: bytes, bytearray, memoryview, mmap, SharedMemory or Payload.
        field_set: the field set that the other side was asked for.
        copy: False gives read-only views that keep the buffer alive; copy=True, writable arrays.
        widen: a payload in the compact layout is read like any other; its narrow arrays are
            widened to the declared dtypes, read-only and of their own.  widen=False gives views
            of the dtypes that were sent, which is what goes to a GPU.  A field that takes arrays
            of its dtype only, as routing does, must be widened before it is encoded again.
        max_samples, max_depth, max_header_bytes: more samples, deeper JSON, longer headers are
            refused.
        max_shared_bytes: of a compact payload's arrays that begin with an earlier sample's rows,
            4 GiB by default: a payload of megabytes may ask for as much.  As lists, for a class
            that wants those, they take some ten times of it.
        schema: None takes the schema that the template's class declares on itself.

    Returns:
        Computed fields from the payload, mappings such as metadata updated, all else from the
        template with containers of its own; its arrays shared read-only, or copied with copy.

    Raises:
        DecodeError: never anything else for any bytes.
        TemplateError: the template already carries computed state.
        TypeError: buffer is not bytes-like, or template not of the schema's class.

    Source: SPEC sections 5.4, 8 and 9.
    """
    plan = plan_for(template, field_set, schema)
    document, decoded = _read(
        plan, buffer, widen, max_samples, max_depth, max_header_bytes, max_shared_bytes
    )
    if decoded:
        plan.overlay.check_template(template)
    samples = []
    for values in decoded:
        samples.append(_lay_over(plan, template, values, copy))
    return SamplesReply(samples, document.session_metadata, document.empty_reason)


def _read(
    plan: Plan,
    buffer: object,
    widen: bool,
    max_samples: int,
    max_depth: int,
    max_header_bytes: int,
    max_shared_bytes: int,
) -> tuple[Any, list[dict[str, Any]]]:
    """The document of a payload, and the fields of each sample."""
    if plan.direct_read is not None and max_samples > 0 and not isinstance(buffer, Payload):
        found = plan.direct_read(as_bytes_view(buffer), max_depth, max_header_bytes)
        if found is not None:
            return found
    reader = PayloadReader(
        buffer,
        plan,
        widen=widen,
        max_samples=max_samples,
        max_depth=max_depth,
        max_header_bytes=max_header_bytes,
        max_shared_bytes=max_shared_bytes,
    )
    return reader.document, [reader.values(index) for index in range(len(reader.refs))]


def plan_for(template: object, field_set: int, schema: Schema | None) -> Plan:
    """How payloads for a template are read.

    Raises:
        TypeError: the template is not of the schema's class.
    """
    if schema is None:
        schema = schema_of(type(template))
    elif not isinstance(template, schema.sample_type):
        raise TypeError(
            f"the template is a {type(template).__name__}, not a {schema.sample_type.__name__}"
        )
    return plan_of(schema, field_set)


def _lay_over(plan: Plan, template: SampleT, values: dict[str, Any], copy: bool) -> SampleT:
    for field in plan.arrays if copy else plan.listed:
        values[field.name] = field.finish(values[field.name], copy)
    for name in plan.updates:
        values[name] = updated(name, getattr(template, name), values[name], copy)
    for name in plan.keeps:
        if values[name] is None:
            values[name] = independent(getattr(template, name), copy)
    sample: SampleT = plan.overlay.apply(template, values, copy_arrays=copy)
    return sample
