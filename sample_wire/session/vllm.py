"""vLLM as a session's engine: turns go to its token-in endpoint, tool calls are Hermes'."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from .._json import encode_json
from ..assembly import Turn
from ._vllm_replies import check_generated, completion_of, message_of
from ._vllm_requests import generate_body, supported, wishes_of
from .replies import HeldReply
from .requests import ChatRequest, HeldRequest, normalise
from .tokenizer import TokenizerAdapter


class VLLMGenerate:
    """vLLM's `/inference/v1/generate`; its routing is read as 0.23 and later send it.

    vLLM has no switch for a request: it sends routing where it was started with
    --enable-return-routed-experts.  Started with --tokens-only it finds no stop texts.
    """

    path: Final = "/inference/v1/generate"
    answer_keys: Final = ("choices", "usage")
    id_key: Final = "request_id"

    def normalise(
        self, body: Mapping[str, Any], *, tokenizer: TokenizerAdapter, routing: bool, indexer: bool
    ) -> ChatRequest:
        """The request without its nulls.

        Raises:
            SessionError: 400 "template_kwargs", "bad_request", or "not_supported".
        """
        return normalise(
            supported(body), tokenizer=tokenizer, routing=routing, indexer=indexer, forced={}
        )

    def wire_body(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Token ids and sampling parameters."""
        return generate_body(request)

    def check(self, body: Any) -> None:
        """Passes for a reply with token ids and log-probs.

        Raises:
            SessionError: 502 "bad_engine_reply".
        """
        check_generated(body)

    def is_spoken(self, turn: Turn) -> bool:  # noqa: ARG002  # the protocol's
        """No: these replies are checked when they are parsed."""
        return False

    def spoken(self, turn: Turn, request: Mapping[str, Any], tokenizer: TokenizerAdapter) -> Turn:
        """The turn with the message that its ids spell."""
        return replace(turn, message=message_of(turn, wishes_of(request), tokenizer))

    def client_reply(
        self, reply: HeldReply, turn: Turn, request: HeldRequest, tokenizer: TokenizerAdapter
    ) -> dict[str, Any]:
        """The chat completion of a committed turn."""
        asked = request.options()
        return completion_of(reply, turn, wishes_of(asked), tokenizer, model=asked.get("model"))

    def client_text(
        self, reply: HeldReply, turn: Turn, request: HeldRequest, tokenizer: TokenizerAdapter
    ) -> bytes:
        """The text of that."""
        return encode_json(self.client_reply(reply, turn, request, tokenizer))
