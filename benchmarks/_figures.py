"""The figures to reach, and what a measured one is: the rows of the report's first tables."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal, NamedTuple

from benchmarks._timing import Timing

Unit = Literal["ms", "us", "x", "payloads"]
PER_SECOND: Final[dict[Unit, float]] = {"ms": 1e3, "us": 1e6, "x": 1.0, "payloads": 1.0}


class Target(NamedTuple):
    """One figure to reach: what is measured, and its bound."""

    what: str
    bound: Literal["<=", ">="]
    limit: float
    unit: Unit

    def is_met(self, value: float) -> bool:
        """Whether a value, in the target's unit, keeps the bound."""
        return value <= self.limit if self.bound == "<=" else value >= self.limit


class Figure(NamedTuple):
    """A row without a bound."""

    what: str
    unit: Unit


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
    "compact P": Target("compact P, share of the exact payload", "<=", 0.26, "x"),
    "compact 128": Target("compact captures of 128 experts, share of exact", "<=", 0.26, "x"),
    "compact 512": Target("compact capture of 512 experts, share of exact", "<=", 0.51, "x"),
    "narrow P": Target("encode P compact unjoined, arrays, beyond exact", "<=", 10.0, "ms"),
    "widen P": Target("decode compact P, all arrays widened", "<=", 12.0, "ms"),
    "gap P": Target("longest event loop gap, P made and sent", "<=", 5.0, "ms"),
    "gap P ids": Target("longest event loop gap, with 103,000 ids", "<=", 5.0, "ms"),
    "gap P lists": Target("longest event loop gap, lists", "<=", 5.0, "ms"),
    "assemble": Target("assemble P, its 50 turns held, and encode it unjoined", "<=", 20.0, "ms"),
    "assemble ids": Target("assemble and encode P, with 103,000 ids", "<=", 20.0, "ms"),
    "assemble ratio": Target(
        "assemble and encode P, times faster than straightforward", ">=", 100.0, "x"
    ),
    "read last": Target("read P's 50th full-prefix reply, share of json.loads", "<=", 0.35, "x"),
    "read incremental": Target("read P's 50th incremental reply", "<=", 5.0, "ms"),
    "read flat": Target("read an incremental reply, the 100th over the 10th", "<=", 1.5, "x"),
    "session memory": Target(
        "resident set of P's session, over uint8 R3 and int32 ids", "<=", 1.5, "x"
    ),
    "collect": Target("server: collect P's 50 turns, until it is sent", "<=", 20.0, "ms"),
    "collect ratio": Target(
        "collect P over HTTP, times faster than by the records dump", ">=", 100.0, "x"
    ),
    "server memory": Target(
        "server: resident set of P's session, over uint8 R3 and int32 ids", "<=", 1.5, "x"
    ),
    "chat full": Target(
        "server: P's 50th turn, full-prefix reply, share of json.loads", "<=", 0.35, "x"
    ),
    "chat incremental": Target("server: P's 50th turn, incremental reply", "<=", 5.0, "ms"),
    "server gap": Target("server: longest event loop gap, P collected and sent", "<=", 5.0, "ms"),
    "health": Target(
        "/health, p99, while 8 sessions of P are collected and incremental chat goes on",
        "<=",
        50.0,
        "ms",
    ),
    "health answered": Target("/health meanwhile, share that is answered", ">=", 1.0, "x"),
    "health full answered": Target(
        "/health during full-prefix chat, share that is answered", ">=", 1.0, "x"
    ),
    "client memory": Target(
        "peak resident set of SessionClient.collect, P", "<=", 1.35, "payloads"
    ),
    "client memory sync": Target(
        "peak resident set of SyncSessionClient.collect, P", "<=", 1.35, "payloads"
    ),
    "tree memory": Target(
        "16 tries of P's 50th turn, over the uint8 R3 and int32 ids that they sampled",
        "<=",
        1.5,
        "x",
    ),
}

# What is measured beside them, without a bound.
MEASURED: Final[dict[str, Figure]] = {
    "decode P narrow": Figure("decode compact P to views of the stored dtypes", "ms"),
    "iterate": Figure("iterate all buffers of the assembled P, R3 widened", "ms"),
    "join": Figure("make one buffer of the assembled P", "ms"),
    "read last stdlib": Figure(
        "read the 50th full-prefix reply by the standard library's base64, share of json.loads", "x"
    ),
    "read all": Figure("read all 50 full-prefix replies, once each", "ms"),
    "read 10th": Figure("read the 10th incremental reply", "ms"),
    "read 100th": Figure("read the 100th incremental reply", "ms"),
    "session memory trimmed": Figure("resident set of the session after malloc_trim", "x"),
    "session memory chunks": Figure("resident set, replies received in chunks and joined", "x"),
    "session memory chunks trimmed": Figure("the same after malloc_trim", "x"),
    "tree assemble": Figure("assemble 16 leaves of P, and encode them unjoined", "ms"),
    "records memory": Figure("resident set of the session's records as parsed JSON", "x"),
    "collect whole": Figure("collect P over HTTP and decode it", "ms"),
    "chat full whole": Figure("P's 50th turn over HTTP, full-prefix reply, engine included", "ms"),
    "chat incremental whole": Figure(
        "P's 50th turn over HTTP, incremental reply, engine included", "ms"
    ),
    "health full": Figure("/health, p99, during full-prefix chat of P's 50th turn", "ms"),
    "client memory content": Figure("peak of httpx2's own reading of the reply", "payloads"),
}


@dataclass(frozen=True, slots=True)
class Result:
    """What one row measured.

    Attributes:
        value: in seconds, or the ratio itself.
        least: the least of the rounds, as value; None where there are no rounds.
        peer: the peer of the row, or None.
        peer_value: the peer's, as value; None where value is a ratio to the peer already.
        measured_at: where another shape than the row's was measured, which; such a value is
            held to no bound.
    """

    value: float
    least: float | None = None
    peer: str | None = None
    peer_value: float | None = None
    measured_at: str | None = None


Results = dict[str, Result]


def against(ours: Timing, peer: str, theirs: Timing) -> Result:
    return Result(ours.median_s, ours.min_s, peer, theirs.median_s)


def times_of(ours: Timing, peer: str, theirs: Timing) -> str:
    """The two times behind a ratio."""
    return f"{peer}: {theirs.median_s * 1e3:.1f} ms; ours: {ours.median_s * 1e3:.2f} ms"
