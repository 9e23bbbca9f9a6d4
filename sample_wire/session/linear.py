"""The linear trajectory: one conversation, turn after turn, that never goes two ways.

A turn is planned, answered by an engine, and committed.  Planning changes nothing: it says
what the prompt is, and which turns stay.  Only committing changes the state, at once and only
if no other turn was committed since the plan was made; so a failed engine call, a refused
request or a bad reply leaves everything as it was.

A request that departs from what is stored goes back to the last turn that it still agrees
with, by at most one turn.  What stays is kept as it is spelled here: a replay that a lenient
matcher accepts never rewrites it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import msgspec
import numpy as np
import numpy.typing as npt

from .._json import encode_json
from .._plain import Written
from ..assembly import AssemblyResult, RoutingSpec, Turn, TurnReader, assemble_turns
from ..errors import SessionError
from ..sample import Sample
from ..schema import Schema
from ._cuts import ReplyBytes
from ._ids import IdsText, TokenIds, ids_text, joined
from ._kept import EncodeBase64, standard_base64
from .matchers import MessageMatcher, prefix_length
from .replies import HeldReply, received
from .requests import (
    START_KEY,
    HeldRequest,
    messages_of,
    prefix_mismatch,
    template_kwargs,
    tools_of,
)
from .tokenizer import Message, TokenizerAdapter

MAX_ROLLBACK_TURNS: Final = 1
_PATH: Final = "/v1/chat/completions"


@dataclass(frozen=True, slots=True, eq=False)
class TurnPlan:
    """What a request would do to a trajectory.

    Attributes:
        prompt_ids: int64 [P], read-only.
        prompt_text: the same as the inside of a JSON array.
        base: the turn that is built on, or None.
        num_base_turns: turns that stay.
        num_kept: leading ids of base that the prompt starts with.
        new_messages: the request's messages after those of base.
        start_row: the first routing row that base does not have.
        version: the state that the plan was made for.
    """

    prompt_ids: npt.NDArray[np.int64]
    prompt_text: bytes
    base: Turn | None
    num_base_turns: int
    num_kept: int
    new_messages: tuple[Message, ...]
    start_row: int
    version: int


@dataclass(frozen=True, slots=True, eq=False)
class Snapshot:
    """A trajectory at one moment: what a mismatch report is made of, also in another thread.

    Attributes:
        version: of the trajectory.
        messages: all that are stored.
        tools, kwargs: of the last turn's request.
        token_ids: the latest checkpoint.
    """

    version: int
    messages: tuple[Message, ...]
    tools: list[Any] | None
    kwargs: dict[str, Any]
    token_ids: list[int]


@dataclass(frozen=True, slots=True, eq=False)
class _Commit:
    """A committed turn, and what its record is made of."""

    turn: Turn
    num_messages: int
    request: HeldRequest
    reply: HeldReply


class LinearTrajectory:
    """The state of one conversation.

    Args:
        reader: reads this conversation's turns; of no other.
        tokenizer: renders prompts.
        matcher: whether a replayed message is the stored one.

    Attributes:
        version: grows with every commit.
        messages: all that are stored, the engine's included.
    """

    __slots__ = (
        "_commits",
        "_ids_text",
        "_matcher",
        "_reader",
        "_tokenizer",
        "messages",
        "version",
    )

    def __init__(
        self, reader: TurnReader, tokenizer: TokenizerAdapter, matcher: MessageMatcher
    ) -> None:
        self._reader = reader
        self._tokenizer = tokenizer
        self._matcher = matcher
        self._commits: tuple[_Commit, ...] = ()
        self._ids_text = IdsText()
        self.messages: tuple[Message, ...] = ()
        self.version = 0

    @property
    def turns(self) -> tuple[Turn, ...]:
        """The committed turns, without their requests' messages."""
        return tuple(commit.turn for commit in self._commits)

    def plan(self, body: Mapping[str, Any]) -> TurnPlan:
        """What a request would do; changes nothing.

        Args:
            body: the request, normalised.

        Raises:
            SessionError: 400 "rollback_too_deep", "append_role", "bad_request",
                "template_kwargs" or "render_failed"; 500 "matcher_failed" or
                "prefix_mismatch".
        """
        messages = messages_of(body)
        kept = self._kept(messages)
        base = kept[-1] if kept else None
        new = tuple(messages[base.num_messages if base else 0 :])
        if base is not None:
            self._check_roles(new)
        held = base.turn.tokens.to_array(np.int64) if base else np.empty(0, np.int64)
        num_kept, tail = self._rendered(body, base, held, new)
        prompt = np.concatenate([held[:num_kept], np.asarray(tail, np.int64)])
        prompt.flags.writeable = False
        shared = self._ids_text.upto(len(kept), held, num_kept)
        return TurnPlan(
            prompt_ids=prompt,
            prompt_text=joined(shared, ids_text(prompt[num_kept:])),
            base=base.turn if base else None,
            num_base_turns=len(kept),
            num_kept=num_kept,
            new_messages=new,
            start_row=max(len(held) - 1, 0),
            version=self.version,
        )

    def commit(
        self,
        plan: TurnPlan,
        body: Mapping[str, Any],
        reply: ReplyBytes,
        timestamp: float | None,
        request_timestamp: float | None,
    ) -> Turn:
        """Takes a turn into the state; on any error the state is as before.

        Args:
            plan: what `plan` gave for the request.
            body: what was sent upstream.  Its token ids are those of the plan.
            reply: the engine's answer, a 200.
            timestamp, request_timestamp: seconds, of the commit and of the arrival.

        Raises:
            SessionError: 409 "stale_turn": another turn was committed since the plan was made;
                502 "bad_engine_reply": the reply is malformed.
        """
        if plan.version != self.version:
            raise _stale()
        kept = self._commits[: plan.num_base_turns]
        base = kept[-1] if kept else None
        request = HeldRequest.of(body, base.request if base else None)
        record = {
            "request": {"input_ids": plan.prompt_ids, START_KEY: body.get(START_KEY)},
            "timestamp": timestamp,
            "request_timestamp": request_timestamp,
        }
        turn, held = received(
            reply,
            plan.prompt_ids,
            lambda response, arrays: self._reader.read(
                record | {"response": response}, plan.base, arrays
            ),
        )
        stored = self.messages[: base.num_messages if base else 0]
        messages = (*stored, *map(_copied, plan.new_messages), _spoken(turn.message))
        done = _Commit(turn, len(messages), request, held)
        self._ids_text = self._ids_text.after(
            len(kept),
            plan.prompt_text,
            turn.tokens[turn.num_prompt :].to_array(np.int64),
            is_longer=plan.base is None or plan.num_kept == plan.base.num_tokens,
        )
        self._commits, self.messages = (*kept, done), messages
        self.version += 1
        return turn

    def token_ids(self) -> npt.NDArray[np.int64]:
        """The latest checkpoint: the ids of the last turn's prompt and output."""
        if not self._commits:
            return np.empty(0, np.int64)
        return self._commits[-1].turn.tokens.to_array(np.int64)

    def client_reply(self, turn: Turn) -> dict[str, Any]:
        """The reply of a committed turn as its client gets it: without routing arrays."""
        return self._commits[turn.number - 1].reply.client_body(turn)

    def held_reply(self, turn: Turn) -> HeldReply:
        """What is kept of a committed turn's reply; its `client_text` is the client's JSON."""
        return self._commits[turn.number - 1].reply

    def snapshot(self) -> Snapshot:
        """The trajectory as it is now; later commits do not change it."""
        body = self._commits[-1].request.options() if self._commits else {}
        return Snapshot(
            version=self.version,
            messages=self.messages,
            tools=tools_of(body),
            kwargs=template_kwargs(body, self._tokenizer),
            token_ids=self.token_ids().tolist(),
        )

    def metadata(self, mismatch: list[dict[str, Any]] | None) -> dict[str, Any]:
        """What a session tells of itself, in the order of its keys.

        Args:
            mismatch: the tokenizer's report on a snapshot, or None where there is none.
        """
        return self._metadata(mismatch, self.token_ids().tolist())

    def written_metadata(self, mismatch: list[dict[str, Any]] | None) -> dict[str, Any]:
        """The same to be encoded at once: its ids are their JSON text already."""
        held = self.token_ids()
        ids = self._ids_text.upto(len(self._commits), held, len(held))
        return self._metadata(mismatch, Written(b"[%b]" % bytes(ids)))

    def _metadata(self, mismatch: list[dict[str, Any]] | None, ids: Any) -> dict[str, Any]:
        told = self._commits and mismatch is not None
        return {
            **({"tito_session_mismatch": mismatch} if told else {}),
            "accumulated_token_ids": ids,
            "max_trim_tokens": self._tokenizer.max_trim_tokens,
        }

    def records(self) -> list[dict[str, Any]]:
        """All records, each request and reply as it was sent."""
        return list(self.iter_records())

    def iter_records(self, encode: EncodeBase64 = standard_base64) -> Iterator[dict[str, Any]]:
        """The records of this moment, made one by one as they are taken."""
        return (_record(commit, encode) for commit in self._commits)

    def collect(
        self,
        max_seq_len: int | None = None,
        *,
        routing: RoutingSpec | None = None,
        speculative: bool = False,
        keep_messages: bool = False,
        schema: Schema = Sample.__sample_schema__,
    ) -> AssemblyResult:
        """The session's sample; changes nothing.

        Args:
            max_seq_len, routing, speculative, keep_messages, schema: as for assemble.

        Raises:
            AssemblyError: the turns cannot become a sample.
        """
        turns: Sequence[Turn] = self.turns
        if keep_messages:
            turns = [
                replace(commit.turn, request_messages=commit.request.parsed_messages())
                for commit in self._commits
            ]
        return assemble_turns(
            turns,
            accumulated_token_ids=self.token_ids(),
            max_trim_tokens=self._tokenizer.max_trim_tokens,
            decode_text=self._tokenizer.decode,
            max_seq_len=max_seq_len,
            routing=routing,
            speculative=speculative,
            keep_messages=keep_messages,
            schema=schema,
        )

    def _kept(self, messages: Sequence[Message]) -> tuple[_Commit, ...]:
        """The turns that a request builds on."""
        if not self._commits:
            return ()
        matched = prefix_length(self._matcher, self.messages, messages)
        kept = tuple(commit for commit in self._commits if commit.num_messages <= matched)
        discarded = len(self._commits) - len(kept)
        if discarded > MAX_ROLLBACK_TURNS:
            raise SessionError(
                f"rollback failed: discard_count={discarded} exceeds "
                f"max_assistant_rollback_steps={MAX_ROLLBACK_TURNS} (stored has "
                f"{len(self.messages)} messages, request has {len(messages)} messages)",
                code="rollback_too_deep",
                http_status=400,
            )
        return kept

    def _check_roles(self, appended: Sequence[Message]) -> None:
        allowed = self._tokenizer.allowed_append_roles
        for message in appended:
            role = message.get("role")
            if not isinstance(role, str) or role not in allowed:
                raise SessionError(
                    f"appended message role={role!r:.40} not allowed (allowed="
                    f"{sorted(allowed)}); the selected TITO fixed template does not support "
                    "appending this role",
                    code="append_role",
                    http_status=400,
                )

    def _rendered(
        self,
        body: Mapping[str, Any],
        base: _Commit | None,
        held: npt.NDArray[np.int64],
        new: Sequence[Message],
    ) -> tuple[int, list[int]]:
        """How many ids of base the prompt keeps, and the ids that follow them."""
        tokenizer, tools = self._tokenizer, tools_of(body)
        kwargs = template_kwargs(body, tokenizer)
        try:
            if base is None:
                return 0, tokenizer.render(new, tools, kwargs)
            stored = self.messages[: base.num_messages]
            num_kept, tail = tokenizer.append(TokenIds(held), stored, new, tools, kwargs)
        except ValueError as error:
            raise SessionError(
                f"the chat template refuses the messages: {error}",
                code="render_failed",
                http_status=400,
            ) from error
        least = max(len(held) - tokenizer.max_trim_tokens, 0)
        if not least <= num_kept <= len(held):
            raise prefix_mismatch(num_kept, least)
        return num_kept, tail


def _stale() -> SessionError:
    return SessionError(
        "another turn of this session was committed meanwhile", code="stale_turn", http_status=409
    )


def _spoken(message: Message | None) -> Message:
    """An engine's message as it is stored; one that names no role is the assistant's."""
    said = dict(message or {})
    return said | {"role": said.get("role") or "assistant"}


def _copied(message: Message) -> Message:
    """A message of the session's own; the request's stays its sender's."""
    copied: Message = msgspec.json.decode(encode_json(message))
    return copied


def _record(commit: _Commit, encode: EncodeBase64) -> dict[str, Any]:
    turn = commit.turn
    prompt: list[int] = turn.tokens[: turn.num_prompt].to_array(np.int64).tolist()
    return {
        "timestamp": turn.timestamp,
        "request_timestamp": turn.request_timestamp,
        "method": "POST",
        "path": _PATH,
        "status_code": 200,
        "request": commit.request.body(prompt),
        "response": commit.reply.body(turn, encode),
    }
