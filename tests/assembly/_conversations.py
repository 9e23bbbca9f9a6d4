"""Random sessions of an engine: most of them sound, some with one fault in one turn.

Ids come from a small set, so that trims and prompts that part also meet by chance.

Shape letters: L routed layers, K experts per token.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
from hypothesis import strategies as st

from ._records import (
    Array,
    Record,
    as_bytes,
    npy_base64,
    raw_base64,
    routing_object,
    sglang,
    sglang_generate,
    spelled,
    vllm,
    vllm_chat,
)
from .slow_reading import Routing
from .slow_reference import Options

SHAPES: Final[dict[str, Callable[..., Record]]] = {
    "sglang": sglang,
    "sglang_generate": sglang_generate,
    "vllm": vllm,
    "vllm_chat": vllm_chat,
}
IDS: Final = (0, 1, 2, 3, 4, 151645, 2**31, 2**40)
REASONS: Final = ("stop",) * 10 + ("tool_calls", "length", "abort", None, "content_filter")
LOG_PROBS: Final = (-0.5, -12.924283981323242, 0.0, -0.0, -1, -float("inf"), -1e-300)
SPEC_KEYS: Final = ("spec_accept_token_num", "spec_draft_token_num", "spec_verify_ct")
SLOTS: Final = {"routed_experts_start_len": (), "routed_experts_prompt_start": ("sampling_params",)}


@dataclass
class Session:
    """Records with replies as Python objects, the same as they were sent, and how to assemble."""

    records: list[Record]
    sent: list[Record]
    options: Options


@dataclass
class Engine:
    """An engine that answers in one shape and one form of routing, and what it answered last.

    Attributes:
        tokens, num_output, rows, indexer: of the turn before; rows of every token but the last.
        is_broken: the routing of the turn that is made has a fault.
    """

    shape: str
    form: str
    dtype: str
    routing: Routing | None
    indexer_layers: int | None
    sends_routing: bool
    max_trim_tokens: int
    rng: random.Random
    tokens: list[int] = field(default_factory=list)
    num_output: int = 0
    rows: Array | None = None
    indexer: Array | None = None
    fault: str | None = None

    def record(self, prompt: list[int], output: list[int]) -> Record:
        """The record of a turn."""
        rng, shared = self.rng, _shared(self.tokens, prompt)
        reason = rng.choice(REASONS)
        keys: dict[str, Any] = {"finish": reason, "cached_tokens": rng.choice([None, 0, 3])}
        num_rows = max(len(prompt) + len(output) - 1, 0)
        start = None
        if self.sends_routing:
            start, keys["routed_experts"] = self._routing(shared, num_rows)
            if rng.random() < (0.5 if reason == "abort" else 0.04):
                keys["routed_experts"] = None
        if self.shape.startswith("sglang"):
            keys |= self._meta(shared, num_rows)
        log_probs = [rng.choice(LOG_PROBS) for _ in output]
        record = SHAPES[self.shape](prompt, output, log_probs, **keys)
        if start is not None and self.fault != "start_missing":
            key = rng.choice([*SLOTS])
            holder = record["request"]
            for name in SLOTS[key]:
                holder = holder.setdefault(name, {})
            holder[key] = start
        self.tokens, self.num_output = prompt + output, len(output)
        return record

    def _routing(self, shared: int, num_rows: int) -> tuple[int | None, Any]:
        """Where a turn's rows start, if it says so, and the rows from there on as a value."""
        assert self.routing is not None
        self.rows = self._continued(self.rows, shared, num_rows, self._experts)
        if not self.routing.incremental:
            return self.rng.choice([None, None, 0]), self._value(self.rows)
        covered = max(len(self.tokens) - 1, 0)
        dropped = len(self.tokens) - shared
        parts = dropped > min(self.max_trim_tokens, self.num_output)
        start = 0 if parts else covered
        start += {"start_late": 1, "start_early": -1}.get(self.fault or "", 0)
        start = max(start, 0)
        return start, self._value(self.rows[start:])

    def _continued(
        self,
        before: Array | None,
        shared: int,
        num_rows: int,
        make: Callable[[int], Array],
    ) -> Array:
        """Rows of a turn: those of the shared tokens stay, but for one now and then."""
        kept = make(0) if before is None else before[:shared].copy()
        kept = kept[:num_rows]
        incremental = self.routing is not None and self.routing.incremental
        if len(kept) and self.rng.random() < 0.2 and not (incremental and make == self._experts):
            kept[self.rng.randrange(len(kept))] = make(1)[0]
        return np.concatenate([kept, make(num_rows - len(kept))])

    def _experts(self, num_rows: int) -> Array:
        assert self.routing is not None
        high = min(self.routing.num_experts or 40000, np.iinfo(self.dtype).max + 1)
        shape = (num_rows, self.routing.num_layers, self.routing.top_k)
        found = _numbers(self.rng, shape, high)
        if num_rows and self.dtype.startswith("int") and self.rng.random() < 0.2:
            found[self.rng.randrange(num_rows) :] = -1
        return found

    def _indices(self, num_rows: int) -> Array:
        assert self.indexer_layers is not None
        return _numbers(self.rng, (num_rows, self.indexer_layers, 2), 2**31)

    def _value(self, rows: Array) -> Any:
        """Rows as this engine sends them, with the fault that is asked for."""
        if self.fault == "row_missing":
            rows = rows[:-1] if len(rows) else np.concatenate([rows, self._experts(1)])
        if self.fault == "row_too_many":
            rows = np.concatenate([rows, self._experts(1)])
        if self.form == "npy":
            return npy_base64(rows, np.dtype(self.dtype).str)
        return routing_object(rows, self.dtype) if self.form == "object" else raw_base64(rows)

    def _meta(self, shared: int, num_rows: int) -> dict[str, Any]:
        """What SGLang tells beside the output."""
        rng = self.rng
        meta: dict[str, Any] = {
            "weight_version": rng.choice([None, "7", "8", "v9"]),
            "prompt_tokens": rng.choice([None, 5]),
            "e2e_latency": rng.choice([None, 0.25, 2]),
            **{key: rng.choice([None, 0, 4]) for key in SPEC_KEYS},
        }
        if self.indexer_layers is not None:
            self.indexer = self._continued(self.indexer, shared, num_rows, self._indices)
            if rng.random() < 0.95:
                meta["indexer_topk"] = raw_base64(self.indexer)
                meta["indexer_topk_num_layers"] = self.indexer_layers
        return meta


def _numbers(rng: random.Random, shape: tuple[int, ...], high: int) -> Array:
    count = int(np.prod(shape))
    return np.array([rng.randrange(high) for _ in range(count)], np.int64).reshape(shape)


def _shared(before: list[int], prompt: list[int]) -> int:
    pairs = enumerate(zip(before, prompt, strict=False))
    return next((i for i, (a, b) in pairs if a != b), min(len(before), len(prompt)))


@st.composite
def engines(draw: st.DrawFn, mode: str) -> Engine:
    """An engine without routing, or with full or incremental routing."""
    shape = draw(st.sampled_from([*SHAPES]))
    form = draw(st.sampled_from(["raw", "npy", "object"]))
    dtypes = ["int32"] if form == "raw" else ["uint8", "uint16", "int32", "int8", "int16"]
    routing = None
    if mode != "none":
        routing = Routing(
            num_layers=draw(st.integers(1, 3)),
            top_k=draw(st.integers(1, 3)),
            num_experts=draw(st.sampled_from([None, 4, 200, 300])),
            required=draw(st.sampled_from([False, False, True])),
            incremental=mode == "incremental",
        )
    has_indexer = shape.startswith("sglang") and draw(st.booleans())
    return Engine(
        shape=shape,
        form=form,
        dtype=draw(st.sampled_from(dtypes)),
        routing=routing,
        indexer_layers=draw(st.integers(1, 2)) if has_indexer else None,
        sends_routing=mode != "none" and draw(st.sampled_from([True] * 5 + [False])),
        max_trim_tokens=draw(st.sampled_from([0, 0, 1, 2])),
        rng=random.Random(draw(st.integers(0, 2**32))),
    )


@st.composite
def sessions(draw: st.DrawFn, mode: str, *, fault: bool = False) -> Session:
    """A session of up to eight turns, and a way to assemble it.

    Args:
        mode: "none", "full" or "incremental" routing.
        fault: put one fault into one turn.
    """
    engine = draw(engines(mode))
    num_turns = draw(st.integers(1, 8))
    at = draw(st.integers(0, num_turns - 1)) if fault else None
    records = []
    for index in range(num_turns):
        prompt, output = draw(turn_ids(engine))
        kind = draw(st.sampled_from([*FAULTS, *ROUTING_FAULTS])) if index == at else None
        engine.fault = kind
        record = engine.record(prompt, output)
        if kind in FAULTS:
            FAULTS[kind](record)
        records.append(record)
    _stamp(records, engine.rng)
    options = draw(session_options(engine))
    sent = [as_bytes(record) if draw(st.booleans()) else record for record in records]
    return Session(records, sent, options)


@st.composite
def turn_ids(draw: st.DrawFn, engine: Engine) -> tuple[list[int], list[int]]:
    """Prompt and output of the next turn; the prompt mostly extends the tokens before it."""
    ids, before = st.sampled_from(IDS), engine.tokens
    output = draw(st.lists(ids, max_size=4))
    if not before or draw(st.integers(0, 24)) == 0:
        cut = draw(st.integers(0, len(before)))
        return before[:cut] + draw(st.lists(ids, min_size=1, max_size=5)), output
    dropped = draw(st.integers(0, min(engine.max_trim_tokens, engine.num_output)))
    least = 0 if draw(st.integers(0, 19)) == 0 else 1
    observed = draw(st.lists(ids, min_size=least, max_size=4))
    return before[: len(before) - dropped] + observed, output


@st.composite
def session_options(draw: st.DrawFn, engine: Engine) -> Options:
    """How to assemble; the accumulated ids are mostly those that the session ended with."""
    tokens = engine.tokens
    ended = st.sampled_from([None, None, tokens, tokens])
    accumulated = draw(altered(tokens) if draw(st.integers(0, 4)) == 0 else ended)
    limit = draw(st.none() | st.none() | st.integers(-1, len(tokens) + 2))
    return Options(
        accumulated=accumulated,
        max_trim_tokens=engine.max_trim_tokens,
        decode_text=draw(st.sampled_from([None, spelled])),
        max_seq_len=limit,
        routing=engine.routing,
        speculative=draw(st.booleans()),
        keep_messages=draw(st.booleans()),
        split=draw(st.booleans()),
    )


@st.composite
def altered(draw: st.DrawFn, tokens: list[int]) -> list[int]:
    """Ids with one changed, one less or one more."""
    at = draw(st.integers(0, len(tokens)))
    new = draw(st.lists(st.sampled_from(IDS), max_size=1))
    return tokens[:at] + new + tokens[at + draw(st.integers(0, 1)) :]


def _stamp(records: list[Record], rng: random.Random) -> None:
    """Times of commit and arrival, on every record, on none or on some."""
    chance = rng.choice([0.0, 0.5, 1.0])
    for index, record in enumerate(records):
        if rng.random() < chance:
            record["timestamp"] = 100.5 + 10 * index
        if rng.random() < chance:
            record["request_timestamp"] = 90 + 10 * index


def _meta_of(record: Record) -> dict[str, Any]:
    """The part of a reply that holds the log-probs: SGLang's meta_info, or vLLM's choice."""
    reply = record["response"]
    choice = (reply.get("choices") or [{}])[0]
    found: dict[str, Any] = reply.get("meta_info") or choice.get("meta_info") or choice
    return found


def _drop_prompt(record: Record) -> None:
    record["request"] = {"messages": []}
    record["response"].pop("prompt_token_ids", None)


def _text_prompt(record: Record) -> None:
    record["request"] = {"input_ids": "asked"}


def _float_id(record: Record) -> None:
    record["request"] = {"input_ids": [1.0]}


def _drop_log_probs(record: Record) -> None:
    meta = _meta_of(record)
    meta["output_token_logprobs"] = meta["logprobs"] = None


def _no_reply(record: Record) -> None:
    record["response"] = {"error": {"message": "too long"}}


def _add_log_prob(value: Any) -> Callable[[Record], None]:
    """One more output token, whose log-prob is this one."""

    def apply(record: Record) -> None:
        meta = _meta_of(record)
        if "token_ids" in meta:
            meta["token_ids"].append(1)
            meta["logprobs"]["content"].append({"logprob": value})
            record["response"]["usage"]["completion_tokens"] += 1
        else:
            meta["output_token_logprobs"].append([value, 1, None])
            meta["completion_tokens"] += 1
            record["response"].get("output_ids", []).append(1)

    return apply


def _count_wrong(record: Record) -> None:
    meta = _meta_of(record)
    if "token_ids" in meta:
        meta["token_ids"].append(1)
    else:
        meta["completion_tokens"] += 1


def _indexer_without_layers(record: Record) -> None:
    meta = _meta_of(record)
    meta["indexer_topk"], meta["indexer_topk_num_layers"] = "", None


FAULTS: Final[dict[str | None, Callable[[Record], None]]] = {
    "no_ids": _drop_prompt,
    "text_ids": _text_prompt,
    "float_id": _float_id,
    "no_log_probs": _drop_log_probs,
    "no_reply": _no_reply,
    "nan": _add_log_prob(float("nan")),
    "null": _add_log_prob(None),
    "text": _add_log_prob("-0.5"),
    "true": _add_log_prob(True),
    "positive_infinity": _add_log_prob(float("inf")),
    "count": _count_wrong,
    "indexer": _indexer_without_layers,
}
ROUTING_FAULTS: Final = (
    "row_missing",
    "row_too_many",
    "start_missing",
    "start_late",
    "start_early",
)
