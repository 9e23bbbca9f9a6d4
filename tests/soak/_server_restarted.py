"""The server is killed and started again: whoever talked to it is told, and soon.

Sessions live in memory, so they go with the server.  What must not happen is that a client
waits for an answer that cannot come, or takes another process for the one it knew.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from time import perf_counter
from typing import Any, Final

import httpx2

from sample_wire import Sample
from sample_wire.adapters.client import SyncSessionClient
from sample_wire.errors import ClientError, ServerError

from ._agent import Agent
from ._engine import HOLD
from ._processes import Site, plain_http
from ._rows import Row, at_most, fact

_MAX_WAIT_S: Final = 5.0
_UNKNOWN: Final = (404, "unknown_session")


def server_restarted(site: Site, num_rounds: int) -> list[Row]:
    """Kills the server under a chat in each round, asks while it is away, and after."""
    found: dict[str, list[bool]] = {}
    waits_s = []
    for number in range(num_rounds):
        for what, is_right, waited_s in _round(site, number):
            found.setdefault(what, []).append(is_right)
            waits_s.append(waited_s)
    rows = [fact(what, count=sum(right), of=num_rounds) for what, right in found.items()]
    return [*rows, at_most("the longest wait of a client for that", max(waits_s), _MAX_WAIT_S, "s")]


def _round(site: Site, seed: int) -> list[tuple[str, bool, float]]:
    url = site.server.url
    with SyncSessionClient(url) as early, SyncSessionClient(url) as late, plain_http(url) as http:
        agent = Agent(url, seed)
        agent.talk(1)
        with ThreadPoolExecutor(1) as pool:
            waiting = pool.submit(agent.ask, {HOLD: "yes"})
            site.engine.line()
            site.server.kill()
            found = [
                _timed("chats under way that broke off", lambda: _breaks(waiting.result)),
                _timed("collects without a server: ClientError", lambda: _no_server(early)),
            ]
        site.server.start_again()
        found += [
            _timed("collects after a new start: 404", lambda: _is_unknown(late)),
            _timed("chats after a new start: 404", lambda: _refusal(agent.ask()) == _UNKNOWN),
            _timed("new processes with an id of their own", lambda: _is_another(http, early)),
            _timed("new sessions whose samples are right", lambda: _goes_on(url, seed)),
        ]
        agent.close()
    return found


def _timed(what: str, check: Callable[[], bool]) -> tuple[str, bool, float]:
    started = perf_counter()
    is_right = check()
    return what, is_right, perf_counter() - started


def _breaks(call: Callable[[], Any]) -> bool:
    try:
        call()
    except httpx2.TransportError:
        return True
    return False


def _no_server(client: SyncSessionClient) -> bool:
    try:
        client.collect(Sample())
    except ServerError:
        return False
    except ClientError:
        return True
    return False


def _is_unknown(client: SyncSessionClient) -> bool:
    try:
        client.collect(Sample())
    except ServerError as error:
        return (error.status, error.code) == _UNKNOWN
    return False


def _is_another(http: httpx2.Client, client: SyncSessionClient) -> bool:
    now = http.get("/health").json()["session_server_instance_id"]
    return client.instance_id is not None and bool(now != client.instance_id)


def _goes_on(url: str, seed: int) -> bool:
    agent = Agent(url, seed)
    agent.talk(1)
    is_right = agent.has_its_samples()
    agent.close()
    return is_right


def _refusal(response: httpx2.Response) -> tuple[int, str]:
    return response.status_code, response.json().get("code", "")
