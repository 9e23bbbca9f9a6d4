"""Sample, its Status, and the two small counter records.

Shape letters: T tokens, R response tokens, L routed layers, K experts per token; Li and Ki
likewise for the indexer.
"""

from __future__ import annotations

import enum
from dataclasses import field
from typing import Annotated, Any, Final

import msgspec
import numpy as np
import numpy.typing as npt

from .schema import Computed, Json, SampleBase, Template, Tensor

MAX_COUNTER: Final = 2**63 - 1
Counter = Annotated[int, msgspec.Meta(ge=0, le=MAX_COUNTER)]


class Status(enum.Enum):
    """How a sample ended; the value is the spelling on the wire."""

    PENDING = "pending"
    COMPLETED = "completed"
    TRUNCATED = "truncated"
    ABORTED = "aborted"
    FAILED = "failed"


class PrefixCacheInfo(msgspec.Struct):
    """Prefix cache counters, summed over turns.  Source: SPEC section 5.2."""

    cached_tokens: Counter = 0
    total_prompt_tokens: Counter = 0


class SpecInfo(msgspec.Struct):
    """Speculative decoding counters, summed over turns.  Source: SPEC section 5.2."""

    spec_accept_token_num: Counter = 0
    spec_draft_token_num: Counter = 0
    spec_verify_ct: Counter = 0
    completion_token_num: Counter = 0


def _no_tokens() -> npt.NDArray[np.int64]:
    return np.empty(0, np.int64)


class Sample(SampleBase):
    """One training sample of one trajectory.

    Annotations say what decode gives.  For encode a tensor field may hold any array-like
    whose values the wire dtype holds exactly; the two replay arrays must be int32 arrays.

    Computed fields, made by the server:
        tokens: int64 [T], prompt and response ids.
        response: the text of the last R tokens, special tokens included.
        response_length: R.
        loss_mask: uint8 [R], 1 where the token is trained, or None.
        rollout_log_probs: float64 [R], nats, NaN and infinities allowed, or None.
        rollout_routed_experts: int32 [T-1, L, K], expert ids of each token but the last (R3),
            or None.
        rollout_indexer_topk: int32 [T-1, Li, Ki], or None.
        status: how the trajectory ended.
        weight_versions: one entry a turn, as the engine spelled it.
        prefix_cache_info: prefix cache counters.
        metadata: JSON; updates the template's, the server's keys win.
        spec_info: speculative decoding counters; left out of the wire while all zero.
        reward: crosses the wire from field set 2 on; None keeps the template's.

    Template fields, kept from the trainer's input sample: all others.

    Source: SPEC section 5.
    """

    tokens: Annotated[
        npt.NDArray[np.int64],
        Computed(codec=Tensor("int64"), rows="tokens", sets="tokens", merge="last", null="empty"),
    ] = field(default_factory=_no_tokens)
    response: Annotated[str, Computed(codec=Json(), merge="text")] = ""
    response_length: Annotated[Counter, Computed(codec=Json(), sets="response", merge="sum")] = 0
    loss_mask: Annotated[
        npt.NDArray[np.uint8] | None,
        Computed(codec=Tensor("uint8"), rows="response", merge="concat", fill=0, null="none"),
    ] = None
    rollout_log_probs: Annotated[
        npt.NDArray[np.float64] | None,
        Computed(codec=Tensor("float64"), rows="response", merge="concat", fill=0.0, null="none"),
    ] = None
    rollout_routed_experts: Annotated[
        npt.NDArray[np.int32] | None,
        Computed(
            codec=Tensor("int32", rank=3, strict=True, experts=True),
            rows="transitions",
            merge="last",
            null="none",
        ),
    ] = None
    rollout_indexer_topk: Annotated[
        npt.NDArray[np.int32] | None,
        Computed(
            codec=Tensor("int32", rank=3, strict=True),
            rows="transitions",
            merge="last",
            null="none",
        ),
    ] = None
    status: Annotated[Status, Computed(codec=Json(), merge="last")] = Status.PENDING
    weight_versions: Annotated[list[str], Computed(codec=Json(), merge="extend")] = field(
        default_factory=list
    )
    prefix_cache_info: Annotated[PrefixCacheInfo, Computed(codec=Json(), merge="sum")] = field(
        default_factory=PrefixCacheInfo
    )
    metadata: Annotated[
        dict[str, Any],
        Computed(
            codec=Json(),
            merge="equal",
            overlay="update",
            response_keys=("opd_student_top_logprobs",),
        ),
    ] = field(default_factory=dict)
    spec_info: Annotated[SpecInfo, Computed(codec=Json(), merge="sum", omit_default=True)] = field(
        default_factory=SpecInfo
    )
    reward: Annotated[
        int | float | dict[str, Any] | None,
        Computed(codec=Json(), merge="equal", null="template", since=2),
    ] = None

    group_index: Annotated[int | None, Template()] = None
    index: Annotated[int | None, Template()] = None
    rollout_id: Annotated[int | str | None, Template()] = None
    prompt: Annotated[str | list[dict[str, Any]], Template()] = ""
    multimodal_inputs: Annotated[dict[str, Any] | None, Template()] = None
    multimodal_train_inputs: Annotated[dict[str, Any] | None, Template()] = None
    label: Annotated[Any, Template()] = None
    remove_sample: Annotated[bool, Template()] = False
    teacher_log_probs: Annotated[Any, Template(rows="response")] = None
    opd_reverse_kl: Annotated[Any, Template(rows="response")] = None
    generate_function_path: Annotated[str | None, Template()] = None
    train_metadata: Annotated[dict[str, Any] | None, Template()] = None
    adapter: Annotated[Any, Template()] = None
    reward_spec: Annotated[Any, Template()] = None
    routing_key: Annotated[str | None, Template()] = None
    non_generation_time: Annotated[float, Template()] = 0.0
