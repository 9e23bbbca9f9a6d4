"""The command `demo`: its arguments, and which of the two demos they ask for.

Nothing of the rollout is imported before it runs: `demo --recorded` needs no extra.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from typing import Final, NoReturn

from ..adapters.server.command import add_model_arguments, add_routing_arguments

USAGE: Final = 2
_MISSING: Final = (
    'sample-wire: demo needs an extra: pip install "sample-wire[demo]" ({}); '
    "demo --recorded needs none\n"
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of the command."""
    parser.description = (
        "Runs a rollout on this machine: an engine, the session server, a tool-calling agent and "
        "the trainer's side.  The engine is the embedded one, or yours with --engine and "
        "--tokenizer."
    )
    parser.add_argument(
        "recording",
        metavar="RECORDING.json",
        nargs="?",
        help="instead of a rollout, send recorded turns through the wire: token-in, token-out "
        "turns of vLLM, shaped as the recording in sample_wire/demo",
    )
    parser.add_argument(
        "--recorded", action="store_true", help="the same with that recording; needs no extra"
    )
    add_model_arguments(parser, required=False)
    add_routing_arguments(parser)
    parser.set_defaults(run=run, refuse_usage=parser.error)


def run(options: argparse.Namespace) -> int:
    """Runs the demo that is asked for; returns the exit status.

    Raises:
        SampleWireError: the recording is refused, or the rollout failed.
        OSError: a file cannot be read.
        SystemExit: 2, for arguments that do not go together.
    """
    refuse: Callable[[str], NoReturn] = options.refuse_usage
    if options.recording is not None or options.recorded:
        return _run_recorded(options)
    try:
        from .settings import settings_of
        from .story import load, run_story
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("sample_wire"):
            raise
        sys.stderr.write(_MISSING.format(error))
        return USAGE
    try:
        settings = settings_of(options)
        tokenizer = load(settings.server)
    except (ValueError, ImportError) as error:
        refuse(str(error))
    return run_story(settings, tokenizer)


def _run_recorded(options: argparse.Namespace) -> int:
    from .recorded import run_recorded

    refuse: Callable[[str], NoReturn] = options.refuse_usage
    if options.recording is not None and options.recorded:
        refuse("--recorded is a recording of its own")
    if options.engine is not None:
        refuse("a recording needs no --engine")
    return run_recorded(options.recording)
