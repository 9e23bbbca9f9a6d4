"""A tokenizer whose text is its ids: a message with content "20 21" is the ids 20 and 21.

So a test writes prompts and outputs as the numbers that it will find in the sample.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from sample_wire.errors import SessionError
from sample_wire.session import Message

TRIMMED_ID: Final = 99
FIXED_KWARGS: Final = {"clear_thinking": False}


class NumberTokenizer:
    """Renders messages to the numbers that they spell.

    Args:
        max_trim_tokens: with 1, a checkpoint's last id is dropped where it is TRIMMED_ID.
        report: makes what mismatch gives, from the ids.
        launch_kwargs: options of the template, overlaid by a request's.
    """

    def __init__(
        self,
        max_trim_tokens: int = 0,
        report: Callable[[Sequence[int]], list[dict[str, Any]]] | None = None,
        launch_kwargs: Mapping[str, Any] | None = None,
    ) -> None:
        self.max_trim_tokens = max_trim_tokens
        self._launch_kwargs = dict(launch_kwargs or {})
        self.allowed_append_roles = frozenset({"tool", "user", "system", "assistant"})
        self._report = report

    def template_kwargs(self, request_kwargs: Mapping[str, Any] | None) -> dict[str, Any]:
        given = self._launch_kwargs | dict(request_kwargs or {})
        for key, value in FIXED_KWARGS.items():
            if given.get(key, value) != value:
                raise SessionError(f"{key} is fixed", code="template_kwargs", http_status=400)
        return given

    def render(
        self,
        messages: Sequence[Message],
        tools: Sequence[Any] | None,  # noqa: ARG002  # the protocol's
        kwargs: Mapping[str, Any],  # noqa: ARG002
    ) -> list[int]:
        return [number for message in messages for number in numbers(message)]

    def append(
        self,
        checkpoint_ids: Sequence[int],
        stored: Sequence[Message],  # noqa: ARG002
        appended: Sequence[Message],
        tools: Sequence[Any] | None,
        kwargs: Mapping[str, Any],
    ) -> tuple[int, list[int]]:
        num_kept = len(checkpoint_ids)
        if self.max_trim_tokens and checkpoint_ids[-1] == TRIMMED_ID:
            num_kept -= 1
        return num_kept, self.render(appended, tools, kwargs)

    def decode(self, ids: Sequence[int]) -> str:
        return "".join(f"<{number}>" for number in ids)

    def decode_message(self, ids: Sequence[int]) -> str:
        return " ".join(map(str, ids))

    def mismatch(
        self,
        messages: Sequence[Message],  # noqa: ARG002
        tools: Sequence[Any] | None,  # noqa: ARG002
        kwargs: Mapping[str, Any],  # noqa: ARG002
        ids: Sequence[int],
    ) -> list[dict[str, Any]]:
        return [] if self._report is None else self._report(ids)


def numbers(message: Message) -> list[int]:
    """The ids of a message.

    Raises:
        ValueError: its content is no numbers.
    """
    return [int(word) for word in str(message.get("content") or "").split()]
