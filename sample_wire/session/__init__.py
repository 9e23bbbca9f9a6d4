"""Sessions: what an agent said and an engine answered, as pure state.  No I/O, no locks."""

from ._cuts import ReplyBytes
from ._kept import EncodeBase64, standard_base64
from .linear import LinearTrajectory, Snapshot, TurnPlan
from .matchers import MessageMatcher, matcher, prefix_length
from .registry import Session, SessionRegistry
from .requests import ChatRequest, encode_upstream, normalise, parse_body, upstream_body
from .tokenizer import Message, TokenizerAdapter

__all__ = [
    "ChatRequest",
    "EncodeBase64",
    "LinearTrajectory",
    "Message",
    "MessageMatcher",
    "ReplyBytes",
    "Session",
    "SessionRegistry",
    "Snapshot",
    "TokenizerAdapter",
    "TurnPlan",
    "encode_upstream",
    "matcher",
    "normalise",
    "parse_body",
    "prefix_length",
    "standard_base64",
    "upstream_body",
]
