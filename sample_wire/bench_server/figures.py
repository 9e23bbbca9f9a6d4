"""What a run found: times in seconds, sizes in bytes; None is what the system does not tell."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final, Self

import msgspec

from .exchanges import Span
from .prober import Probe
from .scale import Scale

# By whether each turn brings its new rows only, instead of all rows.
FORMS: Final = {False: "full-prefix", True: "incremental"}


class Latencies(msgspec.Struct, frozen=True):
    """How long some requests took; zeros where there was none."""

    count: int
    p50_s: float
    p95_s: float
    p99_s: float
    max_s: float

    @classmethod
    def of(cls, spans: Sequence[Span]) -> Self:
        """The latencies of requests."""
        ordered = sorted(span.length_s for span in spans) or [0.0]
        p50, p95, p99 = (percentile(ordered, share) for share in (0.5, 0.95, 0.99))
        return cls(len(spans), p50, p95, p99, ordered[-1])


class Health(msgspec.Struct, frozen=True):
    """What became of the requests for /health.

    Attributes:
        num_failed: those that were not answered by 200 in time.
        latencies: of all of them.
    """

    num_failed: int
    latencies: Latencies

    @classmethod
    def of(cls, probes: Sequence[Probe]) -> Self:
        """The health that a prober found."""
        failed = sum(not probe.is_good for probe in probes)
        return cls(failed, Latencies.of([probe.span for probe in probes]))


class Load(msgspec.Struct, frozen=True):
    """How the server did in a part of the run.

    Attributes:
        chat: turns that were asked for meanwhile.
        health: of the server meanwhile.
        longest_gap_s: of its event loop, in the whole part.
        peak_resident: the largest resident set of its process, in the whole part.
    """

    chat: Latencies
    health: Health
    longest_gap_s: float
    peak_resident: int | None


class Collecting(msgspec.Struct, frozen=True):
    """One path: sessions collected while an agent chats.

    Attributes:
        num_replies: how many were received, each session's first among them.
        reply_bytes: mean size of the sessions' replies.
        received_s: mean time until the last byte of the sessions' first replies.
        seconds: by way, the mean time until the sample is there.
        load: chat and health while a reply was on its way.
        health: of the server in all this time, what the client did with the replies included.
    """

    num_replies: int
    reply_bytes: float
    received_s: float
    seconds: dict[str, float]
    load: Load
    health: Health


class Point(msgspec.Struct, frozen=True):
    """Collecting one session of so many turns, while the server has nothing else to do."""

    turns: int
    reply_bytes: dict[str, float]
    seconds: dict[str, float]


class Leg(msgspec.Struct, frozen=True):
    """Both paths with one form of routing.

    Attributes:
        incremental: each turn brings its new rows only, instead of all rows.
        quiet: chat and health while nothing is collected.
        chat_s: how long the agent took for the sessions.
        resident_per_session: growth of the server's resident set by the sessions, for each.
        samples, records: the two paths.
        curve: by number of turns.
    """

    incremental: bool
    quiet: Load
    chat_s: float
    resident_per_session: float | None
    samples: Collecting
    records: Collecting
    curve: list[Point]


class Run(msgspec.Struct, frozen=True):
    """A whole run.

    Attributes:
        scale: its size.
        legs: one for each form of routing.
        wall_s: how long it took.
    """

    scale: Scale
    legs: list[Leg]
    wall_s: float


def percentile(ordered: Sequence[float], share: float) -> float:
    """The least of the values that this share of them does not exceed.

    Args:
        ordered: one value or more, in increasing order.
        share: above 0, and 1 at most.
    """
    return ordered[math.ceil(share * len(ordered)) - 1]
