"""A recorded session of vLLM's token-in, token-out endpoint, and the sample it makes.

A recording is {"turns": [{"request": ..., "response": ...}]}.  Each turn's prompt is the prompt
and output of the turn before plus the observation (a tool's answer), so nothing is tokenized
anew.  What does not fit together is refused with the turn and the key; nothing is filled in.

Shape letters: T tokens, R response tokens, L routed layers, K experts per token.
"""

from __future__ import annotations

import base64
import binascii
import itertools
import math
import re
from typing import Annotated, Final

import msgspec
import numpy as np
import numpy.typing as npt

from ..errors import SampleWireError
from ..sample import Counter, PrefixCacheInfo, Sample, Status

RoutedTLK = npt.NDArray[np.int32]

# A .npy file of version 1.0: magic, version, length of the header text, the text itself as
# numpy writes it.  Matched rather than evaluated: no pickle and no object dtype can come in.
_NPY_HEADER: Final = re.compile(
    rb"\x93NUMPY\x01\x00(..)"
    rb"(\{'descr': '(\|u1|<u2|<i4)', 'fortran_order': False, "
    rb"'shape': \((\d{1,18}), (\d{1,18}), (\d{1,18})\), \} *\n)",
    re.DOTALL,
)
_STATUS_OF_FINISH: Final = {
    "stop": Status.COMPLETED,
    "tool_calls": Status.COMPLETED,
    "length": Status.TRUNCATED,
    "abort": Status.ABORTED,
}


class RecordingError(SampleWireError, ValueError):
    """A recording of another shape, or one whose turns do not fit together."""

    http_status_hint = 422


class SamplingParams(msgspec.Struct):
    """Of the request's parameters, the first routing row that it asks for."""

    routed_experts_prompt_start: Counter = 0


class RequestBody(msgspec.Struct):
    """The whole prompt as token ids."""

    token_ids: Annotated[list[Counter], msgspec.Meta(min_length=1)]
    sampling_params: SamplingParams


class Request(msgspec.Struct):
    """One call, as the recorder saw it."""

    body: RequestBody


class TokenLogProb(msgspec.Struct):
    """The log-prob of one output token, in nats."""

    logprob: float


class LogProbs(msgspec.Struct):
    """One entry for each output token."""

    content: list[TokenLogProb]


class Choice(msgspec.Struct):
    """One output; routed_experts is base64 of a .npy file."""

    token_ids: list[Counter]
    logprobs: LogProbs
    finish_reason: str | None
    routed_experts: str | None = None


class PromptDetails(msgspec.Struct):
    """Of the prompt's tokens, how many came from the prefix cache."""

    cached_tokens: Counter | None = None


class Usage(msgspec.Struct):
    """The engine's token counts."""

    prompt_tokens: Counter
    prompt_tokens_details: PromptDetails | None = None


class ResponseBody(msgspec.Struct):
    """The engine's answer; only the first choice is used."""

    choices: Annotated[list[Choice], msgspec.Meta(min_length=1)]
    usage: Usage
    model: str


class Response(msgspec.Struct):
    """The answer to one call."""

    status: int
    body: ResponseBody


class Turn(msgspec.Struct):
    """One call and its answer."""

    request: Request
    response: Response

    @property
    def prompt(self) -> list[int]:
        """Token ids of the whole prompt."""
        return self.request.body.token_ids

    @property
    def choice(self) -> Choice:
        """The output that is used."""
        return self.response.body.choices[0]

    @property
    def first_row(self) -> int:
        """Position of the first token whose routing row was asked for."""
        return self.request.body.sampling_params.routed_experts_prompt_start


class Recording(msgspec.Struct):
    """A recorded session: one turn or more."""

    turns: Annotated[list[Turn], msgspec.Meta(min_length=1)]


def read_recording(text: bytes) -> Recording:
    """The recording in a JSON text; keys that are not needed are passed over.

    Raises:
        RecordingError: it is not JSON, or a key is missing or of another type.
    """
    try:
        return msgspec.json.decode(text, type=Recording)
    except msgspec.ValidationError as error:
        raise RecordingError(f"not a recording of this shape: {error}") from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise RecordingError("the recording is not JSON") from None


def build_sample(recording: Recording) -> Sample:
    """The one sample that a recording's turns make.

    The response begins after the first prompt.  Of it, the mask is 1 on sampled tokens and 0
    on the observation tokens between turns, whose log-probs are 0.0.  There is no tokenizer, so
    the response text is empty.

    Returns:
        A sample of arrays of its own: tokens [T], mask and log-probs [R], and R3 [T-1, L, K]
        as int32, or None if no turn has it.

    Raises:
        RecordingError: a turn does not continue the turns before it.
    """
    turns = recording.turns
    tokens: list[int] = []
    mask: list[int] = []
    log_probs: list[float] = []
    for index, turn in enumerate(turns):
        _check_turn(index, turn, tokens, is_last=index == len(turns) - 1)
        num_observed = len(turn.prompt) - len(tokens) if index else 0
        mask += [0] * num_observed + [1] * len(turn.choice.token_ids)
        log_probs += [0.0] * num_observed
        log_probs += [item.logprob for item in turn.choice.logprobs.content]
        tokens = turn.prompt + turn.choice.token_ids
    return Sample(
        tokens=np.array(tokens, np.int64),
        response_length=len(mask),
        loss_mask=np.array(mask, np.uint8),
        rollout_log_probs=np.array(log_probs, np.float64),
        rollout_routed_experts=_joined_routing(turns),
        status=_STATUS_OF_FINISH.get(turns[-1].choice.finish_reason or "", Status.PENDING),
        prefix_cache_info=_prefix_cache(turns),
        metadata={"finish_reasons": [turn.choice.finish_reason for turn in turns]},
    )


def _check_turn(index: int, turn: Turn, before: list[int], *, is_last: bool) -> None:
    """Refuses a turn that cannot follow the tokens of the turns before it."""
    if turn.response.status != 200:
        raise _turn_error(index, "response.status", f"is {turn.response.status}, not 200")
    if turn.prompt[: len(before)] != before:
        pairs = enumerate(itertools.zip_longest(before, turn.prompt))
        position = next(position for position, (held, new) in pairs if held != new)
        raise _turn_error(
            index,
            "request.body.token_ids",
            f"does not extend the turns before it: first difference at position {position}",
        )
    num_outputs, num_log_probs = len(turn.choice.token_ids), len(turn.choice.logprobs.content)
    if num_log_probs != num_outputs:
        raise _turn_error(
            index,
            "response.body.choices[0].logprobs.content",
            f"has {num_log_probs} entries for {num_outputs} output tokens",
        )
    reason = turn.choice.finish_reason or ""
    if not is_last and _STATUS_OF_FINISH.get(reason) is not Status.COMPLETED:
        raise _turn_error(
            index, "response.body.choices[0].finish_reason", "ends the session, yet a turn follows"
        )


def _prefix_cache(turns: list[Turn]) -> PrefixCacheInfo:
    info = PrefixCacheInfo()
    for turn in turns:
        usage = turn.response.body.usage
        details = usage.prompt_tokens_details
        info.total_prompt_tokens += usage.prompt_tokens
        info.cached_tokens += (details.cached_tokens if details else None) or 0
    return info


def _joined_routing(turns: list[Turn]) -> RoutedTLK | None:
    """Every token's row but the last one's, each from the turn that sent it first."""
    if all(turn.choice.routed_experts is None for turn in turns):
        return None
    parts: list[RoutedTLK] = []
    num_held = 0
    for index, turn in enumerate(turns):
        rows = _turn_routing(index, turn, num_held)
        if rows.shape[1:] != (parts or [rows])[0].shape[1:]:
            raise _routing_error(index, "has other layers or experts per token than before")
        parts.append(rows)
        num_held += len(rows)
    return np.concatenate(parts)


def _turn_routing(index: int, turn: Turn, num_held: int) -> RoutedTLK:
    """The rows that a turn adds to those held; it sends just them, or all from row 0 on."""
    if turn.choice.routed_experts is None:
        raise _routing_error(index, "is missing, though other turns have it")
    start = turn.first_row
    if start not in (0, num_held):
        fault, count = "gap" if start > num_held else "overlap", abs(start - num_held)
        raise _routing_error(
            index,
            f"starts at row {start}, {num_held} rows are held: "
            f"{fault} of {count} {'row' if count == 1 else 'rows'}",
        )
    try:
        rows = read_npy(base64.b64decode(turn.choice.routed_experts, validate=True))
    except binascii.Error:
        raise _routing_error(index, "is not base64") from None
    except ValueError as error:
        raise _routing_error(index, str(error)) from None
    num_tokens = len(turn.prompt) + len(turn.choice.token_ids)
    if len(rows) != num_tokens - 1 - start:
        raise _routing_error(
            index,
            f"has {len(rows)} rows, {num_tokens} tokens from row {start} on need "
            f"{num_tokens - 1 - start}",
        )
    return rows[num_held - start :]


def read_npy(data: bytes) -> RoutedTLK:
    """The array of a .npy file as int32 [rows, L, K]; a copy.

    Raises:
        ValueError: not a .npy file of version 1.0 that holds uint8, uint16 or int32 in C order
            in three axes, or one that is cut or goes on after the array.
    """
    found = _NPY_HEADER.match(data)
    if found is None:
        raise ValueError("is no .npy file of three axes of uint8, uint16 or int32 in C order")
    if int.from_bytes(found[1], "little") != len(found[2]):
        raise ValueError("is a .npy file with a wrong header length")
    dtype = np.dtype(found[3].decode())
    shape = [int(found[axis]) for axis in (4, 5, 6)]
    num_bytes = len(data) - found.end()
    if math.prod(shape) * dtype.itemsize != num_bytes:
        raise ValueError(f"is a .npy file of shape {shape} with {num_bytes} bytes of data")
    return np.frombuffer(data, dtype, offset=found.end()).reshape(shape).astype(np.int32)


def _turn_error(index: int, key: str, rule: str) -> RecordingError:
    return RecordingError(f"turns[{index}].{key} {rule}", field=key)


def _routing_error(index: int, rule: str) -> RecordingError:
    return _turn_error(index, "response.body.choices[0].routed_experts", rule)
