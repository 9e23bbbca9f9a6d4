"""Sessions: what an agent said and an engine answered, as pure state.  No I/O, no locks."""

from .hooks import SampleHooks
from .linear import LinearTrajectory
from .matchers import MessageMatcher, matcher, prefix_length
from .registry import Session, SessionRegistry
from .requests import ChatRequest, normalise, parse_body, upstream_body
from .tokenizer import Message, TokenizerAdapter
from .trajectory import Collected, Mismatch, SampleOptions, Snapshot, Trajectory, TurnPlan
from .tree import TreeTrajectory

__all__ = [
    "ChatRequest",
    "Collected",
    "LinearTrajectory",
    "Message",
    "MessageMatcher",
    "Mismatch",
    "SampleHooks",
    "SampleOptions",
    "Session",
    "SessionRegistry",
    "Snapshot",
    "TokenizerAdapter",
    "Trajectory",
    "TreeTrajectory",
    "TurnPlan",
    "matcher",
    "normalise",
    "parse_body",
    "prefix_length",
    "upstream_body",
]
