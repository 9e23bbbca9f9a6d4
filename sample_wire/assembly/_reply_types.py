"""The typed forms of engine replies: what is read of them, and of which types.

There are two of each form, which differ in how a routing value is kept: as a span of the
reply's bytes, or as the Python object of recorded JSON.
"""

from __future__ import annotations

from typing import Annotated, Any, Final, NamedTuple

import msgspec

from ..sample import Counter

ABSENT: Final = msgspec.Raw(b"")


NumLayers = Annotated[int, msgspec.Meta(ge=1, le=2**16)]


class FinishReason(msgspec.Struct):
    """SGLang's spelling of a finish reason; others give the text alone."""

    type: str | None = None


class Usage(msgspec.Struct):
    """OpenAI's token counts."""

    class Details(msgspec.Struct):
        cached_tokens: Counter | None = None

    prompt_tokens: Counter | None = None
    completion_tokens: Counter | None = None
    prompt_tokens_details: Details | None = None


class LogProbs(msgspec.Struct):
    """OpenAI's log-probabilities."""

    class Entry(msgspec.Struct):
        logprob: float | None = None

    content: list[Entry] | None = None


class ReplyTypes(NamedTuple):
    """The typed form of a reply, with routing values as raw JSON or as Python objects."""

    reply: type[Any]
    absent: object


def _reply_types(value: Any, absent: Any) -> ReplyTypes:
    """Builds the Structs; they differ in how a value that may be large is kept.

    Kept as raw bytes it is a span of the reply: no string of 130 MB is made.
    """
    routing = [("routed_experts", value, absent), ("indexer_topk", value, absent)]
    optional_int = Counter | None
    meta = msgspec.defstruct(
        "MetaInfo",
        [
            ("output_token_logprobs", list[Any] | None, None),
            *((name, optional_int, None) for name in _META_COUNTS),
            ("indexer_topk_num_layers", NumLayers | None, None),
            ("weight_version", str | None, None),
            ("finish_reason", str | FinishReason | None, None),
            ("e2e_latency", float | None, None),
            *routing,
        ],
    )
    choice = msgspec.defstruct(
        "Choice",
        [
            ("message", dict[str, Any] | None, None),
            ("finish_reason", str | None, None),
            ("meta_info", meta | None, None),
            ("logprobs", value, absent),  # LogProbs, where they are needed: there are many
            ("token_ids", list[int] | None, None),
            ("prompt_token_ids", list[int] | None, None),
            ("routed_experts", value, absent),
        ],
    )
    sglext = msgspec.defstruct("SglExt", routing)
    reply = msgspec.defstruct(
        "Reply",
        [
            ("choices", list[choice] | None, None),  # type: ignore[valid-type]  # made just now
            ("meta_info", meta | None, None),
            ("text", str | None, None),
            ("output_ids", list[int] | None, None),
            ("prompt_token_ids", list[int] | None, None),
            ("usage", Usage | None, None),
            ("sglext", sglext | None, None),
        ],
    )
    return ReplyTypes(reply, absent)


SPEC_COUNTS: Final = ("spec_accept_token_num", "spec_draft_token_num", "spec_verify_ct")
_META_COUNTS: Final = ("completion_tokens", "prompt_tokens", "cached_tokens", *SPEC_COUNTS)
FROM_BYTES: Final = _reply_types(msgspec.Raw, ABSENT)
FROM_OBJECTS: Final = _reply_types(Any, None)
# A /generate call for several samples answers with a list, of which the first is used.
decode_reply: Final = msgspec.json.Decoder(FROM_BYTES.reply | list[FROM_BYTES.reply]).decode  # type: ignore[name-defined]  # a type made at run time
