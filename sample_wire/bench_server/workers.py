"""Workers: processes that do one thing after another, so that no side of the run slows another."""

from __future__ import annotations

import contextlib
import multiprocessing
import multiprocessing.connection
from collections.abc import Callable, Iterator
from typing import Any, Generic, NamedTuple, TypeVar, cast

from ..demo.processes import serving
from .errors import BenchError

ResultT = TypeVar("ResultT")
# Waits so many seconds at most; whether the work was told to end.
Told = Callable[[float], bool]


class _Failed(NamedTuple):
    text: str


class Work(Generic[ResultT]):
    """What a worker was given to do.

    Args:
        name: of the worker.
        connection: to it.
    """

    def __init__(self, name: str, connection: multiprocessing.connection.Connection) -> None:
        self._name = name
        self._connection = connection

    def end(self) -> None:
        """Tells the worker to come to an end with it."""
        self._connection.send(None)

    def result(self) -> ResultT:
        """What came of it; waits for that.

        Raises:
            BenchError: it failed.
        """
        try:
            found = self._connection.recv()
        except EOFError:
            raise BenchError(f"the {self._name} has ended without a word") from None
        if isinstance(found, _Failed):
            raise BenchError(f"the {self._name} failed: {found.text}")
        return cast(ResultT, found)


class Worker:
    """A process that does one thing after another; as for Work."""

    def __init__(self, name: str, connection: multiprocessing.connection.Connection) -> None:
        self._name = name
        self._connection = connection

    def start(self, function: Callable[..., ResultT], *arguments: object) -> Work[ResultT]:
        """Gives it something to do; the result of what it did before has to be taken first.

        Args:
            function: of a module, for it is pickled; called with a Told and the arguments.
        """
        self._connection.send((function, arguments))
        return Work(self._name, self._connection)


@contextlib.contextmanager
def working(name: str) -> Iterator[Worker]:
    """A worker, whose process ends with the block."""
    ours, theirs = multiprocessing.Pipe()
    with ours, serving(name, theirs, _work, None):
        yield Worker(name, ours)


def _work(connection: multiprocessing.connection.Connection, _settings: None) -> None:
    while True:
        asked = connection.recv()
        if asked is None:  # to end what has ended
            continue
        function, arguments = asked
        connection.send(_done(function, connection, arguments))


def _done(
    function: Callable[..., Any],
    connection: multiprocessing.connection.Connection,
    arguments: tuple[object, ...],
) -> Any:
    try:
        return function(connection.poll, *arguments)
    except Exception as error:  # noqa: BLE001  # the process that asked tells it
        return _Failed(f"{type(error).__name__}: {error}")
