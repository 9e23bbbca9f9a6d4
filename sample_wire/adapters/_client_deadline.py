"""Deadline: a limit for a whole exchange over a blocking socket.

An HTTP package limits each read by itself, so that a server that sends one byte now and then
is never too slow.  Here a timer shuts the connection down when the time is over.
"""

from __future__ import annotations

import contextlib
import socket
import threading
from types import TracebackType
from typing import Any, Final

import httpx2

# What httpx2 traces once it has a connection; the stream is the return value.
_CONNECTED: Final = ("connect_tcp.complete", "connect_unix_socket.complete", "start_tls.complete")


class Deadline:
    """A block in which one exchange takes place; `trace` is its httpx2 trace extension.

    Args:
        timeout_s: None for no limit.

    Raises:
        TimeoutError: at the end of the block, where the time ran out in it.
    """

    def __init__(self, timeout_s: float | None) -> None:
        self._timer = None if timeout_s is None else threading.Timer(timeout_s, self._expire)
        self._socket: socket.socket | None = None
        self._is_over = False
        self._lock = threading.Lock()

    def trace(self, event: str, info: dict[str, Any]) -> None:
        """Takes note of the connection as soon as there is one."""
        if event.partition(".")[2] in _CONNECTED:
            self.watch(info["return_value"])

    def watch(self, stream: Any) -> None:
        """Takes note of the connection that an answer comes from: it may be an older one.

        Args:
            stream: httpx2's network stream; None where there is no network below.
        """
        if stream is None:
            return
        with self._lock:
            self._socket = stream.get_extra_info("socket")
            if self._is_over:
                self._shut_down()

    def __enter__(self) -> Deadline:
        if self._timer is not None:
            self._timer.daemon = True
            self._timer.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._timer is not None:
            self._timer.cancel()
        with self._lock:
            # The socket is closed from here on, and its number may soon be another's.
            self._socket = None
            is_over = self._is_over
        if is_over and (kind is None or issubclass(kind, httpx2.RequestError)):
            raise TimeoutError from error

    def _expire(self) -> None:
        with self._lock:
            self._is_over = True
            self._shut_down()

    def _shut_down(self) -> None:
        if self._socket is not None:
            # Not the method of an SSLSocket, which would have its reader go on in the clear.
            with contextlib.suppress(OSError):
                socket.socket.shutdown(self._socket, socket.SHUT_RDWR)
