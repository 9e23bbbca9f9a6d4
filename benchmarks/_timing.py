"""Times of several calls in one run: taken in turns, so that a slow spell hits all of them."""

from __future__ import annotations

import gc
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from itertools import repeat
from statistics import median
from time import perf_counter_ns
from typing import Final, NamedTuple, TypeVar

from benchmarks._data import ShapeName

Call = Callable[[], object]
Key = TypeVar("Key", bound=Hashable)
_NS: Final = 1e-9
# A first call of that many rounds is no matter of warming up.
_MANY_ROUNDS: Final = 100


@dataclass(frozen=True, slots=True)
class Effort:
    """How much of a run to take.

    Attributes:
        rounds: rounds of a call that is repeated within its round.
        long_rounds: rounds of a call that takes a round of its own.
        round_s: a round repeats a shorter call until it has taken about this long.
        gap_rounds: payloads sent for each event loop row.
        session: the shape of the assembly rows' session.
    """

    name: str
    rounds: int
    long_rounds: int
    round_s: float
    gap_rounds: int
    session: ShapeName = "P"


FULL: Final = Effort("full", rounds=51, long_rounds=15, round_s=0.01, gap_rounds=7)
QUICK: Final = Effort("quick", rounds=5, long_rounds=2, round_s=0.002, gap_rounds=2, session="M")


class Timing(NamedTuple):
    """Seconds that one call takes: the median and the least of its rounds."""

    median_s: float
    min_s: float


def compare(calls: Mapping[Key, Call], effort: Effort) -> dict[Key, Timing]:
    """Each call's timing.  A round of every call is taken before the next round of any."""
    repeats = {name: _calibrate(call, effort.round_s) for name, call in calls.items()}
    rounds: dict[Key, list[float]] = {name: [] for name in calls}
    turns = max(effort.long_rounds if n == 1 else effort.rounds for n in repeats.values())
    for turn in range(turns):
        for name, call in calls.items():
            if repeats[name] > 1 or turn < effort.long_rounds:
                rounds[name].append(_round_s(call, repeats[name]))
    return {name: Timing(median(times), min(times)) for name, times in rounds.items()}


def _calibrate(call: Call, round_s: float) -> int:
    """How often to repeat the call in one round; also its warm-up."""
    if _round_s(call, 1) > _MANY_ROUNDS * round_s:
        return 1
    return max(1, int(round_s / _round_s(call, 1)))


def _round_s(call: Call, repeats: int) -> float:
    """Seconds a call, garbage collection off; a single long call's result is freed unmeasured."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        if repeats == 1:
            start = perf_counter_ns()
            result = call()
            stop = perf_counter_ns()
            del result
        else:
            start = perf_counter_ns()
            for _ in repeat(None, repeats):
                call()
            stop = perf_counter_ns()
    finally:
        if was_enabled:
            gc.enable()
    return (stop - start) * _NS / repeats
