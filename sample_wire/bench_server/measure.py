"""The run: both paths for both forms of routing, and what is measured meanwhile.

For each form there are a server and an engine of its own.  First the agent has its sessions,
with nothing collected meanwhile.  Then the sessions are collected by the one path and by the
other, one at a time, while the agent goes on with others.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from statistics import fmean
from typing import Final

import msgspec

from ..demo.progress import Progress
from .agent import Talked, talk, talk_on
from .errors import BenchError
from .exchanges import Windows
from .figures import FORMS, Collecting, Health, Latencies, Leg, Load, Point, Run
from .memory import available_bytes
from .scale import Scale
from .site import Seen, Site, running
from .trainer import RECORDS, SAMPLES, Collect, collect_records, collect_samples

_WARM_UP_TURNS: Final = 2
# Parts of a session that the curve has points for.
_CURVE: Final = (0.1, 0.2, 0.5, 1.0)
# A dump, what it parses to, and a quarter for the rest.
_DUMPS_IN_MEMORY: Final = 2.25


def measure(scale: Scale, progress: Progress) -> Run:
    """Runs it all.

    Raises:
        BenchError: memory is short, a process failed, or the two paths differ.
        SampleWireError: a server did not start.
    """
    _check_memory(scale)
    began = time.monotonic()
    legs = [_leg(scale, progress, incremental=incremental) for incremental in FORMS]
    return Run(scale, legs, time.monotonic() - began)


def _check_memory(scale: Scale) -> None:
    needed, free = _DUMPS_IN_MEMORY * scale.dump_bytes(), available_bytes()
    if free is not None and needed > free:
        raise BenchError(
            f"a records dump of {scale.turns} turns takes {needed / 2**30:.1f} GiB here, and "
            f"{free / 2**30:.1f} GiB are free: take fewer turns, or smaller ones"
        )


def _leg(scale: Scale, progress: Progress, *, incremental: bool) -> Leg:
    def step(text: str) -> None:
        progress.step(f"{FORMS[incremental]}: {text}")

    step("starting the servers")
    with running(scale, incremental=incremental) as site:
        _point(site, scale, _WARM_UP_TURNS)  # what is done first is no part of what is measured
        step(f"sessions {scale.sessions}, turns {scale.turns}")
        before = site.resident_bytes()
        talked, seen = _quiet(site, scale)
        after = site.resident_bytes()
        step("collecting samples")
        samples = _samples(site, scale, talked.session_ids)
        step("collecting records")
        records = _records(site, scale, talked.session_ids)
        site.delete(talked.session_ids)
        step("collecting sessions of several lengths, with no chat meanwhile")
        return Leg(
            incremental,
            quiet=Load(
                Latencies.of(talked.turns),
                Health.of(seen.probes),
                seen.longest_gap_s,
                seen.peak_resident,
            ),
            chat_s=talked.turns[-1].ended - talked.turns[0].started,
            resident_per_session=_grown(before, after, scale.sessions),
            samples=samples,
            records=records,
            curve=[*_curve(site, scale)],
        )


def _quiet(site: Site, scale: Scale) -> tuple[Talked, Seen]:
    """The sessions, had while nothing is collected."""
    watching = site.watch()
    talked = site.agent.start(talk, site.url, scale, "collected").result()
    return talked, watching.end()


def _samples(site: Site, scale: Scale, session_ids: list[str]) -> Collecting:
    """Samples are collected, again and again, until the agent is at the end of its sessions."""
    watching = site.watch()
    training = site.trainer.start(collect_samples, site.url, session_ids)
    talked = site.agent.start(talk_on, site.url, scale, "beside samples").result()
    training.end()
    return _collecting(training.result(), talked, watching.end(), scale.sessions)


def _records(site: Site, scale: Scale, session_ids: list[str]) -> Collecting:
    """The agent has sessions until all records are collected."""
    watching = site.watch()
    talking = site.agent.start(talk_on, site.url, scale, "beside records", True)
    collects = site.trainer.start(collect_records, site.url, session_ids, site.routing).result()
    talking.end()
    return _collecting(collects, talking.result(), watching.end(), scale.sessions)


def _collecting(
    collects: Sequence[Collect], talked: Talked, seen: Seen, num_sessions: int
) -> Collecting:
    first, windows = collects[:num_sessions], Windows([one.sent for one in collects])
    meanwhile = [probe for probe in seen.probes if windows.meet(probe.span)]
    return Collecting(
        num_replies=len(collects),
        reply_bytes=fmean(one.reply_bytes for one in first),
        received_s=fmean(one.sent.length_s for one in first),
        seconds=_means(first),
        load=Load(
            Latencies.of([span for span in talked.turns if windows.meet(span)]),
            Health.of(meanwhile),
            seen.longest_gap_s,
            seen.peak_resident,
        ),
        health=Health.of(seen.probes),
    )


def _curve(site: Site, scale: Scale) -> Iterator[Point]:
    """Sessions of several lengths, the shortest first."""
    for turns in sorted({max(round(part * scale.turns), 1) for part in _CURVE}):
        yield _point(site, scale, turns)


def _point(site: Site, scale: Scale, turns: int) -> Point:
    """A session of so many turns, collected by both paths and ended."""
    scale = msgspec.structs.replace(scale, sessions=1, turns=turns)
    session_ids = site.agent.start(talk, site.url, scale, f"{turns} turns").result().session_ids
    collecting = site.trainer.start(collect_samples, site.url, session_ids)
    collecting.end()
    samples = collecting.result()
    records = site.trainer.start(collect_records, site.url, session_ids, site.routing).result()
    site.delete(session_ids)
    both = {SAMPLES: samples[0], RECORDS: records[0]}
    return Point(
        turns,
        {path: one.reply_bytes for path, one in both.items()},
        {way: time_s for one in both.values() for way, time_s in one.seconds.items()},
    )


def _means(collects: Sequence[Collect]) -> dict[str, float]:
    return {way: fmean(one.seconds[way] for one in collects) for way in collects[0].seconds}


def _grown(before: int | None, after: int | None, num_sessions: int) -> float | None:
    return None if before is None or after is None else (after - before) / num_sessions
