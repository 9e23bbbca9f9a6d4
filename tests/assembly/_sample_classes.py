"""Sample classes with fields of their own: a subclass, and a foreign dataclass with its schema."""

from __future__ import annotations

import dataclasses
import enum
from typing import Annotated, Any

import msgspec
import numpy as np
import numpy.typing as npt

from sample_wire import Computed, Json, Ragged, Sample, Schema, Template, Tensor

Array = npt.NDArray[Any]


class Usage(msgspec.Struct):
    """Counters that are summed."""

    calls: int = 0
    seconds: float = 0.0


def longest(first: str, second: str) -> str:
    """A merge function: the longer of two texts."""
    return max(first, second, key=len)


class RichSample(Sample):
    """A subclass whose fields take their values from meta_info under their own names."""

    entropy: Annotated[
        npt.NDArray[np.float32] | None,
        Computed(codec=Tensor("float32"), rows="response", merge="concat", fill=-1.0, null="none"),
    ] = None
    ranks: Annotated[
        npt.NDArray[np.int16],
        Computed(codec=Tensor("int16"), rows="response", merge="concat", fill=7),
    ] = dataclasses.field(default_factory=lambda: np.empty(0, np.int16))
    pairs: Annotated[
        npt.NDArray[np.float64] | None,
        Computed(
            codec=Tensor("float64", rank=2),
            rows="response",
            merge="concat",
            fill=0.0,
            null="none",
        ),
    ] = None
    top_ids: Annotated[
        list[npt.NDArray[np.int64]] | None,
        Computed(codec=Ragged("int64"), rows="response", merge="concat", null="none"),
    ] = None
    segments: Annotated[
        npt.NDArray[np.int32] | None,
        Computed(codec=Tensor("int32"), rows="tokens", merge="last", null="none"),
    ] = None
    steps: Annotated[
        npt.NDArray[np.int32] | None,
        Computed(codec=Tensor("int32"), rows="transitions", merge="last", null="none"),
    ] = None
    tools: Annotated[list[str], Computed(codec=Json(), merge="extend")] = dataclasses.field(
        default_factory=list
    )
    motto: Annotated[str | None, Computed(codec=Json(), merge=longest)] = None
    cost: Annotated[float | None, Computed(codec=Json(), merge="sum")] = None
    model: Annotated[str | None, Computed(codec=Json(), merge="equal")] = None
    usage: Annotated[Usage, Computed(codec=Json(), merge="sum")] = dataclasses.field(
        default_factory=Usage
    )
    facts: Annotated[dict[str, Any], Computed(codec=Json(), merge="last", overlay="update")] = (
        dataclasses.field(default_factory=dict)
    )
    histogram: Annotated[
        npt.NDArray[np.int64] | None, Computed(codec=Tensor("int64"), merge="sum", null="none")
    ] = None
    note: Annotated[str | None, Template()] = None


RICH_SCHEMA = RichSample.__sample_schema__


class TheirStatus(enum.Enum):
    """Another system's own spelling of the same statuses."""

    PENDING = "pending"
    COMPLETED = "completed"
    TRUNCATED = "truncated"
    ABORTED = "aborted"
    FAILED = "failed"


@dataclasses.dataclass
class TheirCache:
    """Another system's own counters."""

    cached_tokens: int = 0
    total_prompt_tokens: int = 0


@dataclasses.dataclass
class TheirSample:
    """A class that knows nothing of this library and wants lists."""

    tokens: list[int] = dataclasses.field(default_factory=list)
    response: str = ""
    response_length: int = 0
    loss_mask: list[int] | None = None
    rollout_log_probs: list[float] | None = None
    rollout_routed_experts: Array | None = None
    status: TheirStatus = TheirStatus.PENDING
    weight_versions: list[str] = dataclasses.field(default_factory=list)
    prefix_cache_info: TheirCache = dataclasses.field(default_factory=TheirCache)
    metadata: dict[str, Any] = dataclasses.field(default_factory=dict)
    entropy: list[float] | None = None
    top_ids: list[list[int]] | None = None
    calls: TheirCache = dataclasses.field(default_factory=TheirCache)
    label: str | None = None


THEIR_SCHEMA = Schema.of(
    TheirSample,
    {
        "tokens": Computed(
            codec=Tensor("int64"), rows="tokens", sets="tokens", merge="last", null="empty"
        ),
        "response": Computed(codec=Json(), merge="text"),
        "response_length": Computed(codec=Json(), sets="response", merge="sum"),
        "loss_mask": Computed(
            codec=Tensor("uint8"), rows="response", merge="concat", fill=0, null="none"
        ),
        "rollout_log_probs": Computed(
            codec=Tensor("float64"), rows="response", merge="concat", fill=0.0, null="none"
        ),
        "rollout_routed_experts": Computed(
            codec=Tensor("int32", rank=3, strict=True),
            rows="transitions",
            merge="last",
            null="none",
        ),
        "status": Computed(codec=Json(), merge="last"),
        "weight_versions": Computed(codec=Json(), merge="extend"),
        "prefix_cache_info": Computed(codec=Json(), merge="sum"),
        "metadata": Computed(codec=Json(), merge="equal", overlay="update"),
        "entropy": Computed(
            codec=Tensor("float32"), rows="response", merge="concat", fill=0.0, null="none"
        ),
        "top_ids": Computed(codec=Ragged("int32"), rows="response", merge="concat", null="none"),
        "calls": Computed(codec=Json(), merge="sum"),
        "label": Template(),
    },
)
