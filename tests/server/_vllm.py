"""Replies of vLLM's token-in endpoint for texts, in the ids of the byte-level tokenizer."""

from __future__ import annotations

import base64
import io
from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from sample_wire.adapters.tokenizer import ByteChatML

from ._sglang import answer, routed
from ._stub import Answer, Making, Seen

CHATML: Final = ByteChatML()
PATH: Final = "/inference/v1/generate"
END: Final = "<|im_end|>"
USER: Final = {"role": "user", "content": "hi"}
TOOLS: Final[Any] = [{"type": "function", "function": {"name": "f", "parameters": {}}}]
CALL_TEXT: Final = '<tool_call>\n{"name": "f", "arguments": {"a":  1}}\n</tool_call>'
CALL: Final = {"name": "f", "arguments": '{"a":  1}'}
# The ids of a prompt that is USER alone, and of a reply to it.
PROMPT: Final = CHATML.render([USER], None, {})
IDS: Final = CHATML.encode(f"ok{END}")


def npy_base64(num_rows: int, start: int) -> str:
    """Rows from `start` on, as base64 of a .npy file of uint16."""
    file = io.BytesIO()
    np.save(file, routed(num_rows, start).astype(np.uint16))
    return base64.b64encode(file.getvalue()).decode()


def generated(
    num_prompt: int,
    ids: Sequence[int],
    log_probs: Sequence[Any] | None = None,
    *,
    finish: str | None = "stop",
    **choice: Any,
) -> dict[str, Any]:
    """A reply; further keys of the choice as given."""
    values = [-0.5] * len(ids) if log_probs is None else log_probs
    tokens = [
        {"token": f"token_id:{number}", "logprob": value, "bytes": None}
        for number, value in zip(ids, values, strict=True)
    ]
    content = [{**token, "top_logprobs": [token]} for token in tokens]
    return {
        "request_id": "generate-tokens-1",
        "model": "stub",
        "created": 1700000000,
        "choices": [
            {
                "index": 0,
                "logprobs": {"content": content},
                "finish_reason": finish,
                "token_ids": [*ids],
                "routed_experts": None,
                **choice,
            }
        ],
        "usage": {
            "prompt_tokens": num_prompt,
            "total_tokens": num_prompt + len(ids),
            "completion_tokens": len(ids),
            "prompt_tokens_details": {"cached_tokens": 2},
        },
        "prompt_logprobs": None,
        "kv_transfer_params": None,
    }


def says(text: str, *, routing: bool = False, **options: Any) -> Making:
    """An engine that samples the ids of this text, markers in it as their own ids."""
    ids = CHATML.encode(text)

    def make(seen: Seen) -> Answer:
        num_prompt = len(seen.json["token_ids"])
        said = dict(options)
        if routing:
            start = seen.json["sampling_params"].get("routed_experts_prompt_start", 0)
            said["routed_experts"] = npy_base64(num_prompt + len(ids) - 1 - start, start)
        return answer(generated(num_prompt, ids, **said))

    return make
