"""What differs from one kind of engine to the next: how a chat turn is put, how a reply is read.

A session keeps every request as SGLang takes it: OpenAI chat with token ids beside the
messages.  A kind says what goes over the wire for such a request, what its engine's replies
must have, and what they look like as chat completions.  Nothing else knows which engine it is.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Protocol

from ..assembly import Turn
from ..errors import SessionError
from .replies import HeldReply, bad_reply, first_choice
from .requests import ChatRequest, HeldRequest, normalise
from .tokenizer import TokenizerAdapter


class EngineKind(Protocol):
    """One kind of engine.

    Attributes:
        path: where turns are posted.
        answer_keys: the keys of a reply that tell a turn.
        id_key: the key that names it.
    """

    @property
    def path(self) -> str: ...

    @property
    def answer_keys(self) -> tuple[str, ...]: ...

    @property
    def id_key(self) -> str: ...

    def normalise(
        self, body: Mapping[str, Any], *, tokenizer: TokenizerAdapter, routing: bool, indexer: bool
    ) -> ChatRequest:
        """A client's request as a session keeps it, as `requests.normalise`.

        Raises:
            SessionError: 400, also for what this engine cannot do.
        """
        ...

    def wire_body(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """What is posted for a kept request with its token ids; the same whenever it is asked."""
        ...

    def check(self, body: Any) -> None:
        """Passes for a reply that has what a turn needs.

        Raises:
            SessionError: 502 "bad_engine_reply", with the first rule that is violated.
        """
        ...

    def is_spoken(self, turn: Turn) -> bool:
        """Whether a turn passes that was read from a reply with one choice and its meta_info.

        False leaves it to the check of the parsed reply.
        """
        ...

    def spoken(self, turn: Turn, request: Mapping[str, Any], tokenizer: TokenizerAdapter) -> Turn:
        """The turn with the assistant's message, content and tool calls as clients get them.

        Args:
            turn: as it was read from a reply that passed the check.
            request: the kept request.
        """
        ...

    def client_reply(
        self, reply: HeldReply, turn: Turn, request: HeldRequest, tokenizer: TokenizerAdapter
    ) -> dict[str, Any]:
        """The reply to a committed turn as an OpenAI chat completion, without routing arrays."""
        ...

    def client_text(
        self, reply: HeldReply, turn: Turn, request: HeldRequest, tokenizer: TokenizerAdapter
    ) -> bytes:
        """The JSON text of that."""
        ...


class SGLangChat:
    """SGLang's chat, which takes the kept requests as they are and answers in OpenAI's form."""

    path: Final = "/v1/chat/completions"
    answer_keys: Final = ("choices", "sglext")
    id_key: Final = "id"

    def normalise(
        self, body: Mapping[str, Any], *, tokenizer: TokenizerAdapter, routing: bool, indexer: bool
    ) -> ChatRequest:
        """The request with what SGLang must be told; all else is left for it to judge."""
        return normalise(body, tokenizer=tokenizer, routing=routing, indexer=indexer)

    def wire_body(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """The request itself."""
        return dict(request)

    def check(self, body: Any) -> None:
        """Passes for a reply with log-probs, their count, and a message with content.

        Raises:
            SessionError: 502 "bad_engine_reply".
        """
        choice = first_choice(body)
        meta = choice.get("meta_info")
        entries = meta.get("output_token_logprobs") if isinstance(meta, dict) else None
        if not isinstance(meta, dict) or not isinstance(entries, list):
            raise bad_reply("choices[0].meta_info has no output_token_logprobs")
        _check_message(choice.get("message"))
        count = meta.get("completion_tokens")
        if type(count) is not int or count != len(entries):
            said = count if type(count) is int else type(count).__name__
            raise bad_reply(f"completion_tokens is {said}, there are {len(entries)} log-probs")

    def is_spoken(self, turn: Turn) -> bool:
        """Whether its message passes: all else was needed to read it."""
        try:
            _check_message(turn.message)
        except SessionError:
            return False
        return True

    def spoken(
        self,
        turn: Turn,
        request: Mapping[str, Any],  # noqa: ARG002  # the protocol's
        tokenizer: TokenizerAdapter,  # noqa: ARG002
    ) -> Turn:
        """The turn as it is: the reply has the message."""
        return turn

    def client_reply(
        self,
        reply: HeldReply,
        turn: Turn,
        request: HeldRequest,  # noqa: ARG002  # the protocol's
        tokenizer: TokenizerAdapter,  # noqa: ARG002
    ) -> dict[str, Any]:
        """The engine's reply but for its arrays."""
        return reply.client_body(turn)

    def client_text(
        self,
        reply: HeldReply,
        turn: Turn,
        request: HeldRequest,  # noqa: ARG002  # the protocol's
        tokenizer: TokenizerAdapter,  # noqa: ARG002
    ) -> bytes:
        """The text of that, mostly without parsing the reply."""
        return reply.client_text(turn)


def _check_message(message: Any) -> None:
    """A session goes on from this message: what is no message would make later turns fail."""
    if not isinstance(message, dict) or message.get("content") is None:
        raise bad_reply("choices[0].message has no content")
    if not isinstance(message["content"], str | list):
        raise bad_reply("choices[0].message.content is neither text nor a list of parts")
    if not isinstance(message.get("role"), str | None):
        raise bad_reply("choices[0].message.role is no text")
    calls = message.get("tool_calls") or []
    if not isinstance(calls, list) or not all(isinstance(call, dict) for call in calls):
        raise bad_reply("choices[0].message.tool_calls is no list of objects")


SGLANG: Final = SGLangChat()
