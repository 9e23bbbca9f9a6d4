"""What an embedded engine is told: the size of its model, and how it behaves."""

from __future__ import annotations

import msgspec

from ...assembly import RoutingSpec


class ModelSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What every embedded engine is told of the model that it is taken for.

    Args:
        model: the name it is listed under.
        seed: of all that is random; also of the outputs of requests that bring no seed.
        num_layers: L, all with experts.
        num_experts, top_k: experts of a layer, and how many of them a token goes through.
        max_context: tokens of a prompt and its output together.
        weight_version: told with every reply.

    Raises:
        ValueError: sizes that do not fit together.
    """

    model: str
    seed: int = 0
    num_layers: int
    num_experts: int
    top_k: int
    max_context: int
    weight_version: str = "1"

    def __post_init__(self) -> None:
        self._check_sizes("num_layers", "num_experts", "top_k", "max_context")
        self._check_counts("seed")
        if self.top_k > self.num_experts:
            raise ValueError(f"{type(self).__name__}.top_k must be at most num_experts")

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

    def _check_sizes(self, *names: str) -> None:
        for name in names:
            if getattr(self, name) < 1:
                raise ValueError(f"{type(self).__name__}.{name} must be at least 1")

    def _check_counts(self, *names: str) -> None:
        for name in names:
            if getattr(self, name) < 0:
                raise ValueError(f"{type(self).__name__}.{name} must not be negative")


class EngineSettings(ModelSettings, frozen=True, kw_only=True):
    """The size of the embedded model, and how it behaves.

    Args:
        hidden_size, num_heads: of the attention; each head has hidden_size / num_heads columns.
        expert_size: columns inside an expert.
        cache_tokens: tokens that the prefix cache keeps; 0 keeps none.
        min_tool_calls, max_tool_calls: how often a conversation with tools calls one before it
            is answered; for each conversation a number between them, both included.
        mean_answer_tokens: about how long answers are.
        model, seed, num_layers, num_experts, top_k, max_context, weight_version: as for
            ModelSettings; the weights are of the seed.

    Raises:
        ValueError: sizes that do not fit together.
    """

    model: str = "tiny-moe"
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

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check_sizes("hidden_size", "num_heads", "expert_size", "mean_answer_tokens")
        self._check_counts("cache_tokens", "min_tool_calls")
        if self.hidden_size % (2 * self.num_heads):
            # Rotary positions turn columns in pairs.
            raise ValueError("EngineSettings.hidden_size must be an even number for each head")
        if self.max_tool_calls < self.min_tool_calls:
            raise ValueError("EngineSettings.max_tool_calls must be at least min_tool_calls")


class ReplaySettings(ModelSettings, frozen=True, kw_only=True):
    """The size of what the replay mode answers with; the defaults are the production shape's.

    Args:
        turn_tokens: a conversation's tokens are a multiple of this after every turn: an output
            is as long as that takes.
        model, seed, num_layers, num_experts, top_k, max_context, weight_version: as for
            ModelSettings.

    Raises:
        ValueError: sizes that do not fit together.
    """

    model: str = "replay"
    num_layers: int = 25
    num_experts: int = 256
    top_k: int = 10
    max_context: int = 1 << 20
    turn_tokens: int = 2060

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check_sizes("turn_tokens")
