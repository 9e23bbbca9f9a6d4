"""Turns: one chat call each, read once, and held as what it adds to the turn before.

Token ids and routing rows of a turn lie in ledgers that all turns of a session share; a turn
knows its own, whole, and costs only what is new.  A turn is immutable: rolling back is
dropping it, and two turns with one parent are branches.

Shape letters: P prompt tokens of a turn, O output tokens.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from .._declarations import Field
from ..blocks import RowBlocks
from ..errors import AssemblyError
from ..sample import PrefixCacheInfo, SpecInfo, Status
from ._records import bodies, messages_in, seconds
from .extras import extra_value
from .ledger import TOKEN_DTYPES, RowLedger
from .replies import TurnReply, prompt_ids, read_reply
from .routing import (
    DecodeBase64,
    RoutingError,
    RoutingSpec,
    RowSource,
    check_ids,
    object_start,
    read_rows,
    strict_base64,
)

Fault = tuple[int, str]
DecodeText = Callable[[list[int]], str]
_STATUS_OF_REASON: Final = {
    "stop": Status.COMPLETED,
    "tool_calls": Status.COMPLETED,
    "length": Status.TRUNCATED,
    "abort": Status.ABORTED,
}
_START_KEYS: Final = ("routed_experts_start_len", "routed_experts_prompt_start")


@dataclass(frozen=True, slots=True)
class Turn:
    """One turn that was read.

    Attributes:
        number: counted from 1.
        tokens: [P+O] prompt and output ids, as rows of the session's token ledger.
        num_prompt: P.
        num_shared: leading prompt tokens that are those of the turn before.
        log_probs: float64 [O], nats.
        status: by the finish reason; one that is not known is pending.
        routing: rows [P+O-1, L, K] in full, or None where the reply had none.
        routing_fault: the number of the turn whose rows cannot be placed, and why; or None.
            It is told when the rows are needed.
        has_routing: whether the reply had routing, be it faulty.
        indexer: rows [P+O-1, Li, Ki], or None.
        text: the output's text, special tokens included.
        gap_text: the text of the prompt tokens after the shared ones.
        weight_version, prefix_cache, spec, e2e_latency, message: as the reply told them.
        extras: values of the fields that a subclass takes from meta_info.
        timestamp, request_timestamp: seconds, of the commit and of the arrival, or None.
        previous_timestamp: of the commit of the turn before, or None.
        request_messages: the request's messages.
    """

    number: int
    tokens: RowBlocks
    num_prompt: int
    num_shared: int
    log_probs: npt.NDArray[np.float64]
    status: Status
    routing: RowBlocks | None
    routing_fault: Fault | None
    has_routing: bool
    indexer: RowBlocks | None
    text: str
    gap_text: str
    weight_version: str | None
    prefix_cache: PrefixCacheInfo
    spec: SpecInfo
    e2e_latency: float | None
    message: dict[str, Any] | None
    extras: dict[str, Any]
    timestamp: float | None
    request_timestamp: float | None
    previous_timestamp: float | None
    request_messages: Sequence[Any]

    @property
    def num_tokens(self) -> int:
        """P+O."""
        return len(self.tokens)

    @property
    def num_output(self) -> int:
        """O."""
        return len(self.tokens) - self.num_prompt

    def output_ids(self, count: int) -> list[int]:
        """The first count output ids."""
        return self.prompt_and_output(self.num_prompt, self.num_prompt + count)

    def prompt_and_output(self, start: int, stop: int) -> list[int]:
        """The ids at [start, stop)."""
        ids: list[int] = self.tokens[start:stop].to_array(np.int64).tolist()
        return ids


def text_of(ids: list[int], decode_text: DecodeText | None) -> str:
    """The text of ids; "" for none, or where there is no decoder."""
    return decode_text(ids) if ids and decode_text is not None else ""


class TurnReader:
    """Reads the turns of one session into its ledgers.

    Args:
        routing: what is known of the routing arrays, or None.
        decode_text: ids to text, or None for no text.
        extras: fields that take their values from meta_info.
        decode_base64: the decoder for routing values; strict about its alphabet.
    """

    __slots__ = (
        "_decode_base64",
        "_decode_text",
        "_extras",
        "_indexer",
        "_routing",
        "_spec",
        "_tokens",
    )

    def __init__(
        self,
        *,
        routing: RoutingSpec | None,
        decode_text: DecodeText | None,
        extras: Sequence[Field] = (),
        decode_base64: DecodeBase64 = strict_base64,
    ) -> None:
        self._spec = routing
        self._decode_text = decode_text
        self._extras = tuple(extras)
        self._decode_base64 = decode_base64
        self._tokens = RowLedger((), TOKEN_DTYPES)
        self._routing: RowLedger | None = None
        self._indexer: RowLedger | None = None

    @property
    def stored_bytes(self) -> int:
        """Of the ids and rows of all turns that were read, each counted once."""
        ledgers = (self._tokens, self._routing, self._indexer)
        return sum(ledger.stored_bytes for ledger in ledgers if ledger is not None)

    def read(
        self,
        record: Mapping[str, Any],
        parent: Turn | None,
        like: Turn | None = None,
        arrays: Mapping[str, memoryview] | None = None,
    ) -> Turn:
        """The turn of a record: {request, response, timestamp, request_timestamp}.

        Args:
            record: the record.
            parent: the turn that it builds on, or None.
            like: another turn on this parent, whose ids and rows are shared where the new ones
                are equal to them, or None.
            arrays: the JSON text of routing values that were cut out of the response, by name.

        Raises:
            AssemblyError: the record is malformed; the reader and its turns are as before.
        """
        number = 1 if parent is None else parent.number + 1
        request, response = bodies(record, number)
        reply = read_reply(response, turn=number, extras=[field.name for field in self._extras])
        if arrays:
            reply = replace(
                reply,
                routing=arrays.get("routed_experts", reply.routing),
                indexer=arrays.get("indexer_topk", reply.indexer),
            )
        prompt = prompt_ids(request, reply, number)
        held = self._tokens.empty() if parent is None else parent.tokens
        num_shared = held.common_prefix(prompt)
        near = held if like is None else _spliced(held, num_shared, like.tokens)
        tokens = self._tokens.extend(near, num_shared, [prompt[num_shared:], reply.output_ids])
        routing, fault = self._read_routing(request, reply, len(tokens), num_shared, parent, like)
        gap = [] if parent is None else prompt[num_shared:].tolist()
        return Turn(
            number=number,
            tokens=tokens,
            num_prompt=len(prompt),
            num_shared=num_shared,
            routing=routing,
            routing_fault=fault,
            indexer=self._read_indexer(reply, len(tokens), like or parent, number),
            text=text_of(reply.output_ids.tolist(), self._decode_text),
            gap_text=text_of(gap, self._decode_text),
            extras=self._extra_values(reply, len(tokens), number),
            previous_timestamp=None if parent is None else parent.timestamp,
            **_told(record, request, reply, number),
        )

    def _extra_values(self, reply: TurnReply, num_tokens: int, number: int) -> dict[str, Any]:
        sizes = (num_tokens, len(reply.output_ids))
        return {
            field.name: extra_value(field, reply.extras.get(field.name), *sizes, number)
            for field in self._extras
        }

    def _read_routing(
        self,
        request: Mapping[str, Any],
        reply: TurnReply,
        num_tokens: int,
        num_shared: int,
        parent: Turn | None,
        like: Turn | None,
    ) -> tuple[RowBlocks | None, Fault | None]:
        """The rows of the whole turn, or None and why they cannot be placed."""
        number = 1 if parent is None else parent.number + 1
        spec = self._spec
        incremental = spec is not None and spec.incremental
        if reply.routing is None:
            return None, _missing_fault(parent) if incremental else None
        try:
            start = _start_of(request, reply.routing)
            restarts = start == 0 and parent is not None and num_shared < parent.num_tokens
            before = None if restarts else parent
            fault = _start_fault(start, before, num_shared, number, incremental=incremental)
            source = read_rows(
                reply.routing,
                max(num_tokens - 1 - (start or 0), 0),
                num_layers=None if spec is None else spec.num_layers,
                top_k=None if spec is None else spec.top_k,
                decode_base64=self._decode_base64,
            )
            if fault is not None:
                return None, fault
            if spec is not None and spec.num_experts is not None:
                source = source._replace(chunks=check_ids(source.chunks, spec.num_experts))
            held = parent.routing if parent is not None else None
            if like is not None and like.routing is not None:
                held = like.routing if held is None else _spliced(held, start or 0, like.routing)
            self._routing, rows = _extended(self._routing, held, start or 0, source)
            return rows, None
        except RoutingError as error:
            raise _routing_error("routed_experts", error, number) from None

    def _read_indexer(
        self, reply: TurnReply, num_tokens: int, like: Turn | None, number: int
    ) -> RowBlocks | None:
        """The indexer's rows, which every turn sends in full."""
        if reply.indexer is None:
            return None
        if reply.indexer_layers is None:
            raise AssemblyError(
                "indexer_topk comes without indexer_topk_num_layers",
                turn=number,
                field="indexer_topk",
            )
        try:
            source = read_rows(
                reply.indexer,
                max(num_tokens - 1, 0),
                num_layers=reply.indexer_layers,
                top_k=None,
                decode_base64=self._decode_base64,
            )
            held = like.indexer if like is not None else None
            self._indexer, rows = _extended(self._indexer, held, 0, source)
            return rows
        except RoutingError as error:
            raise _routing_error("indexer_topk", error, number) from None


def _told(
    record: Mapping[str, Any], request: Mapping[str, Any], reply: TurnReply, number: int
) -> dict[str, Any]:
    """What a turn takes from its record and reply as it is told there."""
    return {
        "log_probs": reply.log_probs,
        "status": _STATUS_OF_REASON.get(reply.finish_reason or "", Status.PENDING),
        "has_routing": reply.routing is not None,
        "weight_version": reply.weight_version,
        "prefix_cache": reply.prefix_cache,
        "spec": reply.spec,
        "e2e_latency": reply.e2e_latency,
        "message": reply.message,
        "timestamp": seconds(record, "timestamp", number),
        "request_timestamp": seconds(record, "request_timestamp", number),
        "request_messages": messages_in(request, number),
    }


def _start_of(request: Mapping[str, Any], value: object) -> int | None:
    """The row that a turn's routing starts at, as its request or the value itself says."""
    sampling = request.get("sampling_params")
    for holder in (request, sampling if isinstance(sampling, Mapping) else {}):
        for key in _START_KEYS:
            start = holder.get(key)
            if type(start) is int and start >= 0:
                told = object_start(value)
                if told is not None and told != start:
                    raise RoutingError(f"says it starts at row {told}, {start} was asked for")
                return start
    return object_start(value)


def _start_fault(
    start: int | None, parent: Turn | None, num_shared: int, number: int, *, incremental: bool
) -> Fault | None:
    """Why rows from this start on do not continue what is held, and the turn at fault."""
    if not incremental:
        rule = f"additional R3: starts at row {start}; a full prefix at 0"
        return (number, rule) if start else None
    if start is None:
        return number, "additional R3: the request does not say the start row"
    if parent is not None and parent.routing is None:
        return _missing_fault(parent)
    covered = 0 if parent is None else max(parent.num_tokens - 1, 0)
    if start != covered:
        return number, _misplaced(start, covered, "gap" if start > covered else "overlap")
    if parent is not None and start > num_shared:
        # Rows of tokens that the prompt dropped are not those of the tokens in their place.
        return number, _misplaced(start, num_shared, "gap")
    return None


def _missing_fault(parent: Turn | None) -> Fault | None:
    """The first fault among the turns up to this one, for a turn that builds on their rows."""
    if parent is None or parent.routing is not None:
        return None
    return parent.routing_fault or (parent.number, "additional R3: there is no routed_experts")


def _misplaced(start: int, expected: int, what: str) -> str:
    rows = abs(start - expected)
    unit = "row" if rows == 1 else "rows"
    return f"additional R3: starts at row {start}; expected {expected}: {what} of {rows} {unit}"


def _spliced(held: RowBlocks, start: int, like: RowBlocks) -> RowBlocks:
    """The first `start` rows of held, and after them those of a turn beside the new one."""
    if held.shape[1:] != like.shape[1:]:
        return held
    return RowBlocks((*held[:start].segments, *like[start:].segments), held.shape[1:])


def _extended(
    ledger: RowLedger | None, held: RowBlocks | None, start: int, source: RowSource
) -> tuple[RowLedger, RowBlocks]:
    """The ledger for rows of the source's shape, and the rows up to start followed by them.

    Rows that are sent in full need nothing of what is held, and may have another shape.
    """
    fits = held is not None and held.shape[1:] == source.row_shape
    if start and not fits:
        raise RoutingError(f"changes the shape of its rows to {source.row_shape}")
    if ledger is None or ledger.row_shape != source.row_shape:
        ledger = RowLedger(source.row_shape)
    before = held if held is not None and fits else ledger.empty()
    return ledger, ledger.extend(before, start, source.chunks)


def _routing_error(field: str, error: RoutingError, number: int) -> AssemblyError:
    return AssemblyError(f"{field} {error}", turn=number, field=field)
