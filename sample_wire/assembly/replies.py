"""What an engine's reply says of one turn, read from its bytes or from recorded JSON.

SGLang answers chat with `choices[0].meta_info`, /generate with a top-level `meta_info`; vLLM
gives `choices[0].token_ids` beside OpenAI log-probs.  The three are told apart by those keys.
Nothing is guessed: what a sample needs and a reply lacks is an AssemblyError with the turn.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, cast

import msgspec
import numpy as np
import numpy.typing as npt

from ..errors import AssemblyError
from ..sample import PrefixCacheInfo, SpecInfo
from ._reply_types import (
    FROM_BYTES,
    FROM_OBJECTS,
    SPEC_COUNTS,
    FinishReason,
    LogProbs,
    Usage,
    decode_reply,
)

_NULL: Final = b"null"


@dataclass(frozen=True, slots=True)
class TurnReply:
    """What one reply says.

    Attributes:
        output_ids: int64 [O], the sampled ids.
        log_probs: float64 [O], nats; finite or -inf.
        prompt_ids: the ids that the engine saw, where the reply tells them.
        finish_reason: as the engine spelled it, or None.
        routing, indexer: the routing values, or None where absent.
        indexer_layers: layers of the indexer value.
        weight_version: or None.
        prefix_cache, spec: this turn's counters.
        e2e_latency: seconds, or None.
        message: the assistant's message, or None; of /generate one that holds its text.
        extras: what the caller asked for beside these.
    """

    output_ids: npt.NDArray[np.int64]
    log_probs: npt.NDArray[np.float64]
    prompt_ids: list[int] | None
    finish_reason: str | None
    routing: Any
    indexer: Any
    indexer_layers: int | None
    weight_version: str | None
    prefix_cache: PrefixCacheInfo
    spec: SpecInfo
    e2e_latency: float | None
    message: dict[str, Any] | None
    extras: dict[str, Any]


def read_reply(reply: object, *, turn: int, extras: Sequence[str] = ()) -> TurnReply:
    """Reads an engine's reply.

    Args:
        reply: the reply's bytes, or the JSON value they parsed to.
        turn: the number of the turn, for errors.
        extras: keys of meta_info that are wanted beside the known ones.

    Raises:
        AssemblyError: the reply is malformed, or lacks ids, log-probs or their counts.
    """
    typed, absent = _typed(reply, turn)
    choice = typed.choices[0] if typed.choices else None
    meta = typed.meta_info or (choice and choice.meta_info)
    if meta is not None:
        ids, log_probs = _sglang_outputs(typed, meta, turn)
    elif choice is not None and choice.token_ids is not None:
        ids, log_probs = _vllm_outputs(typed, choice, turn)
    else:
        raise AssemblyError(
            "the reply has neither meta_info nor token_ids: it does not tell its output ids",
            turn=turn,
            field="meta_info",
        )
    routing, indexer, layers = _routing_values(typed, choice, meta, absent)
    return TurnReply(
        output_ids=ids_array(ids, "output", turn),
        log_probs=_log_probs(log_probs, len(ids), turn),
        prompt_ids=_told_prompt(typed, choice),
        finish_reason=_finish_reason(choice, meta),
        routing=routing,
        indexer=indexer,
        indexer_layers=layers,
        weight_version=meta and meta.weight_version,
        prefix_cache=_prefix_cache(typed, meta),
        spec=_spec(meta),
        e2e_latency=_latency(meta, turn),
        message=_message(typed, choice),
        extras=_extras(reply, extras, turn) if extras else {},
    )


def _message(typed: Any, choice: Any) -> dict[str, Any] | None:
    if choice is not None or typed.text is None:
        return choice and cast(dict[str, Any] | None, choice.message)
    return {"role": "assistant", "content": typed.text}


def _told_prompt(typed: Any, choice: Any) -> list[int] | None:
    if typed.prompt_token_ids is not None or choice is None:
        return cast(list[int] | None, typed.prompt_token_ids)
    return cast(list[int] | None, choice.prompt_token_ids)


def prompt_ids(request: Mapping[str, Any], reply: TurnReply, turn: int) -> npt.NDArray[np.int64]:
    """The prompt's ids: from the request, or else from the reply.

    Raises:
        AssemblyError: neither tells them, or one is no integer.
    """
    found = request.get("input_ids")
    if found is None:
        found = request.get("token_ids")
    if found is None:
        found = reply.prompt_ids
    if found is None:
        raise AssemblyError(
            "no prompt ids: neither request.input_ids, request.token_ids nor the reply has them",
            turn=turn,
            field="input_ids",
        )
    return ids_array(found, "prompt", turn)


def merge_events(events: Sequence[Any], turn: int) -> dict[str, Any]:
    """One reply out of the events of a streamed one, as far as they tell ids.

    Raises:
        AssemblyError: a streamed chat, whose chunks have text but no ids.
    """
    try:
        return _merged_events([event for event in events if isinstance(event, dict)], turn)
    except (TypeError, AttributeError, KeyError):
        raise AssemblyError("the streamed reply is malformed", turn=turn) from None


def _merged_events(found: list[dict[str, Any]], turn: int) -> dict[str, Any]:
    if found and "meta_info" in found[-1]:
        return found[-1]  # SGLang's /generate repeats all with each event
    merged: dict[str, Any] = {}
    whole: dict[str, Any] = {"choices": [merged]}
    for event in found:
        whole.update({key: value for key, value in event.items() if value and key != "choices"})
        for choice in event.get("choices") or ():
            if type(choice.get("index", 0)) is not int:
                raise TypeError("index")
            if choice.get("index", 0) != 0:
                continue
            if "token_ids" not in choice:
                raise AssemblyError("a streamed chat does not tell its output ids", turn=turn)
            merged.setdefault("token_ids", []).extend(choice["token_ids"])
            content = (choice.get("logprobs") or {}).get("content") or ()
            merged.setdefault("logprobs", {"content": []})["content"].extend(content)
            for key in ("finish_reason", "routed_experts"):
                if choice.get(key) is not None:
                    merged[key] = choice[key]
    return whole


def _typed(reply: object, turn: int) -> tuple[Any, object]:
    try:
        if isinstance(reply, (bytes, bytearray, memoryview)):
            try:
                found = _first(decode_reply(reply))
                if found is None:
                    raise AssemblyError("the reply is an empty list", turn=turn)
                return found, FROM_BYTES.absent
            except msgspec.ValidationError:
                raise
            except msgspec.DecodeError:
                reply = json.loads(bytes(reply))  # NaN and -Infinity are no JSON, yet are sent
        return msgspec.convert(_first(reply), FROM_OBJECTS.reply), FROM_OBJECTS.absent
    except msgspec.ValidationError as error:
        raise _malformed(error, turn) from None
    except (ValueError, RecursionError):
        raise _not_json(turn) from None


def _not_json(turn: int) -> AssemblyError:
    return AssemblyError("the reply is not JSON", turn=turn)


def _malformed(error: msgspec.ValidationError, turn: int) -> AssemblyError:
    return AssemblyError(f"the reply is malformed: {error}", turn=turn)


def _first(reply: Any) -> Any:
    """The first of several replies; an empty list is none."""
    if isinstance(reply, list):
        return reply[0] if reply else None
    return reply


def _sglang_outputs(typed: Any, meta: Any, turn: int) -> tuple[list[Any], list[Any]]:
    entries = meta.output_token_logprobs
    if entries is None:
        raise AssemblyError(
            "the reply's meta_info has no output_token_logprobs",
            turn=turn,
            field="output_token_logprobs",
        )
    if not {*map(type, entries)} <= {list, tuple} or min(map(len, entries), default=2) < 2:
        raise AssemblyError("an entry of output_token_logprobs is no [logprob, id]", turn=turn)
    count = len(entries)
    if meta.completion_tokens is None:
        raise AssemblyError(
            "the reply's meta_info has no completion_tokens", turn=turn, field="completion_tokens"
        )
    _check_count("completion_tokens", meta.completion_tokens, count, turn)
    if typed.output_ids is not None:
        _check_count("output_ids", len(typed.output_ids), count, turn)
        if typed.output_ids != [entry[1] for entry in entries]:
            raise AssemblyError("output_ids are not those of output_token_logprobs", turn=turn)
    return [entry[1] for entry in entries], [entry[0] for entry in entries]


def _vllm_outputs(typed: Any, choice: Any, turn: int) -> tuple[list[Any], list[Any]]:
    content = _log_prob_entries(choice.logprobs, turn)
    if content is None:
        raise AssemblyError("the reply has no logprobs", turn=turn, field="logprobs")
    count = len(content)
    _check_count("token_ids", len(choice.token_ids), count, turn)
    if typed.usage is not None and typed.usage.completion_tokens is not None:
        _check_count("completion_tokens", typed.usage.completion_tokens, count, turn)
    return choice.token_ids, [entry.logprob for entry in content]


def _log_prob_entries(value: Any, turn: int) -> list[LogProbs.Entry] | None:
    """The entries of OpenAI's log-probs, or None where there are none."""
    try:
        if isinstance(value, msgspec.Raw):
            value = msgspec.json.decode(value) if bytes(value) else None
        return None if value is None else msgspec.convert(value, LogProbs).content
    except msgspec.ValidationError as error:
        raise _malformed(error, turn) from None
    except (ValueError, RecursionError):
        raise _not_json(turn) from None


def _check_count(name: str, found: int, log_probs: int, turn: int) -> None:
    if found != log_probs:
        raise AssemblyError(
            f"{name} counts {found}, there are {log_probs} log-probs",
            turn=turn,
            field=name,
            expected=str(found),
            got=str(log_probs),
        )


def ids_array(ids: object, what: str, turn: int | None) -> npt.NDArray[np.int64]:
    """A list of integers, or an integer array, as int64; none is below 0."""
    found = _int64(ids, what, turn)
    if found.size and found.min() < 0:
        raise AssemblyError(f"one of the {what} ids is below 0", turn=turn)
    return found


def _int64(ids: object, what: str, turn: int | None) -> npt.NDArray[np.int64]:
    if isinstance(ids, np.ndarray) and ids.dtype.kind == "i" and ids.ndim == 1:
        return ids.astype(np.int64, copy=False)
    if not isinstance(ids, (list, tuple)) or not {*map(type, ids)} <= {int}:
        raise AssemblyError(f"the {what} ids are no list of integers", turn=turn)
    try:
        return np.array(ids, np.int64)
    except OverflowError:
        raise AssemblyError(f"one of the {what} ids is beyond 64 bits", turn=turn) from None


def _log_probs(values: list[Any], count: int, turn: int) -> npt.NDArray[np.float64]:
    if {*map(type, values)} <= {float, int}:
        try:
            array = np.array(values, np.float64)
        except OverflowError:
            raise AssemblyError("a log-prob is beyond the range of a double", turn=turn) from None
        if (array < math.inf).all():
            return array
    index = next(i for i, v in enumerate(values) if type(v) not in (float, int) or not v < math.inf)
    raise AssemblyError(
        f"log-prob {index} of {count} is missing or no number",
        turn=turn,
        field="output_token_logprobs",
    )


def _routing_values(
    typed: Any, choice: Any, meta: Any, absent: object
) -> tuple[Any, Any, int | None]:
    holders = [holder for holder in (meta, choice, typed.sglext) if holder is not None]

    def first(name: str) -> Any:
        for holder in holders:
            value = getattr(holder, name, absent)
            if value is not absent and value is not None and not _is_null(value):
                return bytes_view(value)
        return None

    return first("routed_experts"), first("indexer_topk"), meta and meta.indexer_topk_num_layers


def bytes_view(value: Any) -> Any:
    """A raw JSON value as a view of the reply's bytes; any other value as it is."""
    return memoryview(value) if isinstance(value, msgspec.Raw) else value


def _is_null(value: Any) -> bool:
    return isinstance(value, msgspec.Raw) and bytes(memoryview(value)[:4]) == _NULL


def _finish_reason(choice: Any, meta: Any) -> str | None:
    reason = meta and meta.finish_reason
    if isinstance(reason, FinishReason):
        reason = reason.type
    return cast(str | None, reason or (choice and choice.finish_reason))


def _latency(meta: Any, turn: int) -> float | None:
    latency = meta and meta.e2e_latency
    if latency is not None and not math.isfinite(latency):
        raise AssemblyError("e2e_latency is no time in seconds", turn=turn, field="e2e_latency")
    return cast(float | None, latency)


def _prefix_cache(typed: Any, meta: Any) -> PrefixCacheInfo:
    if meta is not None:
        return PrefixCacheInfo(meta.cached_tokens or 0, meta.prompt_tokens or 0)
    usage = typed.usage or Usage()
    details = usage.prompt_tokens_details
    return PrefixCacheInfo((details and details.cached_tokens) or 0, usage.prompt_tokens or 0)


def _spec(meta: Any) -> SpecInfo:
    if meta is None:
        return SpecInfo()
    counts = {name: getattr(meta, name) or 0 for name in SPEC_COUNTS}
    return SpecInfo(**counts, completion_token_num=meta.completion_tokens)


def _extras(reply: object, names: Sequence[str], turn: int) -> dict[str, Any]:
    """Further keys of meta_info.  The reply was read already, but for the values of these."""
    meta = msgspec.defstruct("Extras", [(name, Any, None) for name in names])
    choice = msgspec.defstruct("Choice", [("meta_info", meta | None, None)])
    holder = msgspec.defstruct(
        "Reply",
        [("choices", list[choice] | None, None), ("meta_info", meta | None, None)],  # type: ignore[valid-type]  # made just now
    )
    try:
        found = _extras_holder(reply, holder)
    except (ValueError, RecursionError, msgspec.MsgspecError):
        raise _not_json(turn) from None
    source = found.meta_info or (found.choices and found.choices[0].meta_info)
    return {name: getattr(source, name) for name in names} if source else {}


def _extras_holder(reply: object, holder: Any) -> Any:
    if not isinstance(reply, (bytes, bytearray, memoryview)):
        return msgspec.convert(_first(reply), holder)
    try:
        return _first(msgspec.json.decode(reply, type=holder | list[holder]))
    except msgspec.DecodeError:
        return msgspec.convert(_first(json.loads(bytes(reply))), holder)
