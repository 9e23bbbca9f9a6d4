"""Running the embedded engine: from a thread of the caller's, or as a command."""

from __future__ import annotations

import argparse
import contextlib
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Final

import uvicorn

from ...adapters.server.processes import bound, url_of
from .app import create_app
from .engine import Engine
from .model import RouterChoice
from .settings import EngineSettings

_HOST: Final = "127.0.0.1"
_KEEPALIVE_S: Final = 600  # tools may take minutes between two turns
_INTERRUPTED: Final = 130


@contextlib.contextmanager
def serve_engine(
    settings: EngineSettings | None = None,
    *,
    on_choice: Callable[[RouterChoice], None] | None = None,
) -> Iterator[str]:
    """Serves the embedded engine, which stands in for SGLang, from a thread of this process.

    Leaving ends what it is generating, and the thread.

    Args:
        settings: None takes the defaults.
        on_choice: is told, from other threads, what every router chose; see RouterChoice.

    Yields:
        The engine's URL, on a free loopback port.
    """
    engine = Engine(settings or EngineSettings(), on_choice)
    with bound(_HOST, 0) as sock:
        server = _Server(engine)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [sock]})
        thread.start()
        try:
            yield url_of(sock)
        finally:
            server.should_exit = True
            thread.join()


def main(argv: Sequence[str] | None = None) -> int:
    """Serves the embedded engine until a signal comes; returns the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m sample_wire.demo.engine",
        description="The embedded engine, which stands in for SGLang where none is at hand.",
    )
    parser.add_argument("--port", type=int, default=0, help="0 takes a free one")
    parser.add_argument("--seed", type=int, default=0, help="of the weights")
    arguments = parser.parse_args(argv)
    try:
        engine = Engine(EngineSettings(seed=arguments.seed))
        listening = bound(_HOST, arguments.port)
    except (ValueError, OverflowError) as error:
        parser.error(str(error))
    except OSError as error:
        parser.error(f"{error.filename}: {error.strerror}")
    with listening as sock:
        print(f"embedded engine: serving on {url_of(sock)}", flush=True)
        try:
            _Server(engine).run(sockets=[sock])
        except KeyboardInterrupt:
            return _INTERRUPTED
    return 0


class _Server(uvicorn.Server):
    """Ends what the engine is generating before it waits for open requests."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        config = uvicorn.Config(
            create_app(engine),
            loop="uvloop",
            http="httptools",
            ws="none",
            lifespan="off",
            log_level="warning",
            access_log=False,
            timeout_keep_alive=_KEEPALIVE_S,
        )
        super().__init__(config)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """As uvicorn's."""
        self._engine.abort_all()
        await super().shutdown(sockets)
