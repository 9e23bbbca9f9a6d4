"""A recorded session of vLLM's token-in, token-out endpoint, and the sample it makes.

A recording is {"turns": [{"request": ..., "response": ...}]}.  Each turn's prompt is the prompt
and output of the turn before plus the observation (a tool's answer), so nothing is tokenized
anew.  Here its shape is checked; that its turns fit together is for `assemble` to say.

Shape letters: L routed layers, K experts per token.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from ..assembly import RoutingSpec, assemble
from ..assembly.routing import read_rows, strict_base64
from ..errors import SampleWireError
from ..sample import Counter, Sample


class RecordingError(SampleWireError, ValueError):
    """A recording of another shape, or one whose session ends before its last turn."""

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

    status: Literal[200]
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

    There is no tokenizer, so the response text is empty.

    Returns:
        A sample whose R3 is RowBlocks, as `assemble` gives it, or None if no turn has it.

    Raises:
        AssemblyError: a turn does not continue the turns before it.
        RecordingError: a turn that ends the session is not the last one, or the routing is no
            .npy file.
    """
    result = assemble(
        msgspec.to_builtins(recording.turns),
        accumulated_token_ids=None,
        max_trim_tokens=0,
        decode_text=None,
        routing=_routing_spec(recording.turns),
    )
    sample: Sample = result.samples[0]
    if "dropped_turns" in sample.metadata:
        num_kept = len(recording.turns) - sample.metadata["dropped_turns"]["count"]
        raise RecordingError(
            f"turns[{num_kept - 1}].response.body.choices[0].finish_reason ends the session, yet "
            "a turn follows",
            field="finish_reason",
        )
    return sample


def _routing_spec(turns: list[Turn]) -> RoutingSpec | None:
    """The routing of a recording: L and K as its first .npy file says; None if there is none.

    Its turns send either just their new rows, or all rows from row 0 on.
    """
    for index, turn in enumerate(turns):
        if turn.choice.routed_experts is None:
            continue
        num_rows = len(turn.prompt) + len(turn.choice.token_ids) - 1 - turn.first_row
        try:
            rows = read_rows(
                turn.choice.routed_experts,
                max(num_rows, 0),
                num_layers=None,
                top_k=None,
                decode_base64=strict_base64,
            )
            return RoutingSpec(
                num_layers=rows.row_shape[0],
                top_k=rows.row_shape[1],
                required=True,
                incremental=any(turn.first_row for turn in turns),
            )
        except ValueError as error:
            key = f"turns[{index}].response.body.choices[0].routed_experts"
            raise RecordingError(f"{key} {error}", field="routed_experts") from None
    return None
