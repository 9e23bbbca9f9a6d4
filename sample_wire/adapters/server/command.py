"""The command `serve`: its arguments, and the settings that they spell.

Nothing of the server is imported before it is served: `sample-wire --help` needs no extra.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from typing import Any, Final, NoReturn

import msgspec

from ..._assemble_command import routing_spec, whole_number
from ...assembly import RoutingSpec
from ...sample import Sample
from ..tokenizer._families import FAMILIES
from .engine_kinds import ENGINE_KINDS
from .settings import DEFAULT_PORT, ServerSettings, routing_of_model
from .trajectories import FIELD_SETS

_MATCHER_HELP: Final = (
    "how replayed messages are compared: strict, loose_tool_call, role_content_only, or the dotted"
    " path of a function (default %(default)s)"
)
_BUDGETS: Final = {
    "max_body_bytes": "of a chat request (default %(default)s)",
    "max_incoming_bytes": "of all bodies that are being read (default %(default)s)",
    "max_running_requests": "at a time (default %(default)s)",
    "max_reply_bytes": "of an engine's answer, unpacked (default %(default)s)",
    "max_sessions": "of one server (default %(default)s)",
    "max_held_bytes": "that one server's turns and calls hold (default: half of the memory)",
    "head_timeout_s": "for a request's head to come (default %(default)s)",
    "body_timeout_s": "for its body to come (default %(default)s)",
    "send_timeout_s": "a client may take nothing of its answer (default %(default)s)",
    "idle_timeout_s": "a session may be unused; 0 is for ever (default %(default)s)",
    "stop_timeout_s": "left to running requests when the server ends (default %(default)s)",
    "max_connections": "to the engine at a time (default %(default)s)",
}
_FAMILY_HELP: Final = "the model's: how a turn is joined to the one before it (default %(default)s)"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of the command."""
    add_model_arguments(parser, required=True)
    add = parser.add_argument
    add(
        "--engine-kind", choices=tuple(ENGINE_KINDS), default="sglang", help="(default %(default)s)"
    )
    add("--host", default="127.0.0.1", help="(default %(default)s)")
    add(
        "--port",
        type=whole_number,
        default=DEFAULT_PORT,
        help="0 is any free (default %(default)s)",
    )
    add("--workers", type=_positive, default=1, metavar="N", help="processes, on N ports")
    add("--matcher", default="strict", help=_MATCHER_HELP)
    add("--trajectory", choices=tuple(FIELD_SETS), default="linear", help="(default %(default)s)")
    add("--pick", metavar="HOOK", help="dotted path of a function that picks a tree's samples")
    add("--post-process", metavar="HOOK", help="of one that changes those that were picked")
    add(
        "--field-set",
        type=int,
        choices=tuple(Sample.__sample_schema__.field_sets),
        help="of the payloads (default 1, for trees 2)",
    )
    add("--timeout", type=float, default=600.0, metavar="S", help="of the engine; 0 is none")
    add("--token-file", metavar="FILE", help="holds what requests must carry as bearer token")
    add("--speculative", action="store_true", help="keep speculative decoding counters")
    add("--keep-messages", action="store_true", help="put the last messages into the metadata")
    add("--indexer", action="store_true", help="ask for the engine's indexer arrays")
    add_routing_arguments(parser)
    _add_budget_arguments(parser)
    parser.set_defaults(refuse_usage=parser.error)


def add_model_arguments(parser: argparse.ArgumentParser, *, required: bool) -> None:
    """Adds the arguments that name an engine and say how its model is spoken to."""
    add = parser.add_argument
    add("--engine", required=required, metavar="URL", help="base URL of the engine")
    add("--tokenizer", required=required, metavar="PATH", help='a local folder, or "chatml"')
    add("--family", choices=tuple(FAMILIES), default="default", help=_FAMILY_HELP)
    add("--chat-template", metavar="FILE", help="replaces the tokenizer's own")
    add("--template-kwargs", type=_json_object, default={}, metavar="JSON", help="for the template")


def add_routing_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments that say what the engine's routing arrays look like."""
    routing = parser.add_argument_group("routing (R3)").add_argument
    routing("--model-config", metavar="PATH", help="a model's config.json, or its folder")
    routing("--routing-layers", type=whole_number, metavar="L", help="layers of a row")
    routing("--routing-top-k", type=whole_number, metavar="K", help="experts of a layer")
    routing("--num-experts", type=whole_number, metavar="E", help="refuse ids from E on")
    routing("--incremental", action="store_true", help="ask for new rows only")
    routing("--required", action="store_true", help="refuse a turn without routing")


def _add_budget_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds what a server holds and waits for at most, with the settings' own defaults."""
    defaults = {field.name: field.default for field in msgspec.structs.fields(ServerSettings)}
    group = parser.add_argument_group("budgets")
    for name, text in _BUDGETS.items():
        is_time = name.endswith("_s")
        group.add_argument(
            "--" + name.removesuffix("_s").replace("_", "-"),
            dest=name,
            type=float if is_time else whole_number,
            default=defaults[name],
            metavar="S" if is_time else "N",
            help=text,
        )


def settings_of(options: argparse.Namespace) -> ServerSettings:
    """The settings that the arguments spell.

    Raises:
        ValueError: arguments that do not go together, or a model's config without experts.
        OSError: the model's config cannot be read, or the token.
    """
    idle = options.idle_timeout_s or None
    return ServerSettings(
        engine_url=options.engine,
        engine_kind=options.engine_kind,
        tokenizer=options.tokenizer,
        family=options.family,
        chat_template=options.chat_template,
        template_kwargs=options.template_kwargs,
        host=options.host,
        port=options.port,
        workers=options.workers,
        matcher=options.matcher,
        routing=routing_of(options),
        indexer=options.indexer,
        speculative=options.speculative,
        keep_messages=options.keep_messages,
        trajectory=options.trajectory,
        pick=options.pick,
        post_process=options.post_process,
        field_set=options.field_set,
        timeout_s=options.timeout or None,
        token=None if options.token_file is None else _token_in(options.token_file),
        **{name: getattr(options, name) for name in _BUDGETS} | {"idle_timeout_s": idle},
    )


def _token_in(path: str) -> str:
    """The token that a file holds: whoever lists processes sees their arguments.

    Raises:
        OSError: it cannot be read.
    """
    with open(path, encoding="utf-8") as file:
        return file.read().strip()


def run(options: argparse.Namespace) -> int:
    """Serves until it is interrupted or terminated, or a worker ends; returns the exit status.

    Raises:
        OSError: a port is in use, or a file cannot be read.
        SystemExit: 2, for arguments that do not hold.
    """
    refuse: Callable[[str], NoReturn] = options.refuse_usage
    try:
        from .processes import serve
    except ImportError as error:
        refuse(f"serve needs the extra sample-wire[server]: {error}")
    try:
        return serve(settings_of(options))
    except (ValueError, ImportError) as error:  # a tokenizer's extra is looked for when it is made
        refuse(str(error))


def routing_of(options: argparse.Namespace) -> RoutingSpec | None:
    """What the arguments say of the routing arrays; None where they say nothing.

    Raises:
        ValueError: arguments that do not go together, or a model's config without experts.
        OSError: the model's config cannot be read.
    """
    if options.model_config is None:
        return routing_spec(options)
    shape = (options.routing_layers, options.routing_top_k, options.num_experts)
    if any(number is not None for number in shape):
        raise ValueError("--model-config excludes the shape's own options")
    modes = {"required": options.required, "incremental": options.incremental}
    spec = routing_of_model(options.model_config, **modes)
    if spec is None and any(modes.values()):
        raise ValueError("--required and --incremental need a model with experts")
    return spec


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text} is not positive")
    return number


def _json_object(text: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise argparse.ArgumentTypeError("is no JSON object")
    return found
