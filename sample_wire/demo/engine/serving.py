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
from .generation import Generates
from .model import RouterChoice
from .replay import ReplayEngine
from .settings import EngineSettings, ReplaySettings

_HOST: Final = "127.0.0.1"
_KEEPALIVE_S: Final = 600  # tools may take minutes between two turns
_INTERRUPTED: Final = 130
_REPLAY_OPTIONS: Final = {
    "--layers": "num_layers",
    "--top-k": "top_k",
    "--experts": "num_experts",
    "--turn-tokens": "turn_tokens",
}


@contextlib.contextmanager
def serve_engine(
    settings: EngineSettings | ReplaySettings | None = None,
    *,
    on_choice: Callable[[RouterChoice], None] | None = None,
) -> Iterator[str]:
    """Serves the embedded engine, which stands in for SGLang, from a thread of this process.

    Leaving ends what it is generating, and the thread.

    Args:
        settings: None takes the defaults of EngineSettings.
        on_choice: is told, from other threads, what every router chose; see RouterChoice.  The
            replay mode has no routers.

    Yields:
        The engine's URL, on a free loopback port.
    """
    engine = engine_of(settings or EngineSettings(), on_choice)
    with bound(_HOST, 0) as sock:
        server = _Server(engine)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [sock]})
        thread.start()
        try:
            yield url_of(sock)
        finally:
            server.should_exit = True
            thread.join()


def engine_of(
    settings: EngineSettings | ReplaySettings,
    on_choice: Callable[[RouterChoice], None] | None = None,
) -> Generates:
    """The engine that the settings are of."""
    if isinstance(settings, ReplaySettings):
        return ReplayEngine(settings)
    return Engine(settings, on_choice)


def main(argv: Sequence[str] | None = None) -> int:
    """Serves the embedded engine until a signal comes; returns the exit status."""
    model = EngineSettings()
    parser = argparse.ArgumentParser(
        prog="python -m sample_wire.demo.engine",
        description="The embedded engine, which stands in for SGLang where none is at hand. "
        f"Its model has {model.num_layers} layers and routes each token to {model.top_k} of "
        f"{model.num_experts} experts; a session server in front of it is told so by "
        "--routing-layers and --routing-top-k.",
    )
    parser.add_argument("--port", type=int, default=0, help="0 takes a free one")
    parser.add_argument("--seed", type=int, default=0, help="of the weights, or of the recipe")
    _add_replay_arguments(parser)
    arguments = parser.parse_args(argv)
    try:
        engine = engine_of(_settings(arguments))
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


def _add_replay_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--replay",
        action="store_true",
        help="answer with seeded noise instead of running a model: at the production shape, unless "
        "the options below say otherwise",
    )
    for option, name in _REPLAY_OPTIONS.items():
        default = getattr(ReplaySettings(), name)
        parser.add_argument(
            option, dest=name, type=int, metavar="N", help=f"with --replay (default {default})"
        )


def _settings(arguments: argparse.Namespace) -> EngineSettings | ReplaySettings:
    """The settings that the arguments spell.

    Raises:
        ValueError: arguments that do not hold, or do not go together.
    """
    names = _REPLAY_OPTIONS.values()
    given = {name: value for name in names if (value := getattr(arguments, name)) is not None}
    if arguments.replay:
        return ReplaySettings(seed=arguments.seed, **given)
    if given:
        raise ValueError("the sizes of replies need --replay")
    return EngineSettings(seed=arguments.seed)


class _Server(uvicorn.Server):
    """Ends what the engine is generating before it waits for open requests."""

    def __init__(self, engine: Generates) -> None:
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
