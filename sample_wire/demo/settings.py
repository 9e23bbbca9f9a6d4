"""What the arguments of the rollout demo spell: the embedded engine, or one of the user's own."""

from __future__ import annotations

import argparse
from typing import Final, NamedTuple

from ..adapters._engine_http import engine_url
from ..adapters.server import ServerSettings
from ..adapters.server.command import routing_of
from ..adapters.tokenizer import CHATML
from .command import NOT_GIVEN, OF_AN_ENGINE
from .engine import EngineSettings

# The demo is to be over soon.
_MEAN_ANSWER_TOKENS: Final = 60


class StorySettings(NamedTuple):
    """The session server's settings, and the embedded engine's or None where it is not wanted.

    The URL of an embedded engine is known when it is started, not before.
    """

    server: ServerSettings
    engine: EngineSettings | None


def settings_of(options: argparse.Namespace) -> StorySettings:
    """The settings that the arguments spell.

    Raises:
        ValueError: arguments that do not go together, an engine's URL that is none, or a model's
            config without experts.
        OSError: the model's config cannot be read.
    """
    if options.engine is None:
        return _embedded(options)
    if options.tokenizer is None:
        raise ValueError("--engine needs --tokenizer")
    server = ServerSettings(
        engine_url=str(engine_url(options.engine)).rstrip("/"),
        tokenizer=options.tokenizer,
        family=options.family,
        chat_template=options.chat_template,
        template_kwargs=options.template_kwargs,
        routing=routing_of(options),
    )
    return StorySettings(server, None)


def _embedded(options: argparse.Namespace) -> StorySettings:
    for name in OF_AN_ENGINE:
        if getattr(options, name) not in NOT_GIVEN:
            raise ValueError(f"--{name.replace('_', '-')} needs --engine")
    engine = EngineSettings(mean_answer_tokens=_MEAN_ANSWER_TOKENS)
    routing = engine.routing_spec(incremental=options.incremental)
    return StorySettings(ServerSettings(engine_url="", tokenizer=CHATML, routing=routing), engine)
