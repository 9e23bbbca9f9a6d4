"""Turns of a session: planned on the turn before, read from a reply, recorded, assembled.

Linear trajectories and trees differ in which turn a request builds on and in what becomes of
the others.  All that happens between a turn and the one before it is here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, overload

import msgspec
import numpy as np
import numpy.typing as npt

from .._json import encode_json
from .._plain import Written
from ..assembly import AssemblyResult, Turn, TurnReader, assemble_turns
from ..errors import SessionError
from ..overlay import independent
from ._cuts import ReplyBytes
from ._ids import IdsText, ids_array, ids_text, joined
from ._kept import EncodeBase64
from .engine_kind import SGLANG, EngineKind
from .replies import HeldReply, received
from .requests import (
    START_KEY,
    HeldMessages,
    HeldRequest,
    prefix_mismatch,
    template_kwargs,
    tools_of,
)
from .tokenizer import Message, TokenizerAdapter
from .trajectory import Mismatch, SampleOptions, Snapshot, TurnPlan

# What the objects of a turn take beside its arrays and texts.  With these two the count is within
# a fifth of what tracemalloc finds, at 15 turns of 2,060 tokens with 25 x 10 experts each.
_TURN_BYTES: Final = 8192
# A request's messages are held as text, parsed, and as the parts of a sample.
_TEXT_COPIES: Final = 3


@dataclass(frozen=True, slots=True, eq=False)
class Commit:
    """A committed turn, and what its record is made of.

    Attributes:
        turn: the turn.
        messages: those that it added, the engine's last.
        num_messages: all up to and with those.
        request, reply: as they are held.
        response_id: the engine's name for the reply, or "".
        kind: of the engine.
        held_bytes: what it holds in memory that the turns before it do not, about.
    """

    turn: Turn
    messages: tuple[Message, ...]
    num_messages: int
    request: HeldRequest
    reply: HeldReply
    response_id: str
    kind: EngineKind
    held_bytes: int

    def record(self, encode_base64: EncodeBase64) -> dict[str, Any]:
        """The request and the reply as they were sent, and when."""
        turn = self.turn
        prompt: list[int] = turn.tokens[: turn.num_prompt].to_array(np.int64).tolist()
        return {
            "timestamp": turn.timestamp,
            "request_timestamp": turn.request_timestamp,
            "method": "POST",
            "path": self.kind.path,
            "status_code": 200,
            "request": self.kind.wire_body(self.request.body(prompt)),
            "response": self.reply.body(turn, encode_base64),
        }


class TurnMaker:
    """Makes the turns of one session and what is told of them.

    Args:
        reader: reads this session's turns; of no other.
        tokenizer: renders prompts.
        kind: of the engine that answers.
    """

    __slots__ = ("_ids_text", "_kind", "_reader", "_tokenizer")

    def __init__(
        self, reader: TurnReader, tokenizer: TokenizerAdapter, kind: EngineKind = SGLANG
    ) -> None:
        self._reader = reader
        self._tokenizer = tokenizer
        self._kind = kind
        self._ids_text = IdsText()

    def plan(
        self,
        body: Mapping[str, Any],
        messages: Sequence[Message],
        base: Commit | None,
        stored: Sequence[Message],
        version: int,
    ) -> TurnPlan:
        """The plan for a request.

        Args:
            body: the request, normalised.
            messages: its messages.
            base: the turn that it builds on, or None.
            stored: the messages that base ends.
            version: of the trajectory.

        Raises:
            SessionError: 400 "append_role", "bad_request", "template_kwargs" or
                "render_failed"; 500 "prefix_mismatch".
        """
        new = tuple(messages[len(stored) :])
        if base is not None:
            self._check_roles(new)
        held = token_ids(base)
        num_kept, tail = self._rendered(body, base, stored, held, new)
        prompt = np.concatenate([held[:num_kept], ids_array(tail)])
        prompt.flags.writeable = False
        return TurnPlan(
            prompt_ids=prompt,
            prompt_text=joined(
                self._ids_text.of(base.turn if base else None, num_kept),
                ids_text(prompt[num_kept:]),
            ),
            base=base.turn if base else None,
            num_base_turns=base.turn.number if base else 0,
            num_kept=num_kept,
            new_messages=new,
            start_row=max(len(held) - 1, 0),
            version=version,
        )

    def commit(
        self,
        plan: TurnPlan,
        base: Commit | None,
        body: Mapping[str, Any],
        reply: ReplyBytes,
        timestamp: float | None,
        request_timestamp: float | None,
        like: Commit | None = None,
    ) -> Commit:
        """The turn that a reply makes of a plan.

        Args:
            base: the turn that the plan builds on, or None.
            like: another turn on that one, which this one may have much in common with.
            plan, body, reply, timestamp, request_timestamp: as for Trajectory.commit.

        Raises:
            SessionError: 502 "bad_engine_reply": the reply is malformed.
        """
        near = like or base
        stored_before = self._reader.stored_bytes
        request = HeldRequest.of(body, near.request if near else None)
        record = {
            "request": {"input_ids": plan.prompt_ids, START_KEY: body.get(START_KEY)},
            "timestamp": timestamp,
            "request_timestamp": request_timestamp,
        }
        found = received(
            reply,
            plan.prompt_ids,
            self._kind,
            lambda response, arrays: self._reader.read(
                record | {"response": response}, plan.base, like.turn if like else None, arrays
            ),
        )
        turn = self._kind.spoken(found.turn, body, self._tokenizer)
        self._ids_text.take(turn, plan.base, plan.prompt_text)
        added = (*map(_copied, plan.new_messages), _spoken(turn.message))
        num_messages = (base.num_messages if base else 0) + len(added)
        stored = self._reader.stored_bytes - stored_before
        held_bytes = _TURN_BYTES + stored + turn.log_probs.nbytes + found.held.num_bytes
        return Commit(
            turn=turn,
            messages=added,
            num_messages=num_messages,
            request=request,
            reply=found.held,
            response_id=found.id,
            kind=self._kind,
            held_bytes=held_bytes + _TEXT_COPIES * request.num_bytes,
        )

    def client_reply(self, done: Commit) -> dict[str, Any]:
        """The reply of a turn as its client gets it: without routing arrays."""
        return self._kind.client_reply(done.reply, done.turn, done.request, self._tokenizer)

    def client_text(self, done: Commit) -> bytes:
        """The JSON text of that."""
        return self._kind.client_text(done.reply, done.turn, done.request, self._tokenizer)

    def snapshot(
        self, version: int, last: Commit | None, messages: tuple[Message, ...]
    ) -> Snapshot:
        """The conversation that ends with a turn; these are its messages."""
        body = last.request.options() if last else {}
        return Snapshot(
            version=version,
            messages=messages,
            tools=tools_of(body),
            kwargs=template_kwargs(body, self._tokenizer),
            token_ids=token_ids(last).tolist(),
        )

    def metadata(
        self, last: Commit | None, mismatch: Mismatch, *, is_written: bool = False
    ) -> dict[str, Any]:
        """What is told of the conversation that ends with a turn, and of its tokenizer.

        Args:
            is_written: whether its ids are JSON text, to be encoded as it is.
        """
        ids = self._written_ids(last.turn) if is_written and last else None
        return {
            **checked_ids(last, mismatch, ids),
            "max_trim_tokens": self._tokenizer.max_trim_tokens,
        }

    def _written_ids(self, turn: Turn) -> Written:
        return Written(b"[%b]" % bytes(self._ids_text.of(turn, turn.num_tokens)))

    def assembled(
        self, commits: Sequence[Commit], max_seq_len: int | None, options: SampleOptions
    ) -> AssemblyResult:
        """The sample of turns, each of which builds on the one before it.

        Raises:
            AssemblyError: the turns cannot become a sample.
        """
        turns = [commit.turn for commit in commits]
        if options.keep_messages:
            turns = [
                replace(commit.turn, request_messages=HeldMessages(commit.request))
                for commit in commits
            ]
        return assemble_turns(
            turns,
            accumulated_token_ids=token_ids(commits[-1] if commits else None),
            max_trim_tokens=self._tokenizer.max_trim_tokens,
            decode_text=self._tokenizer.decode,
            max_seq_len=max_seq_len,
            routing=options.routing,
            speculative=options.speculative,
            keep_messages=options.keep_messages,
            schema=options.schema,
        )

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
        base: Commit | None,
        stored: Sequence[Message],
        held: npt.NDArray[np.int64],
        new: Sequence[Message],
    ) -> tuple[int, list[int]]:
        """How many ids of base the prompt keeps, and the ids that follow them."""
        tokenizer, tools = self._tokenizer, tools_of(body)
        kwargs = template_kwargs(body, tokenizer)
        try:
            if base is None:
                return 0, tokenizer.render(new, tools, kwargs)
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


def token_ids(last: Commit | None) -> npt.NDArray[np.int64]:
    """The checkpoint of a turn: the ids of its prompt and output; none without a turn."""
    return np.empty(0, np.int64) if last is None else last.turn.tokens.to_array(np.int64)


def checked_ids(
    last: Commit | None, mismatch: Mismatch, written: Written | None = None
) -> dict[str, Any]:
    """The checkpoint as metadata, and before it the report on it where there is one.

    Args:
        written: takes the place of the list of ids.
    """
    told = last is not None and last.turn.num_tokens and mismatch is not None
    return {
        # A copy: hooks may change what they are given, and the report is told again.
        **({"tito_session_mismatch": independent(mismatch, copy_arrays=False)} if told else {}),
        "accumulated_token_ids": token_ids(last).tolist() if written is None else written,
    }


class TokenIds(Sequence[int]):
    """Ids of an array as a sequence of ints; only those that are looked at are made."""

    __slots__ = ("_ids",)

    def __init__(self, ids: npt.NDArray[np.int64]) -> None:
        self._ids = ids

    def __len__(self) -> int:
        return len(self._ids)

    @overload
    def __getitem__(self, index: int) -> int: ...
    @overload
    def __getitem__(self, index: slice) -> list[int]: ...
    def __getitem__(self, index: int | slice) -> int | list[int]:
        found: int | list[int] = self._ids[index].tolist()
        return found


def _spoken(message: Message | None) -> Message:
    """An engine's message as it is stored; one that names no role is the assistant's."""
    said = dict(message or {})
    return said | {"role": said.get("role") or "assistant"}


def _copied(message: Message) -> Message:
    """A message of the session's own; the request's stays its sender's."""
    copied: Message = msgspec.json.decode(encode_json(message))
    return copied
