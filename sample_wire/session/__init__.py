"""Sessions: what an agent said and an engine answered, as pure state.  No I/O, no locks."""

from ._cuts import ReplyBytes
from ._kept import EncodeBase64, standard_base64
from .engine_kind import EngineKind, SGLangChat
from .hooks import SampleHooks
from .linear import LinearTrajectory
from .matchers import MessageMatcher, matcher, prefix_length
from .registry import Session, SessionRegistry
from .requests import ChatRequest, normalise, parse_body, upstream_body
from .tokenizer import Message, TokenizerAdapter
from .trajectory import Collected, Mismatch, SampleOptions, Snapshot, Trajectory, TurnPlan
from .tree import TreeTrajectory
from .vllm import VLLMGenerate

__all__ = [
    "ChatRequest",
    "Collected",
    "EncodeBase64",
    "EngineKind",
    "LinearTrajectory",
    "Message",
    "MessageMatcher",
    "Mismatch",
    "ReplyBytes",
    "SGLangChat",
    "SampleHooks",
    "SampleOptions",
    "Session",
    "SessionRegistry",
    "Snapshot",
    "TokenizerAdapter",
    "Trajectory",
    "TreeTrajectory",
    "TurnPlan",
    "VLLMGenerate",
    "matcher",
    "normalise",
    "parse_body",
    "prefix_length",
    "standard_base64",
    "upstream_body",
]
