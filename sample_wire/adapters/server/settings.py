"""ServerSettings: all that a session server is told when it starts."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from ...assembly import RoutingSpec
from .._token import checked_token

DEFAULT_PORT: Final = 30500
# Of every server that is run here, a session server or not.
HEAD_TIMEOUT_S: Final = 30.0
BODY_TIMEOUT_S: Final = 120.0
SEND_TIMEOUT_S: Final = 120.0
STOP_TIMEOUT_S: Final = 10.0
# Where models say how many experts they have; the newest spelling first.
_NUM_EXPERTS_KEYS: Final = ("num_experts", "n_routed_experts", "num_local_experts")
_TOP_K_KEYS: Final = ("num_experts_per_tok", "num_experts_per_token", "moe_topk")
_ENDLESS: Final = ("timeout_s", "idle_timeout_s")
_TIMES: Final = (*_ENDLESS, "head_timeout_s", "body_timeout_s", "send_timeout_s", "stop_timeout_s")
_COUNTS: Final = (
    *("workers", "max_connections", "max_reply_bytes", "max_body_bytes"),
    *("max_running_requests", "max_incoming_bytes", "max_sessions", "max_held_bytes"),
)


class ServerSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What a session server is told when it starts.

    Args:
        engine_url: base URL of the engine.
        engine_kind: "sglang" or "vllm".
        tokenizer: "chatml", or a local folder with a Hugging Face tokenizer.
        family: the family whose boundary rules the tokenizer follows.
        chat_template: path of a chat template that replaces the tokenizer's own, or None.
        template_kwargs: keyword arguments of the chat template, overlaid by a request's.
        host, port: where to listen.
        workers: server processes, on consecutive ports from `port` on.
        matcher: how stored messages are compared with replayed ones.
        routing: shape and form of the engine's routing arrays, or None: then no routing is
            asked for.
        indexer: ask the engine for its indexer arrays too; SGLang has them.
        speculative: keep speculative decoding counters; SGLang tells them.
        keep_messages: put the last turn's messages into a sample's metadata.
        trajectory: "linear", or "tree": then retries and branches are kept, and a session gives
            a sample for each branch.
        pick, post_process: dotted paths of a tree's hooks, or None for those of the library.
        field_set: the field set of the payloads; None is 1, and 2 for trees.
        timeout_s: how long the engine may keep silent; None for ever.
        max_connections: connections to the engine at a time.
        max_reply_bytes: of an engine's answer, unpacked; a larger one is a bad reply.
        max_body_bytes: of a chat request; a larger one is refused with 413.  8 MiB of text are
            more tokens than contexts hold; images and sounds in messages may need more.  Other
            requests have at most SMALL_BODY_BYTES.
        max_incoming_bytes: of all bodies that one worker is reading, or has read and not yet made
            a prompt of; beyond them requests are refused with 503.
        max_running_requests: of one worker, GET /health apart; more are refused with 503.
        max_sessions: of one worker; more are refused with 503.
        max_held_bytes: what the turns of all sessions of one worker may hold, and what is on
            its way to and from the engine; None is half of the memory, shared among the
            workers.  From four fifths on new sessions are refused with 503, at the limit turns
            are too.
        head_timeout_s, body_timeout_s: how long a request's head, and its body behind that, may
            take to come.
        send_timeout_s: how long a client may take nothing of an answer that waits for it.
        idle_timeout_s: a session that nobody used for this long is dropped when another begins,
            or a turn wants room; None keeps it until it is deleted.  Tests and builds that
            agents run between two turns take an hour at times; twice that is a client that has
            gone.
        stop_timeout_s: what a server that is told to end leaves to running requests.
        token: what every request but GET /health must carry as its bearer token, or None.
        instance_id: told by /health and with each new session, so that a client knows a
            restarted server, or None.

    Raises:
        ValueError: a time that is not above 0, less than one of what is counted, or a token that
            no header can carry.
    """

    engine_url: str
    tokenizer: str
    engine_kind: str = "sglang"
    family: str = "default"
    chat_template: str | None = None
    template_kwargs: dict[str, Any] = {}
    host: str = "127.0.0.1"
    port: int = DEFAULT_PORT
    workers: int = 1
    matcher: str = "strict"
    routing: RoutingSpec | None = None
    indexer: bool = False
    speculative: bool = False
    keep_messages: bool = False
    trajectory: str = "linear"
    pick: str | None = None
    post_process: str | None = None
    field_set: int | None = None
    timeout_s: float | None = 600.0
    max_connections: int = 1024
    max_reply_bytes: int = 1 << 30
    max_body_bytes: int = 1 << 23
    max_incoming_bytes: int = 1 << 28
    max_running_requests: int = 16_384
    max_sessions: int = 10_000
    max_held_bytes: int | None = None
    head_timeout_s: float = HEAD_TIMEOUT_S
    body_timeout_s: float = BODY_TIMEOUT_S
    send_timeout_s: float = SEND_TIMEOUT_S
    idle_timeout_s: float | None = 7200.0
    stop_timeout_s: float = STOP_TIMEOUT_S
    token: str | None = None
    instance_id: str | None = None

    def __post_init__(self) -> None:
        for name in _TIMES:
            value = getattr(self, name)
            if value is None and name in _ENDLESS:
                continue
            if not 0 < value < math.inf:
                or_none = " or None" if name in _ENDLESS else ""
                raise ValueError(f"{name} is a time above 0{or_none}, not {value}")
        for name in _COUNTS:
            count = getattr(self, name)
            if count is not None and count < 1:
                raise ValueError(f"{name} must be at least 1")
        if self.token is not None:
            checked_token(self.token)

    def __repr__(self) -> str:
        """Without the token, which is not for logs."""
        shown = self if self.token is None else msgspec.structs.replace(self, token="...")
        return super(ServerSettings, shown).__repr__()


def routing_of_model(
    path: str, *, required: bool = False, incremental: bool = False
) -> RoutingSpec | None:
    """The routing arrays of a model, by its config.json; None for a model without experts.

    Args:
        path: the file, or the folder that it lies in.
        required, incremental: as for RoutingSpec.

    Raises:
        OSError: the file cannot be read.
        ValueError: it is no JSON object, or has experts but does not say how many layers.
    """
    if os.path.isdir(path):
        path = os.path.join(path, "config.json")
    with open(path, "rb") as file:
        text = file.read()
    try:
        config = json.loads(text)
    except ValueError as error:
        raise ValueError(f"{path} is no JSON object: {error}") from None
    if not isinstance(config, dict):
        raise ValueError(f"{path} is no JSON object")
    # Models that also see or hear keep their language model's numbers one level down.
    inner = config.get("text_config")
    config = {**config, **inner} if isinstance(inner, dict) else config
    top_k = _first(config, _TOP_K_KEYS)
    if top_k is None:
        return None
    layers = config.get("num_hidden_layers")
    if not isinstance(layers, int):
        raise ValueError(f"{path} does not say num_hidden_layers")
    return RoutingSpec(
        num_layers=layers,
        top_k=top_k,
        num_experts=_first(config, _NUM_EXPERTS_KEYS),
        required=required,
        incremental=incremental,
    )


def _first(config: Mapping[str, Any], keys: tuple[str, ...]) -> int | None:
    return next((config[key] for key in keys if isinstance(config.get(key), int)), None)
