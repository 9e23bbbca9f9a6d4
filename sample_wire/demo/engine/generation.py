"""What an engine generates, and what serves it: any engine that generates in this form."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

import numpy as np
import numpy.typing as npt

from .grammar import StructuralTag
from .sampling import SamplingParams
from .settings import ModelSettings

FinishReason = dict[str, Any]

ABORT: Final[FinishReason] = {
    "type": "abort",
    "message": "Aborted",
    "status_code": None,
    "err_type": None,
}


class RoutingRows(Protocol):
    """Routing rows [N, L, K] of any integer dtype: an array, or what makes them on demand."""

    def __len__(self) -> int: ...

    def __getitem__(self, places: slice, /) -> npt.NDArray[Any]: ...


@dataclass(slots=True)
class Generation:
    """One output.

    Attributes:
        prompt: the prompt's ids.
        ids, log_probs: the output's ids, the one that stopped it included, and their log-probs
            in nats.
        finish_reason: as SGLang's meta_info has it.
        num_cached: prompt tokens that came from the prefix cache.
        routed_NLK: [prompt + output - 1, L, K]: the experts of all tokens but the last,
            which never went through the model.
        started, first_token, ended: times in seconds since the epoch.
    """

    prompt: list[int]
    ids: list[int] = field(default_factory=list)
    log_probs: list[float] = field(default_factory=list)
    finish_reason: FinishReason = field(default_factory=dict)
    num_cached: int = 0
    routed_NLK: RoutingRows = field(default_factory=lambda: np.empty((0, 0, 0), np.int32))
    started: float = 0.0
    first_token: float = 0.0
    ended: float = 0.0


class Generates(Protocol):
    """An engine, as it is served; its methods may be called from several threads."""

    @property
    def settings(self) -> ModelSettings:
        """What it was told."""

    def running(self, rid: str) -> contextlib.AbstractContextManager[threading.Event]:
        """As Running.running."""

    def abort(self, rid: str) -> None:
        """As Running.abort."""

    def abort_all(self) -> None:
        """As Running.abort_all."""

    def generate(
        self,
        prompt: Sequence[int],
        params: SamplingParams,
        tag: StructuralTag | None,
        aborted: threading.Event,
        number: int = 0,
    ) -> Generation:
        """As Engine.generate."""
