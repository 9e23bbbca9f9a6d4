"""The hooks of the library: a tree's samples without retries, each completion trained once.

They read the session's metadata, as an operator's own hooks do, and may be called from those.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from ..overlay import independent

# Of a sample's metadata; whatever an agent says under these names is left out.
SERVER_KEYS: Final = ("accumulated_token_ids", "tito_session_mismatch", "leaf", "dropped_turns")


def drop_retries(samples: list[Any], session_metadata: dict[str, Any]) -> list[Any]:
    """The pick: samples whose last turn was not tried again, the longest paths first.

    A turn was tried again where its parent has a newer child.  First turns have no parent, so
    they are all kept.
    """
    newest = {node["parent"]: node["id"] for node in session_metadata["tree"]["nodes"]}
    kept = [
        sample
        for sample in samples
        if (leaf := sample.metadata["leaf"])["parent"] is None
        or newest[leaf["parent"]] == leaf["node_id"]
    ]
    return sorted(kept, key=_depth, reverse=True)


def train_once(samples: list[Any], session_metadata: dict[str, Any]) -> list[Any]:
    """The post-process: masks for what other samples train, and what the agent has to say.

    A completion on several paths is trained in the sample of the earliest leaf.  The agent's
    object updates every sample's metadata but for the server's keys, and its `reward`, if any,
    is every sample's.

    Raises:
        ValueError: the reward is no number and no object.
    """
    owners: dict[int, int] = {}
    for sample in samples:
        leaf = sample.metadata["leaf"]
        for node_id in leaf["path_node_ids"]:
            owners[node_id] = min(owners.get(node_id, leaf["node_id"]), leaf["node_id"])
    spans = {node["id"]: node["completion_span"] for node in session_metadata["tree"]["nodes"]}
    agent = session_metadata.get("agent") or {}
    reward = _reward(agent)
    for sample in samples:
        _untrain(sample, spans, owners)
        sample.metadata = _told(sample.metadata, agent)
        if reward is not None:
            sample.reward = independent(reward, copy_arrays=False)
    return samples


def _depth(sample: Any) -> tuple[int, int]:
    leaf = sample.metadata["leaf"]
    return len(leaf["path_node_ids"]), leaf["node_id"]


def _untrain(sample: Any, spans: Mapping[int, list[int]], owners: Mapping[int, int]) -> None:
    """Sets the mask to 0 over the completions that another leaf owns."""
    leaf = sample.metadata["leaf"]
    num_prompt = len(sample.tokens) - sample.response_length
    for node_id in leaf["path_node_ids"]:
        if owners[node_id] != leaf["node_id"]:
            start, stop = (max(place - num_prompt, 0) for place in spans[node_id])
            sample.loss_mask[start:stop] = 0


def _told(metadata: Mapping[str, Any], agent: Mapping[str, Any]) -> dict[str, Any]:
    given = {key: value for key, value in agent.items() if key not in SERVER_KEYS}
    told: dict[str, Any] = {**metadata, **independent(given, copy_arrays=False)}
    return told


def _reward(agent: Mapping[str, Any]) -> Any:
    """What the agent gives the trajectory; 0 counts, None is none."""
    reward = agent.get("reward")
    if isinstance(reward, bool) or not isinstance(reward, (int, float, dict, type(None))):
        raise ValueError(
            f"the agent's reward is a {type(reward).__name__}, not a number or an object"
        )
    return reward
