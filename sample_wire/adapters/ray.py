"""Session servers as actors of a Ray cluster.

    servers = start_session_servers(ServerSettings(..., host="0.0.0.0", port=0), num_servers=8)
    with servers:
        ...  # SessionClient(servers.urls), anywhere in the cluster
        servers.drain(timeout_s=600)

Each actor is one independent server on a port of its own.  A session lives in the process that
created it, and its URL names that process by host and port: clients find it without asking
anyone.  An actor that dies takes its sessions with it, and is not started again: another
process would know none of them.

Samples and payloads need nothing of this module.  `ray.put` copies them into the object store
once; what `ray.get` gives then lies in the store itself, read-only.

Needs the extra `ray`.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping
from typing import Any, Final, Self

import ray
from ray.exceptions import RayActorError

from .server import ServerSettings, create_app
from .server.processes import bound, raise_file_limit, url_of, with_instance
from .server.serving import http_server
from .server.state import ServerState

__all__ = ["SessionServers", "start_session_servers"]

# How often a draining server looks whether its last session has gone.
_POLL_S: Final = 0.05
_ANY_ADDRESS: Final = ("0.0.0.0", "::")
_SPREAD: Final = {"scheduling_strategy": "SPREAD"}


def start_session_servers(
    settings: ServerSettings,
    num_servers: int,
    *,
    actor_options: Mapping[str, Any] | None = None,
) -> SessionServers:
    """Starts session servers on the connected Ray cluster; returns when all of them listen.

    Args:
        settings: of each of them.  port 0 gives each a free one; another is for one server a
            node.  host is where each listens: "127.0.0.1" reaches clients on its own node
            only, "0.0.0.0" those of the whole cluster, and whoever else reaches the node:
            set a token.  The tokenizer's folder must be on every node.
        num_servers: at least 1.
        actor_options: for `.options()` of the actors: num_cpus, resources, label_selector and
            so on.  They are spread over the nodes unless scheduling_strategy says otherwise.

    Raises:
        ValueError: no servers, more than one worker (that is num_servers here), or a setting
            that does not hold.
        OSError: a port is in use, or the tokenizer cannot be read.
        ray.exceptions.RayError: the cluster could not start an actor.

    Where one cannot be started, none is left running.
    """
    if num_servers < 1:
        raise ValueError(f"num_servers must be at least 1, not {num_servers}")
    if settings.workers != 1:
        raise ValueError("an actor is one server: workers must be 1")
    actor_type: Any = ray.remote(_SessionServer).options(**_SPREAD | dict(actor_options or {}))
    actors: list[Any] = [actor_type.remote() for _ in range(num_servers)]
    try:
        urls = ray.get([actor.start.remote(settings) for actor in actors])
    except BaseException:
        for actor in actors:
            ray.kill(actor)
        raise
    return SessionServers(actors, urls)


class SessionServers:
    """Running session servers; a context manager that stops them.

    They also end with the driver that started them.

    Attributes:
        urls: where each of them is reached, for SessionClient.
    """

    def __init__(self, actors: list[Any], urls: list[str]) -> None:
        self._actors = actors
        self.urls = tuple(urls)

    def num_sessions(self) -> list[int]:
        """How many sessions each server holds, in the order of the URLs; [] when stopped.

        Raises:
            ray.exceptions.RayActorError: a server has died.
        """
        found: list[int] = ray.get([actor.num_sessions.remote() for actor in self._actors])
        return found

    def drain(self, *, timeout_s: float | None) -> int:
        """Lets sessions come to their end: new ones are refused with 503, others go on.

        Args:
            timeout_s: how long to wait for the last of them; None for ever.

        Returns:
            How many sessions are left, on all servers; 0 when all have ended.

        Raises:
            ray.exceptions.RayActorError: a server has died.  The others drain all the same.
        """
        return sum(ray.get([actor.drain.remote(timeout_s) for actor in self._actors]))

    def stop(self) -> None:
        """Ends all servers and the sessions that they hold.

        Requests that are under way get stop_timeout_s.  Servers that have died are passed over,
        and so is a second call.
        """
        stopping = [actor.stop.remote() for actor in self._actors]
        for actor, stopped in zip(self._actors, stopping, strict=True):
            with contextlib.suppress(RayActorError):
                ray.get(stopped)
            ray.kill(actor)
        self._actors = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


class _SessionServer:
    """The actor.  Its server runs on the actor's own event loop, where its methods run too."""

    async def start(self, settings: ServerSettings) -> str:
        """Serves; gives the server's URL."""
        app = create_app(with_instance(settings))
        self._state: ServerState = app.state.server
        sock = bound(settings.host, settings.port)
        raise_file_limit()
        self._server = http_server(app)
        self._serving = asyncio.create_task(self._server.serve(sockets=[sock]))
        return url_of(sock, _node_address() if settings.host in _ANY_ADDRESS else None)

    async def num_sessions(self) -> int:
        """Sessions that it holds, without those that are idle for too long."""
        self._state.drop_idle()
        return len(self._state.registry)

    async def drain(self, timeout_s: float | None) -> int:
        """Takes no new sessions; gives the number of those that are left in the end."""
        self._state.is_draining = True
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                while await self.num_sessions():
                    await asyncio.sleep(_POLL_S)
        return await self.num_sessions()

    async def stop(self) -> None:
        """Returns when the server has let go of its port."""
        self._server.should_exit = True
        await self._serving


def _node_address() -> str:
    """This node's address, as the cluster knows it; a machine may have several."""
    list_nodes: Any = ray.nodes
    node_id = ray.get_runtime_context().get_node_id()
    address: str = next(
        node["NodeManagerAddress"] for node in list_nodes() if node["NodeID"] == node_id
    )
    return address
