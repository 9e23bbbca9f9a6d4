"""What a session needs of a tokenizer; implementations are adapters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

Message = Mapping[str, Any]


class TokenizerAdapter(Protocol):
    """Renders conversations to token ids for one model family.

    Attributes:
        max_trim_tokens: trailing ids of a checkpoint that `append` may drop: 0, or 1 for
            GLM-like families.
        allowed_append_roles: roles that a message appended to a checkpoint may have.
    """

    @property
    def max_trim_tokens(self) -> int: ...

    @property
    def allowed_append_roles(self) -> frozenset[str]: ...

    def template_kwargs(self, request_kwargs: Mapping[str, Any] | None) -> dict[str, Any]:
        """The launch options of the chat template overlaid by a request's.

        Applying it to its own result changes nothing.

        Raises:
            SessionError: 400 "template_kwargs": one contradicts what the family fixes.
        """
        ...

    def render(
        self, messages: Sequence[Message], tools: Sequence[Any] | None, kwargs: Mapping[str, Any]
    ) -> list[int]:
        """The ids of a whole conversation and of the generation prompt.

        Raises:
            ValueError: the template refuses the messages.
        """
        ...

    def append(
        self,
        checkpoint_ids: Sequence[int],
        stored: Sequence[Message],
        appended: Sequence[Message],
        tools: Sequence[Any] | None,
        kwargs: Mapping[str, Any],
    ) -> tuple[int, list[int]]:
        """How the ids of a checkpoint go on; they are never tokenised again.

        Args:
            checkpoint_ids: prompt and output ids of the turn that is built on.
            stored: the messages that they stand for.
            appended: messages after those; may be empty.

        Returns:
            (num_kept, tail_ids): leading checkpoint ids that are kept, and the ids that follow:
            the family's boundary, the appended messages, and the generation prompt.

        Raises:
            ValueError: the template refuses the messages.
        """
        ...

    def decode(self, ids: Sequence[int]) -> str:
        """The text of ids, special tokens included."""
        ...

    def decode_message(self, ids: Sequence[int]) -> str:
        """The text of a generated turn as its client reads it.

        Special tokens are left out, but for those that mark tool calls.
        """
        ...

    def mismatch(
        self,
        messages: Sequence[Message],
        tools: Sequence[Any] | None,
        kwargs: Mapping[str, Any],
        ids: Sequence[int],
    ) -> list[dict[str, Any]]:
        """Where ids differ from what rendering the messages afresh would give."""
        ...
