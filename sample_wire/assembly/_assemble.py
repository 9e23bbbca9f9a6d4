"""assemble: recorded turns in, training samples out.

`assemble` reads records and is all that people with recorded traffic need.  A server reads
each turn when it is committed and calls `assemble_turns`, which then is slicing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np

from ..overlay import independent
from ..rows import validate
from ..sample import Sample
from ..schema import Schema
from .merge import (
    DropReason,
    Part,
    chains,
    discontinuity,
    fold,
    parts_of,
    routing_of,
    truncate,
)
from .replies import ids_array
from .routing import DecodeBase64, RoutingSpec, strict_base64
from .samples import NOTES_FIELD, ROUTING_FIELD, SampleBuilder, extra_fields
from .turns import DecodeText, Turn, TurnReader

OnDiscontinuity = Literal["refuse", "split"]


@dataclass(frozen=True, slots=True)
class AssemblyResult:
    """What assemble returns.

    Attributes:
        samples: one sample; several where discontinuities split; none with a reason.
        empty_reason: "no_records", "all_truncated", or None.
    """

    samples: list[Any]
    empty_reason: str | None


def assemble(
    records: Sequence[Mapping[str, Any]],
    *,
    accumulated_token_ids: Any,
    max_trim_tokens: int,
    decode_text: DecodeText | None,
    max_seq_len: int | None = None,
    routing: RoutingSpec | None = None,
    speculative: bool = False,
    keep_messages: bool = False,
    on_discontinuity: OnDiscontinuity = "refuse",
    schema: Schema = Sample.__sample_schema__,
    decode_base64: DecodeBase64 = strict_base64,
) -> AssemblyResult:
    """The training samples of a session's records.

    Args:
        records: turns in order, each {"request": ..., "response": ...} with the bodies that
            were exchanged (or objects that hold them under "body"), and optionally
            "timestamp" and "request_timestamp" in seconds.
        accumulated_token_ids: the ids that the session ended with, which turns are trimmed
            to; None takes the last turn's own.
        max_trim_tokens: trailing output tokens that a following prompt may drop.
        decode_text: maps a list of ids to text; None leaves the response empty.
        max_seq_len: tokens that a sample may have, prompt included; None for no limit.
        routing: what is known of the routing arrays.  None reads only forms that describe
            themselves.
        speculative: keep speculative decoding counters.
        keep_messages: put the last turn's messages into the metadata.
        on_discontinuity: what to do with a prompt that does not extend the turns before it:
            refuse it, or start a new sample there.
        schema: what the samples' class declares.
        decode_base64: a strict decoder for the routing arrays; `adapters.engines.fast_base64()`
            gives one that is twenty times faster where pybase64 is installed.

    Returns:
        The samples.  Their routing arrays are RowBlocks, narrow and in blocks: numpy.asarray
        makes an array of one, and encode_samples sends it as it is.

    Raises:
        AssemblyError: a record is malformed, or the turns cannot become a sample; names the
            turn.
    """
    reader = TurnReader(
        routing=routing,
        decode_text=decode_text,
        extras=extra_fields(schema),
        decode_base64=decode_base64,
    )
    turns: list[Turn] = []
    for record in records:
        turns.append(reader.read(record, turns[-1] if turns else None))
    return assemble_turns(
        turns,
        accumulated_token_ids=accumulated_token_ids,
        max_trim_tokens=max_trim_tokens,
        decode_text=decode_text,
        max_seq_len=max_seq_len,
        routing=routing,
        speculative=speculative,
        keep_messages=keep_messages,
        on_discontinuity=on_discontinuity,
        schema=schema,
    )


def assemble_turns(
    turns: Sequence[Turn],
    *,
    accumulated_token_ids: Any,
    max_trim_tokens: int,
    decode_text: DecodeText | None,
    max_seq_len: int | None = None,
    routing: RoutingSpec | None = None,
    speculative: bool = False,
    keep_messages: bool = False,
    on_discontinuity: OnDiscontinuity = "refuse",
    schema: Schema = Sample.__sample_schema__,
) -> AssemblyResult:
    """The same for turns that a TurnReader has read already.

    Cost: slicing; no row is copied or decoded.
    """
    if on_discontinuity not in get_args(OnDiscontinuity):
        raise ValueError(f"on_discontinuity is one of {get_args(OnDiscontinuity)}")
    if max_seq_len is not None and type(max_seq_len) is not int:
        raise TypeError("max_seq_len is an integer or None")
    if not turns:
        return AssemblyResult([], "no_records")
    runs = chains(turns, max_trim_tokens)
    if len(runs) > 1 and on_discontinuity == "refuse":
        raise discontinuity(runs[0][-1], runs[1][0], max_trim_tokens)
    builder = SampleBuilder(schema, decode_text, speculative=speculative)
    samples = []
    for run in runs:
        given = accumulated_token_ids if run is runs[-1] else None
        accumulated = (
            run[-1].tokens.to_array(np.int64)
            if given is None
            else ids_array(given, "accumulated", None)
        )
        parts = parts_of(run, accumulated, max_trim_tokens)
        kept = truncate(parts, max_seq_len)
        if kept:
            samples.append(_sample(builder, run, kept, routing, keep_messages=keep_messages))
    for sample in samples:
        validate(sample, schema=schema)
    return AssemblyResult(samples, None if samples else "all_truncated")


def oldest_weight_version(versions: Sequence[str]) -> str | None:
    """The smallest of the entries that are numbers, or None where none is."""
    numbers = (version for version in versions if version.isascii() and version.isdecimal())
    return min(numbers, key=_as_number, default=None)


def _as_number(digits: str) -> tuple[int, str]:
    """Orders digits as the number they spell, however many there are."""
    digits = digits.lstrip("0")
    return len(digits), digits


def _sample(
    builder: SampleBuilder,
    run: Sequence[Turn],
    parts: Sequence[Part],
    routing: RoutingSpec | None,
    *,
    keep_messages: bool,
) -> Any:
    incremental = routing is not None and routing.incremental
    required = routing is not None and routing.required
    folded, reason = fold(parts, incremental=incremental, required=required)
    if reason is None and len(parts) < len(run):
        reason = "max_seq_len"
    rows = routing_of(folded[-1], run, incremental=incremental, required=required)
    notes = _notes(run, folded, reason, keep_messages=keep_messages)
    return builder.build(folded, {ROUTING_FIELD: rows, NOTES_FIELD: notes})


def _notes(
    run: Sequence[Turn],
    parts: Sequence[Part],
    reason: DropReason | None,
    *,
    keep_messages: bool,
) -> dict[str, Any]:
    """What a sample says of itself beside its fields: lifecycle, dropped turns, messages."""
    notes: dict[str, Any] = {}
    lifecycle = [segment for part in parts if (segment := _lifecycle(part.turn)) is not None]
    if lifecycle:
        notes["lifecycle"] = lifecycle
    dropped = len(run) - len(parts)
    if dropped:
        notes["dropped_turns"] = {"count": dropped, "reason": reason}
    last = parts[-1].turn
    if keep_messages:
        message = [last.message] if last.message is not None else []
        notes["messages"] = independent([*last.request_messages, *message], copy_arrays=False)
    return notes


def _lifecycle(turn: Turn) -> dict[str, Any] | None:
    """When a turn ran, in seconds; None where its record has no timestamp."""
    if turn.timestamp is None:
        return None
    started = None if turn.e2e_latency is None else turn.timestamp - turn.e2e_latency
    segment: dict[str, Any] = {"t0": started, "t1": turn.timestamp, "turn": turn.number}
    if turn.request_timestamp is not None:
        segment["req_ts"] = turn.request_timestamp
    if turn.number > 1:
        segment["prev_t1"] = turn.previous_timestamp
    return segment
