"""A session server with its engine, and the processes that talk to it and watch it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from ..adapters.server import ServerSettings
from ..adapters.tokenizer import CHATML
from ..assembly import RoutingSpec
from ..demo.servers import Servers
from .exchanges import connected
from .memory import forget_peak, peak_bytes, resident_bytes
from .meter import GAP_PATH, serve_metered
from .prober import Probe, watch
from .scale import Scale
from .workers import Work, working


class Seen(NamedTuple):
    """What was seen of the server in a part of the run.

    Attributes:
        probes: requests for its health.
        longest_gap_s: of its event loop.
        peak_resident: the largest resident set of its process; None where it is not told.
    """

    probes: list[Probe]
    longest_gap_s: float
    peak_resident: int | None


class Site:
    """A running server with its engine.

    Args:
        servers: both.
        routing: what the server was told of the engine's routing arrays.
        stack: ends the workers.

    Attributes:
        url: of the session server.
        routing: as it was given.
        agent, trainer: workers.
    """

    def __init__(self, servers: Servers, routing: RoutingSpec, stack: contextlib.ExitStack) -> None:
        self.url = servers.server_url
        self.routing = routing
        self.agent, self.trainer, self._prober = (
            stack.enter_context(working(name)) for name in ("agent", "trainer", "prober")
        )
        self._pid = servers.server_pid

    def delete(self, session_ids: Sequence[str]) -> None:
        """Ends sessions."""
        with connected(self.url) as server:
            for session_id in session_ids:
                server.delete(session_id)

    def resident_bytes(self) -> int | None:
        """The server's resident set; None where it is not told."""
        return resident_bytes(self._pid)

    def watch(self) -> Watch:
        """Begins to watch the server."""
        forget_peak(self._pid)
        self.longest_gap_s()
        return Watch(self, self._pid, self._prober.start(watch, self.url))

    def longest_gap_s(self) -> float:
        """Of the server's event loop, since this was asked last."""
        with connected(self.url) as server:
            return float(server.told("GET", GAP_PATH))


class Watch:
    """A server that is being watched.

    Args:
        site: whose.
        pid: its process.
        probing: asks for its health.
    """

    def __init__(self, site: Site, pid: int, probing: Work[list[Probe]]) -> None:
        self._site = site
        self._pid = pid
        self._probing = probing

    def end(self) -> Seen:
        """What was seen."""
        self._probing.end()
        return Seen(self._probing.result(), self._site.longest_gap_s(), peak_bytes(self._pid))


@contextlib.contextmanager
def running(scale: Scale, *, incremental: bool) -> Iterator[Site]:
    """A server with its engine while the block runs.

    Raises:
        SampleWireError: one does not start.
    """
    engine = scale.engine()
    routing = engine.routing_spec(incremental=incremental)
    settings = ServerSettings(engine_url="", tokenizer=CHATML, routing=routing)
    with contextlib.ExitStack() as stack:
        servers = Servers(settings, engine, stack, serve_metered)
        servers.wait()
        yield Site(servers, routing, stack)
