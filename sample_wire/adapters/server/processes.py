"""Server processes: one for each port, all listening before the first one starts."""

from __future__ import annotations

import contextlib
import ipaddress
import logging
import multiprocessing
import multiprocessing.connection
import os
import resource
import secrets
import signal
import socket
import sys
import threading
import types
from typing import Final

import msgspec
from starlette.types import ASGIApp

from .._engine_http import LAST_PORT
from .app import create_app
from .logs import write_logs
from .serving import http_server
from .settings import ServerSettings

FAILED: Final = 1
_log: Final = logging.getLogger(__name__)
_BY_SIGNAL: Final = 128  # what shells add to the number of the signal that ended a process
_BACKLOG: Final = 2048
_PORT_TRIES: Final = 32


def serve(settings: ServerSettings) -> int:
    """Serves until a signal comes or a worker ends; returns the exit status.

    Raises:
        ValueError: a setting does not hold.
        OSError: a port is in use, or the tokenizer cannot be read.
        KeyboardInterrupt: SIGINT came.
    """
    settings = with_instance(settings)
    app = create_app(settings)  # with several workers too: what is wrong is told once, here
    sockets = _listen(settings)
    write_logs()
    warn_if_open(settings)
    for sock in sockets:
        sys.stdout.write(f"sample-wire: serving on {url_of(sock)}\n")
    sys.stdout.flush()
    if len(sockets) > 1:
        return _run_workers(settings, sockets)
    serve_on(sockets[0], app)
    return 0


def _listen(settings: ServerSettings) -> list[socket.socket]:
    """Listening sockets on consecutive ports; for port 0 on any that are free."""
    if settings.port + settings.workers - 1 > LAST_PORT:
        raise ValueError(f"ports end at {LAST_PORT}")
    tries = 1 if settings.port else _PORT_TRIES
    while True:
        tries -= 1
        try:
            return _bound_in_a_row(settings)
        except (OSError, OverflowError):  # in use, or past the last port
            if not tries:
                raise


def _bound_in_a_row(settings: ServerSettings) -> list[socket.socket]:
    sockets = [bound(settings.host, settings.port)]
    try:
        port = sockets[0].getsockname()[1]
        for number in range(port + 1, port + settings.workers):
            sockets.append(bound(settings.host, number))
    except BaseException:
        for sock in sockets:
            sock.close()
        raise
    return sockets


def warn_if_open(settings: ServerSettings) -> None:
    """Says so in the log where others than this machine may use the server, without a token."""
    try:
        is_loopback = ipaddress.ip_address(settings.host).is_loopback
    except ValueError:
        is_loopback = settings.host == "localhost"
    if settings.token is None and not is_loopback:
        _log.warning("whoever reaches %s may use this server: it has no token", settings.host)


def bound(host: str, port: int) -> socket.socket:
    """A socket that listens there; port 0 is any that is free.

    Raises:
        OSError: the port is in use, or the host has another address; names both.
        OverflowError: there is no such port.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    sock = socket.socket(family)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind((host, port))
        sock.listen(_BACKLOG)
    except BaseException as error:
        sock.close()
        if isinstance(error, OSError):
            raise OSError(error.errno, error.strerror, f"{host}:{port}") from None
        raise
    return sock


def url_of(sock: socket.socket, host: str | None = None) -> str:
    """The URL of a listening socket, under its own address or another name of its host."""
    own, port = sock.getsockname()[:2]
    host = host or own
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def with_instance(settings: ServerSettings) -> ServerSettings:
    """The settings of a process of its own: with an id that no other has."""
    return msgspec.structs.replace(settings, instance_id=secrets.token_hex(16))


def serve_on(sock: socket.socket, app: ASGIApp) -> None:
    """Serves an application in this process, until a signal ends it.

    Args:
        sock: listens already.
        app: create_app's, or another.
    """
    raise_file_limit()
    http_server(app).run(sockets=[sock])


def raise_file_limit() -> None:
    """Each chat needs two descriptors, and the usual soft limit is 1,024."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def _run_workers(settings: ServerSettings, sockets: list[socket.socket]) -> int:
    """A process for each socket.  When one ends, all do: clients keep to the port they chose."""
    context = multiprocessing.get_context("spawn")
    workers = [
        context.Process(target=_work, args=(with_instance(settings), sock)) for sock in sockets
    ]
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _terminated)
    urls = [url_of(sock) for sock in sockets]
    try:
        for worker, sock in zip(workers, sockets, strict=True):
            worker.start()
            sock.close()
        ended = multiprocessing.connection.wait([worker.sentinel for worker in workers])
        for worker, url in zip(workers, urls, strict=True):
            if worker.sentinel in ended:
                worker.join()
                sys.stderr.write(f"sample-wire: the server on {url} ended ({worker.exitcode})\n")
        return FAILED
    finally:
        started = [worker for worker in workers if worker.pid is not None]
        for worker in started:
            worker.terminate()
        for worker in started:
            worker.join()


def _work(settings: ServerSettings, sock: socket.socket) -> None:
    threading.Thread(target=end_with_the_parent, daemon=True).start()
    write_logs()
    with contextlib.suppress(KeyboardInterrupt):  # a terminal's Ctrl-C reaches every process
        serve_on(sock, create_app(settings))


def end_with_the_parent() -> None:
    """Ends this process when its parent is gone: one that was killed could not do so."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os.kill(os.getpid(), signal.SIGTERM)


def _terminated(number: int, _frame: types.FrameType | None) -> None:
    sys.exit(_BY_SIGNAL + number)
