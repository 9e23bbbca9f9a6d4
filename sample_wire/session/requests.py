"""Chat requests: read, normalised, sent upstream with token ids, and held as deltas.

A client re-sends its whole conversation with every turn.  Held whole, the requests of a
session would grow with the square of its turns; so a held request shares every message and
option with the request of the turn it builds on where their JSON is equal.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import msgspec

from .._json import (
    MAX_JSON_DEPTH,
    MAX_JSON_VALUES,
    encode_json,
    exceeds_depth,
    exceeds_values,
)
from ..errors import SessionError
from .tokenizer import TokenizerAdapter

if TYPE_CHECKING:
    from .trajectory import TurnPlan

IDS_KEY: Final = "input_ids"
# Chat has some 40 parameters, engines as many of their own; each is held by itself.
MAX_KEYS: Final = 1024
_MESSAGES_KEY: Final = "messages"
_KWARGS_KEY: Final = "chat_template_kwargs"
START_KEY: Final = "routed_experts_start_len"
# What SGLang must be told whatever the client asked for.
_FORCED: Final[Mapping[str, Any]] = {
    "logprobs": True,
    "return_meta_info": True,
    "no_stop_trim": False,
}


@dataclass(frozen=True, slots=True)
class ChatRequest:
    """A chat request as a session takes it.

    Attributes:
        body: what a session keeps of it; token ids are still to come.
        wants_stream: whether the client asked for a stream.
    """

    body: dict[str, Any]
    wants_stream: bool


def parse_body(text: bytes) -> dict[str, Any]:
    """The object that a request body holds; an empty body is an empty object.

    Raises:
        SessionError: 400 "invalid_json" for what is no JSON, no UTF-8, nests too deep or has
            more than MAX_JSON_VALUES values, "bad_request" for JSON that is no object, or one
            of more than MAX_KEYS keys.
    """
    if exceeds_depth(text, MAX_JSON_DEPTH):
        raise _invalid_json(f"it nests deeper than {MAX_JSON_DEPTH}")
    if exceeds_values(text, MAX_JSON_VALUES):
        raise _invalid_json(f"it has more than {MAX_JSON_VALUES} values")
    try:
        body = msgspec.json.decode(text) if text else {}
    except (msgspec.DecodeError, UnicodeError) as error:
        why = "a string holds a lone surrogate" if _has_lone_surrogate(text) else str(error)
        raise _invalid_json(why) from None
    if not isinstance(body, dict):
        raise bad_request("the body is no JSON object")
    if len(body) > MAX_KEYS:
        raise bad_request(f"the body has more than {MAX_KEYS} keys")
    return body


def _has_lone_surrogate(text: bytes) -> bool:
    """Whether this is why msgspec does not take the text, which speaks of truncation then."""
    try:
        encode_json(json.loads(text))
    except UnicodeEncodeError:
        return True
    except ValueError:
        return False
    return False


def _invalid_json(why: str) -> SessionError:
    return SessionError(f"invalid JSON body: {why}", code="invalid_json", http_status=400)


def normalise(
    body: Mapping[str, Any],
    *,
    tokenizer: TokenizerAdapter,
    routing: bool,
    indexer: bool,
    forced: Mapping[str, Any] = _FORCED,
) -> ChatRequest:
    """The request as a session keeps it, but for its token ids.

    Args:
        body: what the client sent; not changed.
        tokenizer: knows the options of the chat template.
        routing, indexer: whether the engine is to return these arrays.
        forced: what is said whatever the client asked for.

    Raises:
        SessionError: 400 "template_kwargs"; "routing_off" for a wish that no reply could be
            read after: without the shape of the engine's routing.
    """
    if body.get("return_routed_experts") and not routing:
        raise SessionError(
            "return_routed_experts: this server was not told the shape of the engine's routing",
            code="routing_off",
            http_status=400,
        )
    normal = dict(body)
    wants_stream = bool(normal.pop("stream", None))
    normal.pop("stream_options", None)
    normal.pop(START_KEY, None)
    normal |= forced
    if routing:
        normal["return_routed_experts"] = True
    if indexer:
        normal["return_indexer_topk"] = True
    kwargs = template_kwargs(normal, tokenizer)
    normal.pop(_KWARGS_KEY, None)
    if kwargs:
        normal[_KWARGS_KEY] = kwargs
    return ChatRequest(normal, wants_stream)


def template_kwargs(body: Mapping[str, Any], tokenizer: TokenizerAdapter) -> dict[str, Any]:
    """The effective options of the chat template for a request; null and {} are absent.

    Raises:
        SessionError: 400 "template_kwargs": no object, or one that the tokenizer refuses.
    """
    given = body.get(_KWARGS_KEY)
    if given is not None and not isinstance(given, dict):
        raise SessionError(f"{_KWARGS_KEY} is no object", code="template_kwargs", http_status=400)
    return tokenizer.template_kwargs(given or None)


def upstream_body(
    plan: TurnPlan, body: Mapping[str, Any], *, incremental: bool, is_written: bool = False
) -> dict[str, Any]:
    """A normalised request with its prompt ids and, if asked for, the first routing row.

    Args:
        plan: what the session made of the request.
        body: the normalised request; not changed.
        incremental: the engine returns only routing rows from a start on.
        is_written: whether its ids are JSON text, to be encoded as it is.

    Returns:
        The request.

    Raises:
        SessionError: 500 "prefix_mismatch": the prompt drops tokens whose rows are held.
    """
    sent = dict(body)
    text = msgspec.Raw(b"[%b]" % plan.prompt_text) if is_written else None
    sent[IDS_KEY] = plan.prompt_ids.tolist() if text is None else text
    if incremental and sent.get("return_routed_experts"):
        if plan.num_kept < plan.start_row:
            raise prefix_mismatch(plan.num_kept, plan.start_row)
        sent[START_KEY] = plan.start_row
    return sent


def messages_of(body: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The messages of a request.

    Raises:
        SessionError: 400 "bad_request": none, or one that is no object.
    """
    messages = body.get(_MESSAGES_KEY)
    if not isinstance(messages, list) or not messages:
        raise bad_request("messages is no list of messages, or an empty one")
    for index, message in enumerate(messages):
        if not isinstance(message, dict):
            raise bad_request(f"message {index} is no object")
    return messages


def tools_of(body: Mapping[str, Any]) -> list[Any] | None:
    """The tools of a request, or None.

    Raises:
        SessionError: 400 "bad_request": neither a list nor null.
    """
    tools = body.get("tools")
    if tools is not None and not isinstance(tools, list):
        raise bad_request("tools is no list")
    return tools


def bad_request(message: str) -> SessionError:
    """A request whose JSON has a wrong form."""
    return SessionError(message, code="bad_request", http_status=400)


def prefix_mismatch(num_kept: int, least: int) -> SessionError:
    """A prompt that parts from the tokens that it must start with."""
    return SessionError(
        f"the prompt keeps {num_kept} tokens of the turn before it, it must keep {least}",
        code="prefix_mismatch",
        http_status=500,
    )


@dataclass(frozen=True, slots=True, eq=False)
class HeldRequest:
    """A request as JSON texts that it shares with the request of the turn it builds on.

    Attributes:
        base: that request, or None.
        values: key to JSON text in the order of the body; messages and token ids are empty.
        num_shared: leading messages that are those of base.
        tail: the texts of the others.
    """

    base: HeldRequest | None
    values: dict[str, bytes]
    num_shared: int
    tail: tuple[bytes, ...]

    @classmethod
    def of(cls, body: Mapping[str, Any], base: HeldRequest | None) -> HeldRequest:
        """Holds a request; cost: its JSON once, memory for what differs from base."""
        before = {} if base is None else base.values
        values = {key: _shared(value, before.get(key)) for key, value in _texts(body).items()}
        held = [] if base is None else base.messages()
        texts = [encode_json(message) for message in body[_MESSAGES_KEY]]
        num_shared = next(
            (i for i, (one, other) in enumerate(zip(texts, held, strict=False)) if one != other),
            min(len(texts), len(held)),
        )
        tail = [
            _shared(one, other)
            for one, other in itertools.zip_longest(texts[num_shared:], held[num_shared:])
            if one is not None
        ]
        return cls(base, values, num_shared, tuple(tail))

    @property
    def num_bytes(self) -> int:
        """Of the texts that it does not share with the request of base."""
        before = {} if self.base is None else self.base.values
        own = (text for key, text in self.values.items() if before.get(key) is not text)
        return sum(map(len, own)) + sum(map(len, self.tail))

    def messages(self) -> list[bytes]:
        """The messages' texts."""
        pieces: list[Sequence[bytes]] = []
        held: HeldRequest | None = self
        wanted: int | None = None
        while held is not None and wanted != 0:
            own = None if wanted is None else max(wanted - held.num_shared, 0)
            pieces.append(held.tail[:own])
            wanted = held.num_shared if wanted is None else min(wanted, held.num_shared)
            held = held.base
        return [text for piece in reversed(pieces) for text in piece]

    def parsed_messages(self) -> list[Any]:
        """The messages."""
        return [msgspec.json.decode(text) for text in self.messages()]

    def options(self) -> dict[str, Any]:
        """The request but for its messages and token ids; those are None."""
        return {
            key: msgspec.json.decode(text) if text else None for key, text in self.values.items()
        }

    def body(self, prompt_ids: list[int]) -> dict[str, Any]:
        """The request as it was, with these token ids."""
        held = {_MESSAGES_KEY: self.parsed_messages(), IDS_KEY: prompt_ids}
        return self.options() | held


class HeldMessages(Sequence[Any]):
    """The messages of a held request, parsed when they are looked at: of a line of turns, those
    of one are."""

    __slots__ = ("_request",)

    def __init__(self, request: HeldRequest) -> None:
        self._request = request

    def __len__(self) -> int:
        return len(self._request.messages())

    def __getitem__(self, at: Any) -> Any:
        return self._request.parsed_messages()[at]

    def __iter__(self) -> Iterator[Any]:
        return iter(self._request.parsed_messages())


def _texts(body: Mapping[str, Any]) -> dict[str, bytes]:
    """The values to hold by key, as JSON; those held elsewhere only keep their place."""
    return {
        key: b"" if key in (_MESSAGES_KEY, IDS_KEY) else encode_json(value)
        for key, value in body.items()
    }


def _shared(text: bytes, before: bytes | None) -> bytes:
    # What msgspec returns is up to half again as large in memory as it is long.
    return before if before is not None and before == text else bytes(memoryview(text))
