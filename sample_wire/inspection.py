"""What a payload holds, how large it is, and whether its numbers look sane.

Everything comes from the header, the JSON, the masks and the log-probs.  R3, by far the
largest part, is read for its largest id only, in pieces, and with max_ids=False not at all.

The summary is made for standard JSON, which has no NaN and no infinity: such a number is
the text "NaN", "Infinity" or "-Infinity", as in protobuf's JSON mapping.  float() reads both.

Shape letters: N samples, T tokens, R response tokens, L routed layers, K experts per token.
"""

from __future__ import annotations

import enum
import json
import math
from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any, Final, Literal

import msgspec
import numpy as np
import numpy.typing as npt

from ._compact import CompactContainer, CompactRef
from ._container import TensorRef
from ._dtypes import BY_WIRE_NAME
from ._plan import plan_of
from .codec import Layout
from .payload import Payload, as_bytes_view
from .reader import MAX_SAMPLES, PayloadReader
from .rows import axes_of
from .sample import Sample
from .schema import Schema

# The fields that the summary says more about than their size.  All else goes by declaration.
_STATUS: Final = "status"
_MASK: Final = "loss_mask"
_LOG_PROBS: Final = "rollout_log_probs"
_R3: Final = "rollout_routed_experts"
_WEIGHT_VERSIONS: Final = "weight_versions"
_NAMED: Final = frozenset({_STATUS, _MASK, _LOG_PROBS, _WEIGHT_VERSIONS})

# A multiple of every item size; large enough that the loop costs nothing beside the reading.
_CHUNK_BYTES: Final = 1 << 22

Number = float | Literal["NaN", "Infinity", "-Infinity"]


class LogProbSummary(msgspec.Struct, frozen=True):
    """Log-probs of the trained tokens, in nats; NaN wins over all, as numpy has it.

    Attributes:
        mean, min: "NaN" or "-Infinity" where that is what they are.
        num_non_finite: trained tokens whose log-prob is NaN or infinite.
    """

    mean: Number
    min: Number
    num_non_finite: int


class R3Summary(msgspec.Struct, frozen=True):
    """The routed experts of one sample.

    Attributes:
        shape: [T-1, L, K].
        dtype: numpy name of the dtype that is sent.
        max_id: the largest expert id; None where there is no id, or none was asked for.
        nbytes, share: size, and its part of the payload from 0 to 1.  Rows that an earlier
            sample has are not counted.
    """

    shape: list[int]
    dtype: str
    max_id: int | None
    nbytes: int
    share: float


class SampleSummary(msgspec.Struct, frozen=True, kw_only=True):
    """One sample.  None stands for what the payload does not say.

    Attributes:
        status: its spelling on the wire.
        num_tokens, response_length: T and R.
        num_trained: tokens whose mask is not 0.  None without a mask: what is trained then is
            the trainer's choice.
        num_turns: runs of such tokens.  Turns with no token between them are one run.
        log_probs: None without mask, log-probs or trained tokens.
        r3: None where the sample has no R3.
        weight_versions: as in the payload, one a turn.
        nulls: array fields that are null, in order of declaration.
        field_bytes: size of each array field that is not null.
    """

    status: str | None
    num_tokens: int | None
    response_length: int | None
    num_trained: int | None
    num_turns: int | None
    log_probs: LogProbSummary | None
    r3: R3Summary | None
    weight_versions: list[str]
    nulls: list[str]
    field_bytes: dict[str, int]


class PayloadSummary(msgspec.Struct, frozen=True, kw_only=True):
    """A whole payload.

    Attributes:
        payload_bytes: its size.
        field_set: the field set that it was read with.
        layout: "exact" or "compact".
        num_samples: N.
        num_tokens, num_trained: over all samples; None if one sample's is.
        r3_bytes, r3_share: R3 of all samples, and its part of the payload from 0 to 1.
        session_metadata_keys: as in the payload.
        empty_reason: why there are no samples, or None.
        samples: one summary each.
    """

    payload_bytes: int
    field_set: int
    layout: Layout
    num_samples: int
    num_tokens: int | None
    num_trained: int | None
    r3_bytes: int
    r3_share: float
    session_metadata_keys: list[str]
    empty_reason: str | None
    samples: list[SampleSummary]


def inspect_payload(
    buffer: object,
    *,
    schema: Schema | None = None,
    field_set: int = 1,
    max_samples: int = MAX_SAMPLES,
    max_ids: bool = True,
) -> PayloadSummary:
    """A summary of a payload; it holds no view of the buffer.

    Args:
        buffer: bytes, bytearray, memoryview, mmap, SharedMemory or Payload.
        schema: None takes Sample's own.
        field_set, max_samples: as for decode_samples.
        max_ids: False leaves R3's bytes untouched, and its largest id out.

    Raises:
        DecodeError: as for decode_samples, but for what only the bytes of other tensors show.
        TypeError: buffer is not bytes-like.

    Cost: temporary copies of the masks and log-probs of one sample; of R3, 4 MiB at most, and
        two arrays where rows are shared.
    """
    schema = schema or Sample.__sample_schema__
    payload_bytes = buffer.nbytes if isinstance(buffer, Payload) else as_bytes_view(buffer).nbytes
    plan = plan_of(schema, field_set)
    reader = PayloadReader(buffer, plan, widen=False, max_samples=max_samples)
    asked = plan.names & (_NAMED | {field.name for field in schema.axis_fields.values()})
    array_names = [array.name for array in plan.arrays]
    samples = [
        _summarize(
            reader.values(index, asked),
            schema,
            field_bytes={name: _nbytes(refs[name]) for name in array_names if name in refs},
            nulls=[name for name in array_names if name not in refs],
            r3=_r3(reader, refs, payload_bytes, max_ids),
        )
        for index in range(len(reader.refs))
        for refs in [reader.named_refs(index)]
    ]
    return _of_payload(reader, samples, payload_bytes, field_set)


def _of_payload(
    reader: PayloadReader, samples: list[SampleSummary], payload_bytes: int, field_set: int
) -> PayloadSummary:
    r3_bytes = sum(sample.r3.nbytes for sample in samples if sample.r3)
    return PayloadSummary(
        payload_bytes=payload_bytes,
        field_set=field_set,
        layout="compact" if isinstance(reader.views, CompactContainer) else "exact",
        num_samples=len(samples),
        num_tokens=_total(sample.num_tokens for sample in samples),
        num_trained=_total(sample.num_trained for sample in samples),
        r3_bytes=r3_bytes,
        r3_share=r3_bytes / payload_bytes,
        session_metadata_keys=list(reader.document.session_metadata),
        empty_reason=reader.document.empty_reason,
        samples=samples,
    )


def _summarize(
    values: dict[str, Any],
    schema: Schema,
    *,
    field_bytes: dict[str, int],
    nulls: list[str],
    r3: R3Summary | None,
) -> SampleSummary:
    axes = axes_of(SimpleNamespace(**values), schema)
    mask = _flat(values.get(_MASK))
    trained = None if mask is None else mask != 0
    status = values.get(_STATUS)
    return SampleSummary(
        status=status.value if isinstance(status, enum.Enum) else status,
        num_tokens=axes.get("tokens"),
        response_length=axes.get("response"),
        num_trained=None if trained is None else int(np.count_nonzero(trained)),
        num_turns=None if trained is None else _num_runs(trained),
        log_probs=_log_probs(_flat(values.get(_LOG_PROBS)), trained),
        r3=r3,
        weight_versions=list(values.get(_WEIGHT_VERSIONS, ())),
        nulls=nulls,
        field_bytes=field_bytes,
    )


def _flat(value: object) -> npt.NDArray[Any] | None:
    """A rank-1 array of real numbers; a foreign class may have declared something else."""
    if isinstance(value, np.ndarray) and value.ndim == 1 and value.dtype.kind in "biuf":
        return value
    return None


def _num_runs(trained: npt.NDArray[np.bool_]) -> int:
    starts = trained.copy()
    starts[1:] &= ~trained[:-1]
    return int(np.count_nonzero(starts))


def _log_probs(
    values: npt.NDArray[Any] | None, trained: npt.NDArray[np.bool_] | None
) -> LogProbSummary | None:
    if values is None or trained is None or len(values) != len(trained) or not trained.any():
        return None
    chosen = values[trained].astype(np.float64)
    with np.errstate(all="ignore"):  # the mean of both infinities is NaN, not a warning
        mean = float(chosen.mean())
    num_non_finite = len(chosen) - int(np.count_nonzero(np.isfinite(chosen)))
    return LogProbSummary(_number(mean), _number(float(chosen.min())), num_non_finite)


def _number(value: float) -> Number:
    if math.isfinite(value):
        return value
    if math.isnan(value):
        return "NaN"
    return "Infinity" if value > 0 else "-Infinity"


def _nbytes(refs: tuple[TensorRef, ...]) -> int:
    return sum(ref.data_offsets[1] - ref.data_offsets[0] for ref in refs)


def _r3(
    reader: PayloadReader, refs: dict[str, tuple[TensorRef, ...]], payload_bytes: int, max_ids: bool
) -> R3Summary | None:
    if _R3 not in refs:
        return None
    ref = refs[_R3][0]
    stored = ref.stored if isinstance(ref, CompactRef) else ref
    nbytes = _nbytes(refs[_R3])
    return R3Summary(
        shape=list(ref.shape),
        dtype=BY_WIRE_NAME[stored.dtype].dtype.name,
        max_id=_max_id(reader, ref, stored) if max_ids else None,
        nbytes=nbytes,
        share=nbytes / payload_bytes,
    )


def _max_id(reader: PayloadReader, ref: TensorRef, stored: TensorRef) -> int | None:
    """The largest value of an integer tensor, read in pieces that are views of their own."""
    dtype = BY_WIRE_NAME[stored.dtype].dtype
    if dtype.kind not in "iu":
        return None
    if isinstance(ref, CompactRef) and ref.prefix is not None:
        return int(reader.views.view(ref).max())
    first, last = stored.data_offsets
    largest = None
    for start in range(first, last, _CHUNK_BYTES):
        stop = min(start + _CHUNK_BYTES, last)
        piece = TensorRef(stored.dtype, [(stop - start) // dtype.itemsize], (start, stop))
        found = int(reader.container.view(piece).max())
        largest = found if largest is None else max(found, largest)
    return largest


def _total(counts: Iterable[int | None]) -> int | None:
    known = list(counts)
    return None if None in known else sum(count for count in known if count is not None)


def summary_json(summary: PayloadSummary) -> str:
    """The summary as standard JSON of ASCII characters, indented, keys in a fixed order."""
    return json.dumps(msgspec.to_builtins(summary), indent=2, allow_nan=False)
