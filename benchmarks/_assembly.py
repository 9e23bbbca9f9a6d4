"""Seeded sessions for the assembly rows: the ids of a shape cut into turns, as engine replies.

A reply is what SGLang answers in chat with meta_info, as JSON bytes.  It is made when it is asked
for and by nobody kept, since 50 replies that each repeat all routing rows are 3.3 GiB at P.

Shape letters: T tokens, L routed layers, K experts per token.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from functools import cache, cached_property
from importlib import import_module
from typing import Any, Final, TypeVar, cast

import numpy as np
import numpy.typing as npt

from benchmarks._data import NUM_EXPERTS, SEED, SHAPES, ShapeName, sample_of
from sample_wire.assembly import RoutingSpec

# Of a turn's tokens, the share that the prompt brings; the engine samples the others.
_PROMPT_SHARE: Final = 0.4
_ROUTING_MARK: Final = "<routing>"
Record = dict[str, Any]
Values = TypeVar("Values", bound=npt.NDArray[Any])


@cache
def session_of(name: ShapeName) -> Session:
    """The session of a shape that has R3."""
    return Session(name)


class Session:
    """Turns of one size over the tokens and routing rows of a shape.

    A turn beyond the shape's own begins again with its tokens and rows.

    Attributes:
        num_turns: as the shape has it; T is cut to whole turns.
        turn_size: tokens that a turn adds, prompt and output.
    """

    def __init__(self, name: ShapeName) -> None:
        shape = SHAPES[name]
        self.num_turns = shape.num_turns
        self.turn_size = shape.T // shape.num_turns
        sample = sample_of(name, "arrays")
        rows = sample.rollout_routed_experts
        if rows is None:
            raise ValueError(f"shape {name} has no R3")
        self._ids: npt.NDArray[np.int64] = sample.tokens
        self._routed_TLK: npt.NDArray[np.int32] = rows

    def spec(self, *, incremental: bool) -> RoutingSpec:
        """What a server would be configured with."""
        _, num_layers, top_k = self._routed_TLK.shape
        return RoutingSpec(
            num_layers=num_layers,
            top_k=top_k,
            num_experts=NUM_EXPERTS,
            required=True,
            incremental=incremental,
        )

    def ids(self, num_turns: int) -> npt.NDArray[np.int64]:
        """Every id of the first turns."""
        return _wrapped(self._ids, 0, num_turns * self.turn_size)

    def rows(self, num_turns: int) -> npt.NDArray[np.int32]:
        """Every routing row of the first turns."""
        return _wrapped(self._routed_TLK, 0, num_turns * self.turn_size - 1)

    def narrow_bytes(self, num_turns: int) -> int:
        """Bytes of the first turns' rows as uint8 and ids as int32."""
        return self.rows(num_turns).size + 4 * num_turns * self.turn_size

    def num_prompt(self, turn: int) -> int:
        """Tokens of a turn's prompt; turns from 0."""
        return turn * self.turn_size + int(_PROMPT_SHARE * self.turn_size)

    def start_row(self, turn: int) -> int:
        """The first routing row that the turns before do not have."""
        return max(turn * self.turn_size - 1, 0)

    def record(self, turn: int, *, incremental: bool) -> Record:
        """A turn's request, with its ids as an array, and its reply as bytes; turns from 0."""
        request: dict[str, Any] = {"input_ids": _wrapped(self._ids, 0, self.num_prompt(turn))}
        if incremental:
            request["routed_experts_start_len"] = self.start_row(turn)
        reply = b"".join(self.reply_pieces(turn, incremental=incremental))
        return {"request": request, "response": reply}

    def reply_pieces(self, turn: int, *, incremental: bool) -> list[bytes | memoryview]:
        """A turn's reply unjoined: most of a full prefix is a view that all turns share."""
        stop = (turn + 1) * self.turn_size
        if incremental:
            rows = _wrapped(self._routed_TLK, self.start_row(turn), stop - 1)
            routing: list[bytes | memoryview] = [encode_base64(rows.tobytes())]
        else:
            routing = self._text_of_prefix(stop - 1)
        num_prompt = self.num_prompt(turn)
        reply = _reply(turn, num_prompt, _wrapped(self._ids, num_prompt, stop))
        head, tail = json.dumps(reply, separators=(",", ":")).encode().split(_ROUTING_MARK.encode())
        return [head, *routing, tail]

    def _text_of_prefix(self, num_rows: int) -> list[bytes | memoryview]:
        """Base64 of the first rows, in two pieces: all but the last group is in the whole text."""
        if num_rows > len(self._routed_TLK):
            raise ValueError("a turn beyond the shape's own has no full prefix here")
        data = self._routed_TLK[:num_rows].reshape(-1).view(np.uint8)
        num_groups = len(data) // 3
        return [self._text[: 4 * num_groups], encode_base64(data[3 * num_groups :].tobytes())]

    @cached_property
    def _text(self) -> memoryview:
        return memoryview(encode_base64(self._routed_TLK.tobytes()))


def _wrapped(whole: Values, start: int, stop: int) -> Values:
    """Rows [start, stop); past its end the array begins again."""
    if stop <= len(whole):
        return cast(Values, whole[start:stop])
    return cast(Values, whole.take(range(start, stop), axis=0, mode="wrap"))


def encode_base64(data: bytes) -> bytes:
    """By pybase64 where it is installed, else by the standard library."""
    return base64_encoder()(data)


def has_pybase64() -> bool:
    """Whether pybase64 is installed."""
    return base64_encoder() is not base64.b64encode


@cache
def base64_encoder() -> Callable[[bytes], bytes]:
    try:
        return cast(Callable[[bytes], bytes], import_module("pybase64").b64encode)
    except ImportError:
        return base64.b64encode


def said(num_output: int) -> dict[str, Any]:
    """The message of a turn that samples so many tokens."""
    return {"role": "assistant", "content": "words " * num_output, "tool_calls": None}


def _reply(turn: int, num_prompt: int, output_ids: npt.NDArray[np.int64]) -> Record:
    """SGLang's answer to a chat request with logprobs and return_meta_info."""
    rng = np.random.default_rng([SEED, turn])
    log_probs = (-rng.exponential(0.4, len(output_ids)).astype(np.float32)).tolist()
    ids = output_ids.tolist()
    content = [
        {"token": f"t{token}", "bytes": [116, 49], "logprob": log_prob, "top_logprobs": []}
        for token, log_prob in zip(ids, log_probs, strict=True)
    ]
    meta_info = {
        "id": f"turn-{turn}",
        "finish_reason": {"type": "stop", "matched": ids[-1]},
        "prompt_tokens": num_prompt,
        "weight_version": f"step-{turn // 10}",
        "num_retractions": 0,
        "output_token_logprobs": [
            [lp, token, None] for lp, token in zip(log_probs, ids, strict=True)
        ],
        "output_token_logprobs_length": len(ids),
        "completion_tokens": len(ids),
        "cached_tokens": num_prompt // 2,
        "routed_experts": _ROUTING_MARK,
        "e2e_latency": 2.5,
    }
    choice = {
        "index": 0,
        "message": said(len(ids)),
        "logprobs": {"content": content},
        "finish_reason": "stop",
        "meta_info": meta_info,
    }
    return {"id": f"turn-{turn}", "object": "chat.completion", "model": "m", "choices": [choice]}
