"""A tokenizer of words, one with scripted ids, and replies of an engine for them.

Shape letters: P prompt tokens, O output tokens, L routed layers, K experts per token.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pytest

from sample_wire.assembly import RoutingSpec, TurnReader
from sample_wire.errors import SessionError
from sample_wire.session import (
    LinearTrajectory,
    Message,
    SampleHooks,
    TokenizerAdapter,
    Trajectory,
    TreeTrajectory,
    TurnPlan,
    matcher,
)

END: Final = 1
NEWLINE: Final = 2
NUM_LAYERS: Final = 2
TOP_K: Final = 3
ROLES: Final = frozenset({"tool", "user", "system", "assistant"})
FULL: Final = RoutingSpec(num_layers=NUM_LAYERS, top_k=TOP_K)
INCREMENTAL: Final = RoutingSpec(num_layers=NUM_LAYERS, top_k=TOP_K, incremental=True)


class Words:
    """One id a word; messages are `<role> words END NEWLINE`.

    With max_trim_tokens=1 a checkpoint may end with the role mark of the next message, as
    GLM's do: the mark is dropped, since the next message brings its own.
    """

    def __init__(
        self,
        max_trim_tokens: int = 0,
        roles: frozenset[str] = ROLES,
        launch_kwargs: Mapping[str, Any] | None = None,
    ) -> None:
        self.max_trim_tokens = max_trim_tokens
        self.allowed_append_roles = roles
        self._launch_kwargs = dict(launch_kwargs or {})
        self._words = {"<end>": END, "\n": NEWLINE}

    def template_kwargs(self, request_kwargs: Mapping[str, Any] | None) -> dict[str, Any]:
        return self._launch_kwargs | dict(request_kwargs or {})

    def render(
        self, messages: Sequence[Message], tools: Sequence[Any] | None, kwargs: Mapping[str, Any]
    ) -> list[int]:
        head = [self.id_of(json.dumps([tools, dict(kwargs)]))] if tools or kwargs else []
        return head + self._tail(messages)

    def append(
        self,
        checkpoint_ids: Sequence[int],
        stored: Sequence[Message],  # noqa: ARG002  # the protocol's
        appended: Sequence[Message],
        tools: Sequence[Any] | None,  # noqa: ARG002  # the protocol's
        kwargs: Mapping[str, Any],  # noqa: ARG002  # the protocol's
    ) -> tuple[int, list[int]]:
        last = checkpoint_ids[-1] if checkpoint_ids else None
        if self.max_trim_tokens and last in (self.id_of("<tool>"), self.id_of("<user>")):
            return len(checkpoint_ids) - 1, self._tail(appended)
        boundary = [NEWLINE] if last == END else []
        return len(checkpoint_ids), boundary + self._tail(appended)

    def decode(self, ids: Sequence[int]) -> str:
        words = {number: word for word, number in self._words.items()}
        return " ".join(words.get(number, str(number)) for number in ids)

    def decode_message(self, ids: Sequence[int]) -> str:
        return self.decode([number for number in ids if number != END])

    def mismatch(
        self,
        messages: Sequence[Message],
        tools: Sequence[Any] | None,
        kwargs: Mapping[str, Any],
        ids: Sequence[int],
    ) -> list[dict[str, Any]]:
        fresh = self.render(messages, tools, kwargs)[:-2]
        return [] if fresh == list(ids) else [{"type": "special_token_count"}]

    def ids(self, text: str) -> list[int]:
        """The ids of words."""
        return [self.id_of(word) for word in text.split()]

    def id_of(self, word: str) -> int:
        """The id of one word."""
        return self._words.setdefault(word, 100 + len(self._words))

    def _tail(self, messages: Sequence[Message]) -> list[int]:
        ids = []
        for message in messages:
            ids += [self.id_of(f"<{message.get('role')}>"), *self.ids(str(message.get("content")))]
            ids += [END, NEWLINE]
        return [*ids, self.id_of("<assistant>")]


class Scripted(Words):
    """Gives the prompts of a script, in order, whatever the messages say."""

    def __init__(self, prompts: Sequence[Sequence[int]], max_trim_tokens: int = 0) -> None:
        super().__init__(max_trim_tokens)
        self._prompts = [list(prompt) for prompt in prompts]

    def render(self, *_: Any) -> list[int]:
        return self._prompts.pop(0)

    def append(self, checkpoint_ids: Sequence[int], *_: Any) -> tuple[int, list[int]]:
        prompt = self._prompts.pop(0)
        pairs = zip(checkpoint_ids, prompt, strict=False)
        kept = next((i for i, (a, b) in enumerate(pairs) if a != b), None)
        kept = min(len(checkpoint_ids), len(prompt)) if kept is None else kept
        return kept, prompt[kept:]


def trajectory(
    tokenizer: TokenizerAdapter | None = None,
    selector: str = "strict",
    routing: RoutingSpec | None = None,
) -> LinearTrajectory:
    """An empty trajectory."""
    tokenizer = Words() if tokenizer is None else tokenizer
    reader = TurnReader(routing=routing, decode_text=tokenizer.decode)
    return LinearTrajectory(reader, tokenizer, matcher(selector))


def tree(
    tokenizer: TokenizerAdapter | None = None,
    selector: str = "strict",
    routing: RoutingSpec | None = None,
    hooks: SampleHooks | None = None,
) -> TreeTrajectory:
    """An empty tree."""
    tokenizer = Words() if tokenizer is None else tokenizer
    reader = TurnReader(routing=routing, decode_text=tokenizer.decode)
    return TreeTrajectory(reader, tokenizer, matcher(selector), hooks)


def say(role: str, content: Any = "", **keys: Any) -> dict[str, Any]:
    """A message."""
    return {"role": role, "content": content, **keys}


def chat(*messages: Any, **keys: Any) -> dict[str, Any]:
    """A request."""
    return {"messages": list(messages), **keys}


def answer(
    output: Sequence[int],
    *,
    message: Any = None,
    finish: Any = "stop",
    log_probs: Sequence[Any] | None = None,
    sglext: Any = None,
    **meta: Any,
) -> dict[str, Any]:
    """An SGLang chat reply; further keys go into meta_info, and None leaves a key out."""
    values = [-0.5] * len(output) if log_probs is None else log_probs
    found = {
        "finish_reason": {"type": finish},
        "output_token_logprobs": [[v, i, None] for v, i in zip(values, output, strict=True)],
        "completion_tokens": len(output),
        **meta,
    }
    found = {key: value for key, value in found.items() if value is not None}
    choice = {"index": 0, "message": message or say("assistant", "said"), "meta_info": found}
    reply: dict[str, Any] = {"id": "r1", "choices": [choice], "usage": {"total_tokens": 7}}
    return reply if sglext is None else reply | {"sglext": sglext}


def sent(reply: Any) -> bytes:
    """A reply as the bytes that an engine sends."""
    return json.dumps(reply).encode()


def take_turn(
    session: Trajectory,
    body: dict[str, Any],
    reply: Any,
    timestamp: float | None = None,
    request_timestamp: float | None = None,
) -> TurnPlan:
    """Plans and commits one turn."""
    plan = session.plan(body)
    session.commit(plan, body, sent(reply), timestamp, request_timestamp)
    return plan


def spoken(session: LinearTrajectory, *contents: str) -> None:
    """Commits turns in which a user says one thing and the engine answers `a1`, `a2`, ..."""
    for content in contents:
        number = len(session.turns) + 1
        body = chat(*session.messages, say("user", content))
        take_turn(session, body, answer([50 + number], message=say("assistant", f"a{number}")))


def refusal(error: pytest.ExceptionInfo[SessionError]) -> tuple[int, str]:
    """Status and code of a refusal."""
    return error.value.http_status_hint, error.value.code


def state(session: LinearTrajectory | TreeTrajectory) -> tuple[Any, ...]:
    """All that a trajectory shows, to tell that nothing has changed."""
    return (
        session.version,
        session.messages,
        session.token_ids().tolist(),
        session.records(),
        session.metadata([]),
    )


def routed(num_rows: int, start: int = 0) -> npt.NDArray[np.int32]:
    """int32 rows with value 100 * token + 10 * layer + expert, from token `start` on."""
    token, layer, expert = np.indices((num_rows, NUM_LAYERS, TOP_K))
    return np.asarray(100 * (token + start) + 10 * layer + expert, np.int32)


def raw_base64(rows: npt.NDArray[Any]) -> str:
    """SGLang's form: base64 of little-endian int32 without a header."""
    return base64.b64encode(np.ascontiguousarray(rows, "<i4").tobytes()).decode()
