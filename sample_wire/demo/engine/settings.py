"""EngineSettings: the size of the embedded model, and how it behaves."""

from __future__ import annotations

from typing import Final

import msgspec

from ...assembly import RoutingSpec

_SIZES: Final = (
    "num_layers",
    "num_experts",
    "top_k",
    "hidden_size",
    "num_heads",
    "expert_size",
    "max_context",
    "mean_answer_tokens",
)


class EngineSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The size of the embedded model, and how it behaves.

    Args:
        model: the name it is listed under.
        seed: of the weights; also of the sampling of requests that bring no seed.
        num_layers: L, all with experts.
        num_experts, top_k: experts of a layer, and how many of them a token goes through.
        hidden_size, num_heads: of the attention; each head has hidden_size / num_heads columns.
        expert_size: columns inside an expert.
        max_context: tokens of a prompt and its output together.
        cache_tokens: tokens that the prefix cache keeps; 0 keeps none.
        min_tool_calls, max_tool_calls: how often a conversation with tools calls one before it
            is answered; for each conversation a number between them, both included.
        mean_answer_tokens: about how long answers are.
        weight_version: told with every reply.

    Raises:
        ValueError: sizes that do not fit together.
    """

    model: str = "tiny-moe"
    seed: int = 0
    num_layers: int = 4
    num_experts: int = 32
    top_k: int = 4
    hidden_size: int = 64
    num_heads: int = 4
    expert_size: int = 32
    max_context: int = 8192
    cache_tokens: int = 65536
    min_tool_calls: int = 2
    max_tool_calls: int = 4
    mean_answer_tokens: int = 100
    weight_version: str = "1"

    def __post_init__(self) -> None:
        for name in _SIZES:
            if getattr(self, name) < 1:
                raise ValueError(f"EngineSettings.{name} must be at least 1")
        for name in ("seed", "cache_tokens", "min_tool_calls"):
            if getattr(self, name) < 0:
                raise ValueError(f"EngineSettings.{name} must not be negative")
        if self.top_k > self.num_experts:
            raise ValueError("EngineSettings.top_k must be at most num_experts")
        if self.hidden_size % (2 * self.num_heads):
            # Rotary positions turn columns in pairs.
            raise ValueError("EngineSettings.hidden_size must be an even number for each head")
        if self.max_tool_calls < self.min_tool_calls:
            raise ValueError("EngineSettings.max_tool_calls must be at least min_tool_calls")

    def routing_spec(self, *, required: bool = True, incremental: bool = False) -> RoutingSpec:
        """What a session server is told of this model's routing arrays.

        Args:
            required, incremental: as for RoutingSpec.
        """
        return RoutingSpec(
            num_layers=self.num_layers,
            top_k=self.top_k,
            num_experts=self.num_experts,
            required=required,
            incremental=incremental,
        )
