"""Records in the engines' own shapes, routing values in every public form, and short calls.

Shape letters: T tokens, L routed layers, K experts per token.
"""

from __future__ import annotations

import base64
import io
import json
from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pytest

from sample_wire import AssemblyError, Sample
from sample_wire.assembly import AssemblyResult, RoutingSpec, assemble

Array = npt.NDArray[Any]
Record = dict[str, Any]
NUM_LAYERS: Final = 2
TOP_K: Final = 3


def routed(
    num_rows: int, num_layers: int = NUM_LAYERS, top_k: int = TOP_K, start: int = 0
) -> Array:
    """int32 rows with value 100 * token + 10 * layer + expert, from token `start` on."""
    token, layer, expert = np.indices((num_rows, num_layers, top_k))
    return np.asarray(100 * (token + start) + 10 * layer + expert, np.int32)


def raw_base64(rows: Array) -> str:
    """SGLang's form: base64 of little-endian int32 without a header."""
    return base64.b64encode(np.ascontiguousarray(rows, "<i4").tobytes()).decode()


def npy_base64(rows: Array, dtype: str = "<i4") -> str:
    """vLLM's form: base64 of a .npy file."""
    file = io.BytesIO()
    np.save(file, rows.astype(dtype, order="K"), allow_pickle=False)
    return base64.b64encode(file.getvalue()).decode()


def routing_object(rows: Array, dtype: str = "int32", start: int | None = None) -> dict[str, Any]:
    """The self-describing form: base64 beside shape, dtype, and maybe the start row."""
    data = base64.b64encode(np.ascontiguousarray(rows, dtype).tobytes()).decode()
    form: dict[str, Any] = {"data": data, "shape": list(rows.shape), "dtype": dtype}
    return form if start is None else form | {"start": start}


FORMS: Final[dict[str, Callable[[Array], Any]]] = {
    "raw": raw_base64,
    "npy": npy_base64,
    "object": routing_object,
}


def meta_info(
    output: Sequence[Any], log_probs: Sequence[Any] | None = None, finish: Any = "stop", **keys: Any
) -> dict[str, Any]:
    """SGLang's meta_info of an output; further keys win, None leaves a key out."""
    values = [-0.5] * len(output) if log_probs is None else log_probs
    meta = {
        "finish_reason": {"type": finish},
        "output_token_logprobs": [
            [value, token, None] for value, token in zip(values, output, strict=True)
        ],
        "completion_tokens": len(output),
    }
    return {key: value for key, value in (meta | keys).items() if value is not None}


def sglang(
    prompt: Sequence[Any],
    output: Sequence[Any],
    log_probs: Sequence[Any] | None = None,
    *,
    start: int | None = None,
    finish: Any = "stop",
    messages: Any = None,
    **keys: Any,
) -> Record:
    """A turn of SGLang's chat with the caller's ids; keys go into meta_info."""
    meta = meta_info(output, log_probs, finish, **keys)
    request: dict[str, Any] = {"input_ids": [*prompt], "messages": messages or []}
    if start is not None:
        request["routed_experts_start_len"] = start
    message = {"role": "assistant", "content": "said"}
    return {
        "request": request,
        "response": {"choices": [{"message": message, "meta_info": meta}]},
    }


def sglang_generate(
    prompt: Sequence[Any],
    output: Sequence[Any],
    log_probs: Sequence[Any] | None = None,
    **keys: Any,
) -> Record:
    """A turn of SGLang's /generate; keys go into meta_info."""
    meta = meta_info(output, log_probs, **keys)
    return {
        "request": {"input_ids": [*prompt]},
        "response": {"text": "said", "output_ids": [*output], "meta_info": meta},
    }


def vllm(
    prompt: Sequence[Any],
    output: Sequence[Any],
    log_probs: Sequence[Any] | None = None,
    *,
    start: int | None = None,
    finish: Any = "stop",
    routed_experts: Any = None,
    cached_tokens: Any = None,
) -> Record:
    """A turn of vLLM's token-in endpoint."""
    values = [-0.5] * len(output) if log_probs is None else log_probs
    sampling = {} if start is None else {"routed_experts_prompt_start": start}
    choice = {
        "index": 0,
        "token_ids": [*output],
        "logprobs": {"content": [{"logprob": value} for value in values]},
        "finish_reason": finish,
        "routed_experts": routed_experts,
    }
    usage = {
        "prompt_tokens": len(prompt),
        "completion_tokens": len(output),
        "prompt_tokens_details": {"cached_tokens": cached_tokens},
    }
    return {
        "request": {"token_ids": [*prompt], "sampling_params": sampling},
        "response": {"choices": [choice], "usage": usage, "prompt_token_ids": [*prompt]},
    }


def vllm_chat(
    prompt: Sequence[Any],
    output: Sequence[Any],
    log_probs: Sequence[Any] | None = None,
    **keys: Any,
) -> Record:
    """A turn of vLLM's chat: the prompt's ids stand in the reply only."""
    record = vllm(prompt, output, log_probs, **keys)
    start = record["request"]["sampling_params"]
    record["request"] = {"messages": [{"role": "user", "content": "asked"}], **start}
    record["response"]["choices"][0]["message"] = {"role": "assistant", "content": "said"}
    return record


def as_bytes(record: Record) -> Record:
    """The record with its reply as the bytes that an engine sends."""
    return record | {"response": json.dumps(record["response"]).encode()}


AS_SENT: Final[dict[str, Callable[[Record], Record]]] = {"objects": dict, "bytes": as_bytes}
both_forms: Final = pytest.mark.parametrize("sent", AS_SENT.values(), ids=AS_SENT)


def assembled(records: Sequence[Any], **options: Any) -> AssemblyResult:
    """assemble with the plainest options; named ones win."""
    plain = {"accumulated_token_ids": None, "max_trim_tokens": 0, "decode_text": None}
    return assemble(records, **(plain | options))


def one(records: Sequence[Any], **options: Any) -> Sample:
    """The one sample of these records."""
    result = assembled(records, **options)
    assert result.empty_reason is None
    (sample,) = result.samples
    assert isinstance(sample, Sample)
    return sample


def refused(records: Sequence[Any], **options: Any) -> AssemblyError:
    """The error that assembling these records raises."""
    with pytest.raises(AssemblyError) as caught:
        assembled(records, **options)
    return caught.value


def spec(**options: Any) -> RoutingSpec:
    """A RoutingSpec of the shape that `routed` has."""
    return RoutingSpec(**({"num_layers": NUM_LAYERS, "top_k": TOP_K} | options))


def rows_in(sample: Any) -> Array:
    """A sample's routing rows as an int32 array."""
    assert sample.rollout_routed_experts is not None
    return np.asarray(sample.rollout_routed_experts)


def plain(value: Any) -> Any:
    """An array or rows in blocks as nested lists; any other value as it is."""
    return np.asarray(value).tolist() if hasattr(value, "__array__") else value


def spelled(ids: Sequence[int]) -> str:
    """A decoder whose text shows which ids were decoded together."""
    return f"<{','.join(map(str, ids))}>" if len(ids) else ""
