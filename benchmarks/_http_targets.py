"""How the rows of the session server and its client are measured, over loopback sockets.

Server, engine, and clients are processes of their own (_site.py).  A full run measures them at
P, a quick one at M.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from statistics import median
from time import perf_counter
from typing import Any, Final

import numpy as np

from benchmarks._assembly import has_pybase64
from benchmarks._client_memory import client_peaks
from benchmarks._figures import Result, Results
from benchmarks._health import Health, watched
from benchmarks._memory import has_resident_peak
from benchmarks._session_memory import WARM_UP_TURNS
from benchmarks._session_server import Call
from benchmarks._session_targets import affordable_turns, at_shape
from benchmarks._site import Site, serving
from benchmarks._timing import Effort
from sample_wire import Sample
from sample_wire.bench_server.straightforward import assemble_records

NUM_COLLECTED: Final = 8
_ARRAYS: Final = ("tokens", "loss_mask", "rollout_log_probs", "rollout_routed_experts")


def full_prefix_server(effort: Effort) -> Results:
    """A server whose engine sends every row with every reply."""
    results: Results = {}
    with serving(effort.session, incremental=False) as site:
        session_id = _with_memory(site, results)
        results |= _last_turn(site, session_id, effort)
        results |= _collected(site, session_id, effort)
        results |= _faster_than_dump(site, session_id, effort.session)
        with watched(site.port) as health:
            for _ in range(effort.gap_rounds):
                site.chat(session_id, site.session.num_turns - 1)
    results |= _told(health, "health full")
    return at_shape(results, effort)


def incremental_server(effort: Effort) -> Results:
    """A server whose engine sends new rows only: a turn, and /health under load."""
    results: Results = {}
    with serving(effort.session, incremental=True) as site:
        last = site.session.num_turns - 1
        chatting = site.talk(last + 1)
        calls, whole_s = _calls(site, lambda: site.chat(chatting, last), effort.rounds)
        inside = [_in_server_s(call) for call in calls]
        cpu_ms = median(call.cpu_s - call.engine_cpu_s for call in calls) * 1e3
        cpu = f"processor time: {cpu_ms:.2f} ms"
        results["chat incremental"] = Result(median(inside), min(inside), cpu)
        results["chat incremental whole"] = Result(median(whole_s), min(whole_s))
        with ThreadPoolExecutor(NUM_COLLECTED) as pool:
            sessions = [*pool.map(site.talk, [last + 1] * NUM_COLLECTED)]
            with watched(site.port) as health:
                _load(site, pool, sessions, chatting, effort.gap_rounds)
    results |= _told(health, "health")
    return at_shape(results, effort)


def client_memory(effort: Effort) -> Results:
    """Peak memory of each way to collect a reply."""
    if not has_resident_peak():
        return {}
    peaks = client_peaks(effort.session)
    return at_shape(
        {
            "client memory": Result(peaks["SessionClient"]),
            "client memory sync": Result(peaks["SyncSessionClient"]),
            "client memory content": Result(peaks["httpx2, .content"]),
        },
        effort,
    )


def _with_memory(site: Site, results: Results) -> str:
    """A session of all turns; what it takes, with that after a warm-up was deleted as the base."""
    site.delete(site.talk(WARM_UP_TURNS))
    num_turns = site.session.num_turns
    if not has_resident_peak():
        return site.talk(num_turns)
    before = site.resident_bytes()
    session_id = site.talk(num_turns)
    grown = site.resident_bytes() - before
    results["server memory"] = Result(grown / site.session.narrow_bytes(num_turns))
    return session_id


def _last_turn(site: Site, session_id: str, effort: Effort) -> Results:
    """The last turn again and again, json.loads of its reply between; the session is as before."""
    last = site.session.num_turns - 1
    reply = site.session.record(last, incremental=False)["response"]
    parsed_s: list[float] = []

    def chat() -> None:
        site.chat(session_id, last)

    def parse() -> None:
        started = perf_counter()
        json.loads(reply)
        parsed_s.append(perf_counter() - started)

    calls, whole_s = _calls(site, chat, effort.long_rounds, parse)
    inside = [_in_server_s(call) for call in calls]
    ours, theirs = median(inside), median(parsed_s)
    peer = f"json.loads: {theirs * 1e3:.1f} ms; ours: {ours * 1e3:.2f} ms"
    results = {
        "chat full": Result(ours / theirs, peer=peer),
        "chat full whole": Result(median(whole_s), min(whole_s)),
    }
    if not has_pybase64():
        del results["chat full"]
    return results


def _collected(site: Site, session_id: str, effort: Effort) -> Results:
    """Collecting a session: the server's time, the whole exchange, and the loop's gaps."""
    calls, whole_s = _calls(site, lambda: site.collect(session_id), effort.long_rounds)
    ready = [call.ready_s for call in calls]
    cpu_ms = median(call.cpu_s for call in calls) * 1e3
    gaps = [site.longest_gap_s(session_id) for _ in range(effort.gap_rounds)]
    return {
        "collect": Result(median(ready), min(ready), f"processor time: {cpu_ms:.1f} ms"),
        "collect whole": Result(median(whole_s), min(whole_s)),
        "server gap": Result(median(gaps), min(gaps)),
    }


def _faster_than_dump(site: Site, session_id: str, shape: str) -> Results:
    """Collecting beside the straightforward way, once, which fetches all records and assembles.

    Where memory is short it is a session of the first turns, and the row says how many.

    Raises:
        RuntimeError: the two samples differ.
    """
    session = site.session
    count = affordable_turns(session)
    all_turns = count == session.num_turns
    if not all_turns:
        session_id = site.talk(count)
    num_layers = session.spec(incremental=False).num_layers
    site.calls()
    theirs, theirs_s = _timed(lambda: _by_dump(site, session_id, num_layers))
    server_s = site.calls()[0].whole_s
    ours, ours_s = _timed(lambda: site.collect(session_id).samples[0])
    _check_same(ours, theirs)
    peer = (
        f"records dump, {count} turns: {theirs_s * 1e3:.0f} ms, {server_s * 1e3:.0f} of them in "
        f"the server; ours: {ours_s * 1e3:.0f} ms"
    )
    where = None if all_turns else f"{count} turns of shape {shape}"
    return {"collect ratio": Result(theirs_s / ours_s, peer=peer, measured_at=where)}


def _by_dump(site: Site, session_id: str, num_layers: int) -> Sample:
    found = site.dump(session_id)
    ids = found["metadata"]["accumulated_token_ids"]
    return assemble_records(found["records"], ids, num_layers)


def _check_same(ours: Sample, theirs: Sample) -> None:
    for name in _ARRAYS:
        if not np.array_equal(np.asarray(getattr(ours, name)), np.asarray(getattr(theirs, name))):
            raise RuntimeError(f"the straightforward way makes other {name}")


def _load(
    site: Site, pool: ThreadPoolExecutor, sessions: list[str], chatting: str, rounds: int
) -> None:
    """Collects all sessions at once, some times over, while one more goes on chatting."""
    last = site.session.num_turns - 1
    collects: list[Future[Any]] = [
        pool.submit(_collect_again, site, one, rounds) for one in sessions
    ]
    while not all(collect.done() for collect in collects):
        site.chat(chatting, last)
    for collect in collects:
        collect.result()


def _collect_again(site: Site, session_id: str, rounds: int) -> None:
    for _ in range(rounds):
        site.collect(session_id)


def _told(health: Health, name: str) -> Results:
    num_failed, num_answered = health.num_failed, len(health.latencies_s)
    worst = f"{num_answered} answers, the slowest {health.latencies_s[-1] * 1e3:.1f} ms"
    return {
        name: Result(health.p99_s, median(health.latencies_s), worst),
        f"{name} answered": Result(health.answered, peer=f"{num_failed} failed"),
    }


def _calls(
    site: Site, call: Callable[[], object], rounds: int, between: Callable[[], object] | None = None
) -> tuple[list[Call], list[float]]:
    """What some rounds of a call cost in the server, and their whole times; one goes first."""
    call()
    site.calls()
    whole_s = []
    for _ in range(rounds):
        whole_s.append(_timed(call)[1])
        if between is not None:
            between()
    return site.calls(), whole_s


def _in_server_s(call: Call) -> float:
    """A turn's time in the server, without the engine's and the transport's."""
    return call.whole_s - call.engine_s


def _timed(call: Callable[[], Any]) -> tuple[Any, float]:
    started = perf_counter()
    result = call()
    return result, perf_counter() - started
