"""What the demo prints of a rollout: a row for each session, the totals, and what they mean."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np

from .._report import printable, text_table
from ..assembly import RoutingSpec
from ..sample import Sample
from . import tools
from .episodes import Outcome
from .health import HealthWatch
from .inputs import input_samples
from .settings import StorySettings
from .two_ways import NUM_ROUNDS

_HEAD: Final = (
    *("", "turns", "tools", "tokens", "trained", "payload B", "records B", "ratio"),
    *("payload ms", "records ms", "ratio"),
)
_WAYS: Final = (
    "payload: POST samples, decode onto the input sample.  records: GET the session's records,",
    "parse them, assemble the sample here, by the server's own code.  Both over loopback, when the",
    f"agents were done, one session at a time, in turns; ms are medians of {NUM_ROUNDS}.",
)
_EQUAL: Final = (
    f"Both ways gave the same samples, bit for bit, in all {len(Sample.__sample_schema__.fields)} "
    "fields; what the trainer had put into",
    "its input samples (prompt, label, ...) came back as it was.",
)
_ROUTING_NOTE: Final = (
    "In the records each turn has the routing rows of all turns before it again, as SGLang sends",
    "them unless it is asked for new rows only, which is --incremental.",
)


def headline(settings: StorySettings) -> list[str]:
    """What is about to run."""
    return [
        "sample-wire demo: a rollout on this machine",
        *engine_lines(settings),
        "server   that of sample-wire serve, in a process of its own",
        f"agent    the openai client with {len(tools.described())} tools that compute, "
        f"in {len(input_samples())} sessions at the same time",
        "trainer  sample_wire.rollout.agentic.generate, one input sample for each session",
        "",
    ]


def engine_lines(settings: StorySettings) -> list[str]:
    """Which engine it runs with."""
    engine = settings.engine
    about = (
        [
            printable(settings.server.engine_url),
            *([] if settings.server.routing else ["without R3: --model-config gives its shape"]),
        ]
        if engine is None
        else [
            "embedded, stands in for SGLang: a mixture-of-experts model in numpy, random weights,",
            f"{engine.num_layers} layers, top-{engine.top_k} of {engine.num_experts} experts; "
            "its text is noise, its tool calls are forced by a grammar",
        ]
    )
    return [f"{name:9}{line}" for name, line in zip(("engine", ""), about, strict=False)]


class _Row(NamedTuple):
    num_turns: int
    num_tools: int
    num_tokens: int
    num_trained: int
    payload_bytes: int
    records_bytes: int
    payload_s: float
    records_s: float

    def cells(self, name: str) -> list[str]:
        return [
            name,
            *(f"{count:,}" for count in self[:6]),
            f"{self.records_bytes / self.payload_bytes:.2f}",
            f"{1e3 * self.payload_s:.2f}",
            f"{1e3 * self.records_s:.2f}",
            f"{self.records_s / self.payload_s:.2f}",
        ]


def report(
    outcomes: Sequence[Outcome], health: HealthWatch, routing: RoutingSpec | None
) -> list[str]:
    """The lines of the table, and of what is to be said about it."""
    rows = [_row(outcome) for outcome in outcomes]
    total = _Row._make(sum(column) for column in zip(*rows, strict=True))
    cells = [row.cells(str(index)) for index, row in enumerate(rows)]
    return [
        *text_table([_HEAD, *cells, total.cells("total")], left={0}),
        *_WAYS,
        *(_ROUTING_NOTE if routing is not None and not routing.incremental else ()),
        *_EQUAL,
        f"/health of the session server meanwhile: {health.num_asked} answers, "
        f"{health.num_failed} not 200, slowest {1e3 * health.slowest_s:.1f} ms",
    ]


def _row(outcome: Outcome) -> _Row:
    mask = outcome.sample.loss_mask
    return _Row(
        num_turns=outcome.both.num_turns,
        num_tools=outcome.num_tools,
        num_tokens=len(outcome.sample.tokens),
        num_trained=0 if mask is None else int(np.count_nonzero(mask)),
        payload_bytes=len(outcome.both.payload),
        records_bytes=outcome.both.records_bytes,
        payload_s=outcome.both.payload_s,
        records_s=outcome.both.records_s,
    )
