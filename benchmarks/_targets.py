"""The figures to reach, and how each is measured.

Every group of rows is one interleaved run of our call and its peers, so each row's ratio
compares times of the same minutes on the same machine.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from statistics import median
from typing import Final, Literal, NamedTuple

import safetensors.numpy

from benchmarks._data import accumulated_ids, plain_text, sample_of, template
from benchmarks._event_loop import Job, longest_gaps_s, send_sliced, send_whole
from benchmarks._memory import has_resident_peak, resident_peak, traced_peak
from benchmarks._peers import OURS, format_of, received
from benchmarks._timing import Effort, Timing, compare
from sample_wire import decode_samples, encode_samples

Unit = Literal["ms", "us", "x", "payloads"]
PER_SECOND: Final[dict[Unit, float]] = {"ms": 1e3, "us": 1e6, "x": 1.0, "payloads": 1.0}
_SAFETENSORS: Final = "safetensors.numpy"
_MSGPACK: Final = "msgspec.msgpack, memoryviews"


class Target(NamedTuple):
    """One figure to reach: what is measured, and its bound."""

    what: str
    bound: Literal["<=", ">="]
    limit: float
    unit: Unit

    def is_met(self, value: float) -> bool:
        """Whether a value, in the target's unit, keeps the bound."""
        return value <= self.limit if self.bound == "<=" else value >= self.limit


TARGETS: Final[dict[str, Target]] = {
    "decode P": Target("decode P to array views", "<=", 0.5, "ms"),
    "decode P plain": Target("decode P, response without JSON escapes", "<=", 0.5, "ms"),
    "decode P ratio": Target("decode P, times faster than safetensors' load", ">=", 80.0, "x"),
    "encode P": Target("encode P unjoined, arrays", "<=", 0.5, "ms"),
    "encode P plain": Target("encode P, response without JSON escapes", "<=", 0.5, "ms"),
    "encode P lists": Target("encode P unjoined, lists", "<=", 5.0, "ms"),
    "decode P ids": Target("decode P with 103,000 ids", "<=", 6.0, "ms"),
    "encode P ids": Target("encode P unjoined, arrays, with 103,000 ids", "<=", 4.0, "ms"),
    "join P": Target("encode P to one buffer, share of bytes(memoryview)", "<=", 0.35, "x"),
    "join P traced": Target("encode P to one buffer, peak by tracemalloc", "<=", 1.05, "payloads"),
    "join P resident": Target("encode P to one buffer, peak resident set", "<=", 1.05, "payloads"),
    "encode S": Target("encode S unjoined, arrays", "<=", 20.0, "us"),
    "encode S lists": Target("encode S unjoined, lists", "<=", 40.0, "us"),
    "decode S": Target("decode S, template of 3 messages", "<=", 25.0, "us"),
    "gap P": Target("longest event loop gap, P made and sent", "<=", 5.0, "ms"),
    "gap P ids": Target("longest event loop gap, with 103,000 ids", "<=", 5.0, "ms"),
    "gap P lists": Target("longest event loop gap, lists", "<=", 5.0, "ms"),
}


@dataclass(frozen=True, slots=True)
class Result:
    """What one row measured.

    Attributes:
        value: in seconds, or the ratio itself.
        least: the least of the rounds, as value; None where there are no rounds.
        peer: the peer of the row, or None.
        peer_value: the peer's, as value; None where value is a ratio to the peer already.
    """

    value: float
    least: float | None = None
    peer: str | None = None
    peer_value: float | None = None


Results = dict[str, Result]


def _against(ours: Timing, peer: str, theirs: Timing) -> Result:
    return Result(ours.median_s, ours.min_s, peer, theirs.median_s)


def _times(ours: Timing, peer: str, theirs: Timing) -> str:
    """The two times behind a ratio."""
    return f"{peer}: {theirs.median_s * 1e3:.1f} ms; ours: {ours.median_s * 1e3:.2f} ms"


def decode_large(effort: Effort) -> Results:
    """Decoding P from bytes; the peer reads the same bytes, but neither JSON nor template."""
    sample, ids = sample_of("P", "arrays"), accumulated_ids("P")
    wires = {
        "P": bytes(encode_samples([sample])),
        "plain": bytes(encode_samples([plain_text(sample)])),
        "ids": bytes(encode_samples([sample], ids)),
    }
    with_json = format_of(_SAFETENSORS)
    ids_wire = with_json.encode(sample, ids)
    trainers = template()
    times = compare(
        {
            "P": lambda: decode_samples(wires["P"], trainers),
            "plain": lambda: decode_samples(wires["plain"], trainers),
            "ids": lambda: decode_samples(wires["ids"], trainers),
            "load": lambda: safetensors.numpy.load(wires["P"]),
            "load ids": lambda: with_json.decode(ids_wire),
        },
        effort,
    )
    load = times["load"]
    return {
        "decode P": _against(times["P"], "safetensors load", load),
        "decode P plain": _against(times["plain"], "safetensors load", load),
        "decode P ratio": Result(
            load.median_s / times["P"].median_s, peer=_times(times["P"], "safetensors load", load)
        ),
        "decode P ids": _against(times["ids"], "safetensors load and JSON", times["load ids"]),
    }


def encode_large(effort: Effort) -> Results:
    """Encoding P without joining; the peer's save is one buffer, as it has no other form."""
    arrays, lists, ids = sample_of("P", "arrays"), sample_of("P", "lists"), accumulated_ids("P")
    plain = plain_text(arrays)
    save = format_of(_SAFETENSORS).encode
    times = compare(
        {
            "P": lambda: encode_samples([arrays]),
            "plain": lambda: encode_samples([plain]),
            "lists": lambda: encode_samples([lists]),
            "ids": lambda: encode_samples([arrays], ids),
            "save": lambda: save(arrays, {}),
            "save lists": lambda: save(lists, {}),
            "save ids": lambda: save(arrays, ids),
        },
        effort,
    )
    return {
        "encode P": _against(times["P"], "safetensors save", times["save"]),
        "encode P plain": _against(times["plain"], "safetensors save", times["save"]),
        "encode P lists": _against(times["lists"], "safetensors save", times["save lists"]),
        "encode P ids": _against(times["ids"], "safetensors save", times["save ids"]),
    }


def join_large(effort: Effort) -> Results:
    """Encoding P to one buffer, in time and peak memory."""
    sample = sample_of("P", "arrays")
    whole = encode_samples([sample]).contiguous()
    times = compare(
        {
            "join": lambda: encode_samples([sample]).contiguous(),
            "bytes": lambda: bytes(whole),
        },
        effort,
    )
    share = times["join"].median_s / times["bytes"].median_s
    results = {
        "join P": Result(share, peer=_times(times["join"], "bytes(memoryview)", times["bytes"])),
        "join P traced": Result(traced_peak(sample)),
    }
    if has_resident_peak():
        ours, theirs = resident_peak(OURS[1]), resident_peak(_SAFETENSORS)
        results["join P resident"] = Result(ours, peer="safetensors save", peer_value=theirs)
    return results


def small(effort: Effort) -> Results:
    """S, against the fastest peer at that size."""
    arrays, lists = sample_of("S", "arrays"), sample_of("S", "lists")
    wire = bytes(encode_samples([arrays]))
    peer, trainers = format_of(_MSGPACK), template()
    packed = received(peer.encode(arrays, {}))
    times = compare(
        {
            "arrays": lambda: encode_samples([arrays]),
            "lists": lambda: encode_samples([lists]),
            "decode": lambda: decode_samples(wire, trainers),
            "pack": lambda: peer.encode(arrays, {}),
            "pack lists": lambda: peer.encode(lists, {}),
            "unpack": lambda: peer.decode(packed),
        },
        effort,
    )
    return {
        "encode S": _against(times["arrays"], "msgspec.msgpack", times["pack"]),
        "encode S lists": _against(times["lists"], "msgspec.msgpack", times["pack lists"]),
        "decode S": _against(times["decode"], "msgspec.msgpack", times["unpack"]),
    }


def event_loop(effort: Effort) -> Results:
    """The longest gap of a 1 ms ticker; the peer's body is one bytes object, written whole."""
    arrays, lists, ids = sample_of("P", "arrays"), sample_of("P", "lists"), accumulated_ids("P")
    save = format_of(_SAFETENSORS).encode
    jobs = {
        "gap P": Job(lambda: encode_samples([arrays]), send_sliced),
        "gap P ids": Job(lambda: encode_samples([arrays], ids), send_sliced),
        "gap P lists": Job(lambda: encode_samples([lists]), send_sliced),
        "whole": Job(lambda: [memoryview(save(arrays, {}))], send_whole),
    }
    gaps = longest_gaps_s(jobs, effort.gap_rounds)
    whole = median(gaps.pop("whole"))
    return {
        name: Result(median(times), min(times), "safetensors, written whole", whole)
        for name, times in gaps.items()
    }


GROUPS: Final[tuple[Callable[[Effort], Results], ...]] = (
    small,
    decode_large,
    encode_large,
    join_large,
    event_loop,
)


def measure_targets(effort: Effort) -> Results:
    """The result of every target, by its key in TARGETS; one is left out where the system
    cannot tell it."""
    results: Results = {}
    for group in GROUPS:
        results.update(group(effort))
    return results
