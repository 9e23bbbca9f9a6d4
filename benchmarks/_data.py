"""Seeded samples of the three shapes that the benchmarks measure.

S is a short chat without R3, M a medium one with R3, P the production shape: a session of 50
turns whose response is 60 % of 103,000 tokens.  Everything is made once a process and shared:
change none of it.

Shape letters: T tokens, R response tokens, L routed layers, K experts per token.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any, Final, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from sample_wire import PrefixCacheInfo, Sample, Status

SEED: Final = 20260
NUM_EXPERTS: Final = 256
VOCABULARY: Final = 151_936
_LINE_WORDS: Final = 14
_WORDS: Final = (
    *("the", "model", "then", "reads", "file", "and", "runs", "tests", "because", "of", "an"),
    *("error", "in", "line", "two", "so", "we", "try", "again", "with", "other", "arguments"),
    *("let", "me", "check", "what", "it", "returns", "first"),
)
_NO_ESCAPES: Final = str.maketrans('"\n', "  ")

ShapeName = Literal["S", "M", "P"]
Form = Literal["arrays", "lists"]


class Shape(NamedTuple):
    """Sizes of one sample: T, R, L and K as above, turns, and characters of response text."""

    T: int
    R: int
    L: int
    K: int
    num_turns: int
    num_chars: int


SHAPES: Final[dict[ShapeName, Shape]] = {
    "S": Shape(T=512, R=307, L=0, K=0, num_turns=3, num_chars=1_240),
    "M": Shape(T=8_192, R=4_915, L=25, K=10, num_turns=8, num_chars=20_000),
    "P": Shape(T=103_000, R=61_800, L=25, K=10, num_turns=50, num_chars=250_000),
}
FORMS: Final[tuple[Form, ...]] = ("arrays", "lists")


@cache
def sample_of(name: ShapeName, form: Form) -> Sample:
    """The sample of a shape, its one-row-a-token fields as arrays or as lists.

    R3 is an int32 array in both forms: it has no other.
    """
    fields = dict(_fields(name))
    if form == "lists":
        for field in ("tokens", "loss_mask", "rollout_log_probs"):
            fields[field] = fields[field].tolist()
    return Sample(**fields)


def plain_text(sample: Sample) -> Sample:
    """The same sample with nothing in its response that JSON has to escape."""
    return replace(sample, response=sample.response.translate(_NO_ESCAPES))


def template() -> Sample:
    """A trainer's input sample: a prompt of three messages and a few fields of its own."""
    return Sample(
        prompt=[
            {"role": "system", "content": "You fix bugs. " * 40},
            {"role": "user", "content": "The test of the parser fails. " * 20},
            {"role": "assistant", "content": "I look at it."},
        ],
        group_index=17,
        index=4,
        label="expected answer",
        metadata={"task": "parser-17", "difficulty": 0.25, "tags": ["bug", "python"]},
    )


@cache
def accumulated_ids(name: ShapeName) -> dict[str, Any]:
    """The session metadata of a server that adds the ids of the whole session, T of them."""
    return {
        "tito_session_mismatch": [],
        "accumulated_token_ids": _fields(name)["tokens"].tolist(),
        "max_trim_tokens": 0,
    }


@cache
def _fields(name: ShapeName) -> dict[str, Any]:
    shape = SHAPES[name]
    rng = np.random.default_rng(SEED)
    mask = _mask(rng, shape)
    # Engines compute log-probabilities in float32; an observation token has none.
    log_probs = np.where(mask, -rng.exponential(0.4, shape.R).astype(np.float32), 0.0)
    return {
        "tokens": rng.integers(0, VOCABULARY, shape.T),
        "response": _text(rng, shape.num_chars),
        "response_length": shape.R,
        "loss_mask": mask,
        "rollout_log_probs": log_probs.astype(np.float64),
        "rollout_routed_experts": _routed_experts(rng, shape) if shape.L else None,
        "status": Status.COMPLETED,
        "weight_versions": [f"step-{turn // 10}" for turn in range(shape.num_turns)],
        "prefix_cache_info": PrefixCacheInfo(shape.T - shape.R, shape.T),
        "metadata": {"turns": shape.num_turns, "stop": "end"},
    }


def _mask(rng: np.random.Generator, shape: Shape) -> npt.NDArray[np.uint8]:
    """[R]; one run of ones a turn, with a run of zeros between two turns."""
    num_runs = 2 * shape.num_turns - 1
    cuts = np.sort(rng.choice(np.arange(1, shape.R), num_runs - 1, replace=False))
    lengths = np.diff(np.concatenate(([0], cuts, [shape.R])))
    return np.repeat((np.arange(num_runs) % 2 == 0).astype(np.uint8), lengths)


def _routed_experts(rng: np.random.Generator, shape: Shape) -> npt.NDArray[np.int32]:
    """[T-1, L, K]; the K experts of a cell differ, since an odd step visits all 256 in turn."""
    cells = (shape.T - 1, shape.L, 1)
    first = rng.integers(0, NUM_EXPERTS, cells, dtype=np.int32)
    step = rng.integers(0, NUM_EXPERTS // 2, cells, dtype=np.int32) * 2 + 1
    routed_TLK = np.asarray(step * np.arange(shape.K, dtype=np.int32), np.int32)
    routed_TLK += first
    routed_TLK %= NUM_EXPERTS
    return routed_TLK


def _text(rng: np.random.Generator, num_chars: int) -> str:
    """ASCII words in lines, with the quotes and line ends that JSON has to escape."""
    words = np.array(_WORDS)[rng.integers(0, len(_WORDS), num_chars // 3)].tolist()
    lines = [
        f'{" ".join(words[start : start + _LINE_WORDS - 1])} "{words[start]}"'
        for start in range(0, len(words), _LINE_WORDS)
    ]
    return "\n".join(lines)[:num_chars]
