"""Sample classes that are not Sample: a subclass with fields of its own, and foreign ones."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from typing import Annotated, Any, Final

import msgspec
import numpy as np
import numpy.typing as npt
from hypothesis import strategies as st
from strategies import (
    MAX_TOKENS,
    float64_arrays,
    int64_arrays,
    json_objects,
    sample_fields,
    texts,
    uint8_arrays,
)

from sample_wire import Computed, Json, Ragged, Sample, Schema, Template, Tensor


class Tool(msgspec.Struct):
    """One tool call: a JSON record of the subclass."""

    name: str
    seconds: float | None = None


class WiderSample(Sample):
    """A subclass with one field for each codec."""

    values: Annotated[
        npt.NDArray[np.float32] | None,
        Computed(codec=Tensor("float32"), rows="response", merge="concat", fill=0.0, null="none"),
    ] = None
    tools: Annotated[list[Tool], Computed(codec=Json(), merge="extend")] = field(
        default_factory=list
    )
    top_ids: Annotated[
        list[list[int]] | None,
        Computed(codec=Ragged("int32"), rows="response", merge="concat", null="none"),
    ] = None
    note: Annotated[str | None, Template()] = None


class Ending(enum.Enum):
    """The status of a foreign class, with spellings of its own."""

    STOP = "stop"
    LENGTH = "length"


@dataclass
class ForeignSample:
    """A trainer's own dataclass: lists, no base class, no knowledge of this library."""

    tokens: list[int]
    num_response: int
    mask: list[int] | None = None
    log_probs: list[float] | None = None
    ending: Ending = Ending.STOP
    info: dict[str, Any] = field(default_factory=dict)
    label: object = None


class ForeignStruct(msgspec.Struct, frozen=True):
    """The same as a frozen msgspec Struct, with arrays."""

    tokens: npt.NDArray[np.int64]
    num_response: int
    mask: npt.NDArray[np.uint8] | None = None
    log_probs: npt.NDArray[np.float64] | None = None
    ending: Ending = Ending.STOP
    info: dict[str, Any] = {}
    label: object = None


@dataclass(frozen=True, slots=True)
class FrozenSample:
    """The same as a frozen dataclass with slots, with arrays."""

    tokens: npt.NDArray[np.int64]
    num_response: int
    mask: npt.NDArray[np.uint8] | None = None
    log_probs: npt.NDArray[np.float64] | None = None
    ending: Ending = Ending.STOP
    info: dict[str, Any] = field(default_factory=dict)
    label: object = None


_DECLARATIONS: Final[dict[str, Computed | Template]] = {
    "tokens": Computed(codec=Tensor("int64"), rows="tokens", sets="tokens", merge="last"),
    "num_response": Computed(codec=Json(), sets="response", merge="sum"),
    "mask": Computed(codec=Tensor("uint8"), rows="response", merge="concat", fill=0, null="none"),
    "log_probs": Computed(
        codec=Tensor("float64"), rows="response", merge="concat", fill=0.0, null="none"
    ),
    "ending": Computed(codec=Json(), merge="last"),
    "info": Computed(codec=Json(), merge="equal", overlay="update"),
    "label": Template(),
}
FOREIGN: Final[dict[type, Schema]] = {
    kind: Schema.of(kind, _DECLARATIONS) for kind in (ForeignSample, ForeignStruct, FrozenSample)
}


@st.composite
def wider_samples(draw: st.DrawFn) -> WiderSample:
    """Samples of the subclass."""
    fields = draw(sample_fields())
    size = fields["response_length"]
    bits = st.lists(st.integers(0, 2**32 - 1), min_size=size, max_size=size)
    int32s = st.lists(st.integers(-(2**31), 2**31 - 1), max_size=3)
    tools = st.builds(Tool, texts, st.none() | st.floats(allow_nan=False, allow_infinity=False))
    return WiderSample(
        **fields,
        values=draw(st.none() | bits.map(lambda found: np.array(found, np.uint32).view("f4"))),
        tools=draw(st.lists(tools, max_size=3)),
        top_ids=draw(st.none() | st.lists(int32s, min_size=size, max_size=size)),
    )


@st.composite
def foreign_samples(draw: st.DrawFn, kind: type) -> Any:
    """Samples of a foreign class, with lists where the class wants them."""
    num_tokens = draw(st.integers(0, MAX_TOKENS))
    num_response = draw(st.integers(0, num_tokens))
    tokens = draw(int64_arrays(num_tokens))
    mask = draw(st.none() | uint8_arrays(num_response))
    log_probs = draw(st.none() | float64_arrays(num_response))
    arrays: list[Any] = [tokens, mask, log_probs]
    if kind is ForeignSample:
        arrays = [None if array is None else array.tolist() for array in arrays]
    return kind(
        tokens=arrays[0],
        num_response=num_response,
        mask=arrays[1],
        log_probs=arrays[2],
        ending=draw(st.sampled_from(Ending)),
        info=draw(json_objects()),
    )


def blank(kind: type) -> Any:
    """An instance of a foreign class as a trainer's template."""
    return kind(tokens=[], num_response=0)
