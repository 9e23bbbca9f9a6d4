"""Small recordings that the tests of `sample-wire assemble` share."""

from __future__ import annotations

import base64
import json
from typing import Any

import numpy as np

NUM_LAYERS = 2
TOP_K = 3
NUM_EXPERTS = 400
SHAPE_OPTIONS = ("--routing-layers", str(NUM_LAYERS), "--routing-top-k", str(TOP_K))


def rows(start: int, stop: int, num_layers: int = NUM_LAYERS, top_k: int = TOP_K) -> str:
    """Raw int32 base64 of routing rows [start, stop), each with values of its own."""
    first = np.arange(start, stop, dtype=np.int32).reshape(-1, 1, 1)
    cells = np.arange(num_layers * top_k, dtype=np.int32).reshape(1, num_layers, top_k)
    return base64.b64encode(((first * 10 + cells) % NUM_EXPERTS).tobytes()).decode()


def record(prompt: list[int], output: list[int], *, routed: str | None = None, **meta: Any) -> Any:
    """One turn of SGLang chat, as a session's dump has it."""
    routing = {} if routed is None else {"routed_experts": routed}
    meta_info = {
        "output_token_logprobs": [
            [-0.5 - index, token, None] for index, token in enumerate(output)
        ],
        "completion_tokens": len(output),
        "prompt_tokens": len(prompt),
        "weight_version": "w1",
        "finish_reason": {"type": "stop"},
        **routing,
        **meta,
    }
    message = {"role": "assistant", "content": f"reply {len(prompt)}"}
    return {
        "timestamp": 100.0 + len(prompt),
        "request": {
            "input_ids": prompt,
            "messages": [{"role": "user", "content": f"request {len(prompt)}"}],
        },
        "response": {"choices": [{"message": message, "meta_info": meta_info}]},
    }


def session(num_turns: int = 3, *, incremental: bool = False, routed: bool = True) -> list[Any]:
    """Records of a session whose every turn adds two prompt ids and two output ids."""
    records = []
    for turn in range(num_turns):
        prompt = list(range(1, 4 * turn + 3))
        output = [4 * turn + 3, 4 * turn + 4]
        start = max(len(prompt) - 3, 0) if incremental else 0
        text = rows(start, len(prompt) + 1) if routed else None
        records.append(record(prompt, output, routed=text))
        if incremental:
            records[-1]["request"]["routed_experts_start_len"] = start
    return records


def accumulated(num_turns: int = 3) -> list[int]:
    """The ids that `session` ends with."""
    return list(range(1, 4 * num_turns + 1))


def dump(records: list[Any], **metadata: Any) -> Any:
    """What GET /sessions/{id} answers."""
    return {"session_id": "0" * 32, "records": records, "metadata": metadata}


def capture(records: list[Any]) -> Any:
    """The same exchanges as a recorder between client and engine keeps them."""
    return {
        "turns": [
            {
                "request": {"method": "POST", "body": item["request"]},
                "response": {"status": 200, "body": item["response"]},
                "timestamp": item["timestamp"],
                "wall_s": 0.5,
            }
            for item in records
        ]
    }


def text_of(document: Any) -> bytes:
    """The document as JSON, in Python's spelling of NaN and infinities."""
    return json.dumps(document).encode()


# Turn 2 drops the last token of turn 1.
TRIMMED = [record([1, 2], [10, 99]), record([1, 2, 10, 3], [20, 99])]
