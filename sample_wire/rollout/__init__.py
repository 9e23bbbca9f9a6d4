"""Rollout: one input sample in, the samples of its trajectory out; and filters of groups.

`agentic.generate` lets an agent of the user's talk to a session server, `multi_turn.generate`
holds the conversation itself.  Both take a GenerateInput and give a GenerateOutput, and the
same conversation with the same engine gives the same sample by either way.

    given = GenerateInput(sample=sample, sampling_params={"max_new_tokens": 512})
    sessions = functools.partial(SessionClient, "http://10.0.0.7:30500")
    output = await agentic.generate(given, sessions=sessions, agent=my_agent)

Nothing here does I/O: sessions, engines, tools and agents are passed in.
"""

from . import agentic, multi_turn
from .filters import (
    DropCounter,
    FilterResult,
    Group,
    call_filter,
    flatten,
    no_aborted,
    nonzero_std,
)
from .types import GenerateInput, GenerateOutput, TrainerOptions

__all__ = [
    "DropCounter",
    "FilterResult",
    "GenerateInput",
    "GenerateOutput",
    "Group",
    "TrainerOptions",
    "agentic",
    "call_filter",
    "flatten",
    "multi_turn",
    "no_aborted",
    "nonzero_std",
]
