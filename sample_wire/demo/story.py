"""The rollout demo: engine, session server, agents and trainer side on this machine."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import Final

import httpx2

from .._report import summary_text
from ..adapters.server import ServerSettings
from ..adapters.tokenizer import load_tokenizer
from ..errors import SampleWireError
from ..inspection import inspect_payload
from ..session import TokenizerAdapter
from .episodes import Episodes, Outcome
from .health import HealthWatch
from .progress import Progress
from .servers import DemoError, Servers
from .settings import StorySettings
from .story_report import headline, report
from .two_ways import TwoWays

_PATIENCE_S: Final = 120.0


def load(server: ServerSettings) -> TokenizerAdapter:
    """The server's tokenizer: records become samples with it on this side, too.

    Raises:
        ValueError, OSError, ImportError: it cannot be loaded.
    """
    return load_tokenizer(
        server.tokenizer,
        family=server.family,
        chat_template=server.chat_template,
        template_kwargs=server.template_kwargs,
    )


def run_story(settings: StorySettings, tokenizer: TokenizerAdapter) -> int:
    """Runs the demo and prints what it finds; returns 0.

    Raises:
        DemoError: the rollout failed, something is not equal, or /health was not answered.
        KeyboardInterrupt: SIGINT came; what was started has ended.
    """
    logging.getLogger("sample_wire").addHandler(logging.NullHandler())  # a fault is raised here
    print("\n".join(headline(settings)), flush=True)
    outcomes, health = _rolled_out(settings, tokenizer)
    print("\n".join(report(outcomes, health, settings.server.routing)))
    print("\nsample-wire inspect says of session 0's payload:")
    print(summary_text(inspect_payload(outcomes[0].both.payload)))
    if health.num_failed:
        raise DemoError(f"{health.num_failed} requests for /health got no answer, or none of 200")
    return 0


def _rolled_out(
    settings: StorySettings, tokenizer: TokenizerAdapter
) -> tuple[list[Outcome], HealthWatch]:
    progress = Progress()
    with contextlib.ExitStack() as stack:
        stack.callback(progress.close)
        progress.step("starting the servers")
        servers = Servers(settings.server, settings.engine, stack)
        try:
            servers.wait()
            progress.step("the servers are up")
            with HealthWatch(servers.server_url) as health:
                outcomes = asyncio.run(_outcomes(servers.server_url, settings, tokenizer, progress))
        except (SampleWireError, httpx2.HTTPError) as error:
            raise DemoError(f"{error}{servers.fates()}") from error
    return outcomes, health


async def _outcomes(
    server_url: str, settings: StorySettings, tokenizer: TokenizerAdapter, progress: Progress
) -> list[Outcome]:
    async with httpx2.AsyncClient(timeout=_PATIENCE_S, trust_env=False) as http:
        two_ways = TwoWays(http, tokenizer, settings.server.routing)
        return await Episodes(server_url, two_ways, progress).run()
