"""The command `assemble` without its printing: its options, and the file that it reads.

Three forms of a file are known: a session's dump {"records", "metadata"}, a capture {"turns"},
and a bare list of records.  The file is parsed once, down to the records; each record is parsed
when its turn comes, and its reply is handed on as a span of the file, so that the routing text
of a large dump never becomes objects.
"""

from __future__ import annotations

import argparse
import json
import mmap
from collections.abc import Callable, Sequence
from typing import Annotated, Any, Final, Generic, NamedTuple, TypeVar

import msgspec

from .adapters.engines import turn_reader
from .assembly import AssemblyResult, RoutingSpec, Turn, assemble_turns
from .errors import AssemblyError
from .sample import Counter, Sample

_ABSENT: Final = msgspec.Raw(b"")
_NEEDS_SHAPE: Final = "needs --routing-layers and --routing-top-k"
Progress = Callable[[int, int], None]
ReplyT = TypeVar("ReplyT")


class _Record(msgspec.Struct, Generic[ReplyT]):
    """One turn, as recorded; other keys are passed over."""

    request: dict[str, Any]
    response: ReplyT
    timestamp: float | None = None
    request_timestamp: float | None = None


class _Dump(msgspec.Struct, Generic[ReplyT]):
    """A session's dump, or a capture."""

    records: list[ReplyT] | None = None
    turns: list[ReplyT] | None = None
    metadata: dict[str, Any] | None = None


class _Wrapped(msgspec.Struct):
    """What a recorder puts around a reply: its body, or the events of a streamed one."""

    body: msgspec.Raw = _ABSENT
    sse: list[Any] | None = None


class _SessionFacts(msgspec.Struct):
    """What assembly needs of a session's metadata."""

    accumulated_token_ids: list[Counter] | None = None
    max_trim_tokens: Annotated[int, msgspec.Meta(ge=0)] = 0


class Recording(NamedTuple):
    """A file that was read: its records, still JSON text or objects, and its metadata."""

    records: Sequence[msgspec.Raw] | Sequence[Any]
    metadata: dict[str, Any]


def add_options(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of the command."""
    add = parser.add_argument
    add("records", metavar="RECORDS.json", help="the recorded turns; - reads standard input")
    add("-o", "--output", metavar="PAYLOAD", required=True, help="- is standard output")
    add("--max-seq-len", type=int, metavar="N", help="tokens that a sample may have")
    add(
        "--max-trim-tokens",
        type=whole_number,
        metavar="M",
        help="output tokens at a turn's end that the next prompt may drop (default: what the "
        "dump says, or 0)",
    )
    add("--split", action="store_true", help="start a new sample at a prompt that does not go on")
    add("--speculative", action="store_true", help="keep speculative decoding counters")
    add("--keep-messages", action="store_true", help="put the last messages into the metadata")
    add(
        "--field-set",
        type=int,
        choices=tuple(Sample.__sample_schema__.field_sets),
        default=1,
        help="the field set to write (default %(default)s)",
    )
    routing = parser.add_argument_group("routing (R3)")
    routing.add_argument("--routing-layers", type=whole_number, metavar="L", help="layers of a row")
    routing.add_argument(
        "--routing-top-k", type=whole_number, metavar="K", help="experts of a layer"
    )
    routing.add_argument(
        "--num-experts", type=whole_number, metavar="E", help="refuse ids from E on"
    )
    routing.add_argument("--incremental", action="store_true", help="turns bring new rows only")
    routing.add_argument("--required", action="store_true", help="refuse a turn without routing")


def routing_spec(options: argparse.Namespace) -> RoutingSpec | None:
    """What the options say of the routing arrays; None where they say nothing.

    Raises:
        ValueError: options that do not go together; the text names them.
    """
    layers, top_k = options.routing_layers, options.routing_top_k
    if (layers is None) != (top_k is None):
        raise ValueError("--routing-layers and --routing-top-k go together")
    if layers is None:
        for name in ("num_experts", "incremental", "required"):
            if getattr(options, name) not in (None, False):
                raise ValueError(f"--{name.replace('_', '-')} {_NEEDS_SHAPE}")
        return None
    return RoutingSpec(
        num_layers=layers,
        top_k=top_k,
        num_experts=options.num_experts,
        required=options.required,
        incremental=options.incremental,
    )


def read_recording(data: bytes | mmap.mmap) -> Recording:
    """The records of a file, and the metadata that a session's dump has.

    Raises:
        AssemblyError: it is not JSON, or of none of the known forms.
    """
    try:
        try:
            found = msgspec.json.decode(data, type=list[msgspec.Raw] | _Dump[msgspec.Raw])
        except msgspec.ValidationError:
            raise
        except msgspec.DecodeError:
            # Python's json writes and reads NaN and -Infinity, which are no JSON.
            found = msgspec.convert(json.loads(data[:]), list[Any] | _Dump[Any])
    except msgspec.ValidationError as error:
        raise AssemblyError(f"the file is of no known form: {error}") from None
    except (ValueError, RecursionError):
        raise AssemblyError("the file is not JSON") from None
    if isinstance(found, list):
        return Recording(found, {})
    lists = [records for records in (found.records, found.turns) if records is not None]
    if len(lists) != 1:
        raise AssemblyError("the file is of no known form: it needs either records or turns")
    return Recording(lists[0], found.metadata or {})


def read_turns(
    records: Sequence[Any], routing: RoutingSpec | None, progress: Progress
) -> list[Turn]:
    """The turns of records, each read once.

    Args:
        records: as read_recording gives them.
        routing: what is known of the routing arrays, or None.
        progress: called with a turn's number, from 1, and the number of turns, before each.

    Raises:
        AssemblyError: a record is malformed; names the turn.
    """
    reader = turn_reader(routing=routing, decode_text=None)
    turns: list[Turn] = []
    for number, record in enumerate(records, 1):
        progress(number, len(records))
        turns.append(reader.read(_record(record, number), turns[-1] if turns else None))
    return turns


def assemble_recording(
    recording: Recording, turns: Sequence[Turn], options: argparse.Namespace
) -> AssemblyResult:
    """The samples of the turns of a recording, as the options ask for them.

    Raises:
        AssemblyError: the turns cannot become a sample, or the metadata is malformed.
    """
    try:
        facts = msgspec.convert(recording.metadata, _SessionFacts)
    except msgspec.ValidationError as error:
        raise AssemblyError(f"the session's metadata is malformed: {error}") from None
    trim = options.max_trim_tokens
    return assemble_turns(
        turns,
        accumulated_token_ids=facts.accumulated_token_ids,
        max_trim_tokens=facts.max_trim_tokens if trim is None else trim,
        decode_text=None,
        max_seq_len=options.max_seq_len,
        routing=routing_spec(options),
        speculative=options.speculative,
        keep_messages=options.keep_messages,
        on_discontinuity="split" if options.split else "refuse",
    )


def option_for(error: AssemblyError, routing: RoutingSpec | None) -> str:
    """Which option would let the turns pass, as a further sentence; "" where none would."""
    text = str(error)
    if error.field == "routed_experts" and "additional R3" in text and not _is_incremental(routing):
        more = "" if routing else f"; it {_NEEDS_SHAPE}"
        return f".  The turns bring only new rows: set --incremental{more}"
    if error.field == "routed_experts" and "RoutingSpec" in text:
        return ".  Set --routing-layers and --routing-top-k"
    if error.field == "input_ids" and error.got is not None:
        return ".  Set --split to start a new sample there"
    return ""


def _is_incremental(routing: RoutingSpec | None) -> bool:
    return routing is not None and routing.incremental


def _record(record: Any, number: int) -> dict[str, Any]:
    """A record as TurnReader takes it, its reply being a span of the file where it can be."""
    try:
        if isinstance(record, msgspec.Raw):
            found = msgspec.json.decode(record, type=_Record[msgspec.Raw])
            response = _reply(found.response)
        else:
            found = msgspec.convert(record, _Record[Any])
            response = found.response
    except msgspec.ValidationError as error:
        raise AssemblyError(f"the record is malformed: {error}", turn=number) from None
    return {
        "request": found.request,
        "response": response,
        "timestamp": found.timestamp,
        "request_timestamp": found.request_timestamp,
    }


def _reply(response: msgspec.Raw) -> object:
    """The bytes of a reply out of what a recorder put around them; a streamed one's events."""
    wrapped = _wrapped(response)
    if wrapped.body is not _ABSENT:
        response = wrapped.body
        wrapped = _wrapped(response)
    return memoryview(response) if wrapped.sse is None else {"sse": wrapped.sse}


def _wrapped(value: msgspec.Raw) -> _Wrapped:
    if memoryview(value)[0] != ord("{"):
        return _Wrapped()
    return msgspec.json.decode(value, type=_Wrapped)


def whole_number(text: str) -> int:
    """An option's number; argparse names this function where the text is none."""
    number = int(text)
    if number < 0:
        raise argparse.ArgumentTypeError(f"{number} is negative")
    return number
