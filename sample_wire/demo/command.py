"""The command `demo`: its arguments, and which of the two demos they ask for.

Nothing of the rollout is imported before it runs: `demo --recorded` needs no extra.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Final, NoReturn

from .._extras import without_extra
from ..adapters.server.command import add_model_arguments, add_routing_arguments
from ..adapters.server.trajectories import FIELD_SETS

# Arguments that say how an engine's model is spoken to, and what they are where they are not given.
OF_AN_ENGINE: Final = (
    *("tokenizer", "family", "chat_template", "template_kwargs"),
    *("model_config", "routing_layers", "routing_top_k", "num_experts", "required"),
)
NOT_GIVEN: Final[tuple[object, ...]] = (None, False, "default", {})
_OF_A_ROLLOUT: Final = ("engine", *OF_AN_ENGINE, "incremental")
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
    parser.add_argument(
        "--trajectory",
        choices=tuple(FIELD_SETS),
        default="linear",
        help="tree: one session, whose agent tries a turn again and forks (default %(default)s)",
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
        from .tree_story import run_tree_story
    except ModuleNotFoundError as error:
        return without_extra(error, _MISSING)
    try:
        settings = settings_of(options)
        tokenizer = load(settings.server)
    except (ValueError, ImportError) as error:
        refuse(str(error))
    if options.trajectory == "tree":
        return run_tree_story(settings)
    return run_story(settings, tokenizer)


def _run_recorded(options: argparse.Namespace) -> int:
    from .recorded import run_recorded

    refuse: Callable[[str], NoReturn] = options.refuse_usage
    if options.recording is not None and options.recorded:
        refuse("--recorded is a recording of its own")
    given = [name for name in _OF_A_ROLLOUT if getattr(options, name) not in NOT_GIVEN]
    if given:
        refuse(f"a recording needs no --{given[0].replace('_', '-')}")
    if options.trajectory != "linear":
        refuse("a recording is no tree")
    return run_recorded(options.recording)
