"""Chat replies in SGLang's shape, and the two-turn conversation that many tests play."""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from ._stub import Answer, Making, Seen

NUM_LAYERS: Final = 2
TOP_K: Final = 3
USER: Final = {"role": "user", "content": "1 2 3"}
TOOL: Final = {"role": "tool", "content": "20 21", "tool_call_id": "call_1"}
FIRST_OUTPUT: Final = ([10, 11], [-0.125, -0.25])
SECOND_OUTPUT: Final = ([30, 31], [-0.5, -1.0])


def routed(num_rows: int, start: int = 0) -> npt.NDArray[np.int32]:
    """int32 rows with value 100 * token + 10 * layer + expert, from token `start` on."""
    token, layer, expert = np.indices((num_rows, NUM_LAYERS, TOP_K))
    return np.asarray(100 * (token + start) + 10 * layer + expert, np.int32)


def raw_base64(rows: npt.NDArray[np.int32]) -> str:
    """Base64 of little-endian int32 without a header."""
    return base64.b64encode(np.ascontiguousarray(rows, "<i4").tobytes()).decode()


def completion(
    num_prompt: int,
    ids: Sequence[int],
    log_probs: Sequence[Any],
    *,
    message: dict[str, Any] | None = None,
    finish: str | None = "stop",
    **meta: Any,
) -> dict[str, Any]:
    """A chat completion with meta_info; further keys of meta_info as given."""
    entries = [[log_prob, number, None] for log_prob, number in zip(log_probs, ids, strict=True)]
    reason = None if finish is None else {"type": finish}
    meta_info = {
        "id": "m1",
        "finish_reason": reason,
        "prompt_tokens": num_prompt,
        "completion_tokens": len(ids),
        "cached_tokens": 0,
        "output_token_logprobs": entries,
        **meta,
    }
    said = {"role": "assistant", "content": " ".join(map(str, ids))} if message is None else message
    choice = {"index": 0, "message": said, "finish_reason": finish, "meta_info": meta_info}
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1700000000,
        "model": "stub",
        "choices": [choice],
        "usage": {"prompt_tokens": num_prompt, "completion_tokens": len(ids)},
    }


def answer(reply: Any, *headers: tuple[str, str]) -> Answer:
    """A 200 with this JSON."""
    return Answer(200, json.dumps(reply).encode(), [("content-type", "application/json"), *headers])


def speaks(ids: Sequence[int], log_probs: Sequence[Any] | None = None, **options: Any) -> Making:
    """An engine that samples these ids, whatever the prompt, with routing where it is asked."""

    def make(seen: Seen) -> Answer:
        request = seen.json
        num_prompt = len(request["input_ids"])
        said = dict(options)
        if request.get("return_routed_experts") and "routed_experts" not in said:
            start = request.get("routed_experts_start_len", 0)
            num_rows = num_prompt + len(ids) - 1 - start
            said["routed_experts"] = raw_base64(routed(num_rows, start))
        given = [-0.5] * len(ids) if log_probs is None else log_probs
        return answer(completion(num_prompt, ids, given, **said))

    return make


def first_turn(**options: Any) -> Making:
    """Turn 1 of the fixture: answers [1, 2, 3] with [10, 11]."""
    return speaks(*FIRST_OUTPUT, **{"weight_version": "w1", **options})


def second_turn(**options: Any) -> Making:
    """Turn 2 of the fixture: answers [1, 2, 3, 10, 11, 20, 21] with [30, 31]."""
    return speaks(*SECOND_OUTPUT, **{"weight_version": "w2", "cached_tokens": 5, **options})
