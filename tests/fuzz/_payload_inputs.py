"""Random payloads for the fuzzer: good ones with their JSON, their tensors or their bytes bent.

Every choice comes from one seeded generator, so that a seed stands for its inputs.
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any, Final

from vectors._kit import NO_SPEC, Meaning, floats, ints, payload, reply, sample
from vectors._wire import (
    ITEM_BYTES,
    META,
    WireTensor,
    compact,
    container,
    entries,
    framed,
    meta_tensor,
    padded,
    tensors_of,
)

from ._compact_inputs import bend_compact, random_compact_payload
from ._container_inputs import mutated

_CONFORMANCE: Final = Path(__file__).parents[1] / "vectors" / "conformance"
_MAX_BASE_BYTES: Final = 4096
_NAMES: Final = (
    "tokens.0",
    "tokens.1",
    "loss_mask.0",
    "loss_mask.1",
    "rollout_log_probs.0",
    "rollout_routed_experts.0",
    "rollout_indexer_topk.0",
    "tokens.00",
    "tokens",
    "response.0",
    META,
    "x",
)
_KEYS: Final = (
    "samples",
    "session_metadata",
    "empty_reason",
    "format",
    "dtypes",
    "shared",
    "response",
    "response_length",
    "status",
    "weight_versions",
    "prefix_cache_info",
    "cached_tokens",
    "metadata",
    "spec_info",
    "spec_verify_ct",
    "reward",
    "nulls",
    "tokens",
    "group_index",
    "__class__",
    "",
)
_VALUES: Final[tuple[Any, ...]] = (
    None,
    True,
    False,
    0,
    1,
    -1,
    2,
    2**63 - 1,
    2**63,
    2**64,
    10**25,
    0.0,
    -0.0,
    1.0,
    1.5,
    1e300,
    "",
    "x",
    "completed",
    "tokens",
    "loss_mask",
    "rollout_indexer_topk",
    "\u4e2d\x00",
    [],
    ["7"],
    ["tokens"],
    ["loss_mask", "rollout_log_probs"],
    [["7"]],
    {},
    {"a": {"b": [1, None]}},
    {"cached_tokens": 1, "total_prompt_tokens": 2},
    NO_SPEC,
)
_TEXTS: Final = (
    ("}", ',"a":1,"a":2}'),
    ("{", '{"response":"x",'),
    ("{", '{"format":1,'),
    ("{", '{"format":2,'),
    (":", " : "),
    (",", ",\n\t"),
    (":0", ":-0"),
    (":0", ":NaN"),
    (":1", ":1e999"),
    (":1", ":1e-999"),
    (":1", ":1.0"),
    (":1", ":1E0"),
    (":1", ":01"),
    ('"', '"\\u0061'),
    ('"', '"\\ud800'),
    ('"', '"\x01'),
    ('"', '"\ufeff'),
    ("s", "\\u0073"),
    ("{}", '{"deep":' + "[" * 124 + "]" * 124 + "}"),
    ("{}", '{"deep":' + "[" * 125 + "]" * 125 + "}"),
    ("}", "}}"),
    ("]", ",]"),
)


class PayloadInputs:
    """Endless inputs of one seed; `next_input` gives the next."""

    def __init__(self, seed: int) -> None:
        self._rng = Random(seed)
        self._bases = [
            data
            for path in sorted(_CONFORMANCE.glob("[yi]_*.bin"))
            if len(data := path.read_bytes()) <= _MAX_BASE_BYTES and "container" not in path.name
        ]

    def next_input(self) -> bytes:
        """A payload, mostly not quite right."""
        rng = self._rng
        data = self._random_payload() if rng.random() < 0.3 else rng.choice(self._bases)
        kind = rng.random()
        if kind < 0.25:
            for _ in range(rng.choice((1, 1, 2, 4))):
                data = mutated(rng, data, rng.choice(self._bases))
            return data
        tensors = {item.name: item for item in tensors_of(data)}
        for _ in range(rng.choice((0, 1, 1, 1, 2, 3))):
            if rng.random() < 0.4:
                tensors[META] = meta_tensor(self._bent_text(tensors[META].data))
            elif b'"dtypes"' in tensors[META].data and rng.random() < 0.6:
                bend_compact(rng, tensors)
            else:
                self._bend_tensors(tensors)
            if META not in tensors or tensors[META].dtype != "U8":
                break
        return self._container(list(tensors.values()))

    def _container(self, tensors: list[WireTensor]) -> bytes:
        rng = self._rng
        if rng.random() < 0.7:
            return container(tensors)
        rng.shuffle(tensors)
        header = compact(dict(sorted(entries(tensors).items())))
        body = b"".join(item.data for item in tensors)
        return framed(padded(header) if rng.random() < 0.5 else header, body)

    def _random_payload(self) -> bytes:
        rng = self._rng
        samples = [self._random_sample() for _ in range(rng.choice((0, 1, 1, 2, 3)))]
        reason = rng.choice((None, None, "all_truncated"))
        session = rng.choice(({}, {"a": 1}, {"ids": [1, 2, 3]}))
        meaning = reply(*samples, session_metadata=session, empty_reason=reason)
        return random_compact_payload(rng, meaning) if rng.random() < 0.5 else payload(meaning)

    def _random_sample(self) -> Meaning:
        rng = self._rng
        num_tokens = rng.choice((0, 1, 2, 5, 9))
        num_response = rng.randint(0, num_tokens)
        shape = [max(num_tokens - 1, 0), rng.choice((1, 1, 2, 3)), rng.choice((1, 1, 2, 3))]
        low, high = rng.choice(((0, 255), (-1, 127), (-1, 300), (0, 300), (-(2**31), 2**31 - 1)))
        experts = ints("int32", shape, [rng.randint(low, high) for _ in range(math.prod(shape))])
        bits = [self._random_bits() for _ in range(num_response)]
        mask = ints("uint8", [num_response], [rng.randrange(256) for _ in range(num_response)])
        meaning = sample(
            tokens=ints("int64", [num_tokens], [rng.randrange(10**6) for _ in range(num_tokens)]),
            response_length=num_response,
            loss_mask=rng.choice((None, mask)),
            rollout_log_probs=rng.choice((None, floats(*bits))),
            rollout_routed_experts=rng.choice((None, experts)),
            rollout_indexer_topk=rng.choice((None, None, experts)),
            metadata=rng.choice(({}, {"a": None}, {"b": [1.5, {"c": "d"}]})),
        )
        if rng.random() < 0.3:
            meaning["reward"] = rng.choice((None, 0, 1.5, {"a": 1}))
        return meaning

    def _random_bits(self) -> str:
        """A float64, half of the time one that a float32 is."""
        rng = self._rng
        if rng.random() < 0.5:
            return struct.pack(">d", rng.randint(-(2**20), 2**20) / 64).hex()
        return f"{rng.getrandbits(64):016x}"

    def _bent_text(self, text: bytes) -> bytes:
        """The JSON with a value, a key or some text changed, if it is JSON still."""
        rng = self._rng
        if rng.random() < 0.3:
            old, new = rng.choice(_TEXTS)
            parts = text.decode("utf-8", "replace").split(old)
            at = rng.randrange(len(parts))
            changed = old.join(parts[: at + 1]) + new + old.join(parts[at + 1 :])
            return changed.encode("utf-8", "replace")
        try:
            document = json.loads(text)
        except ValueError:
            return text
        self._bend(document)
        return json.dumps(document, separators=(",", ":")).encode()

    def _bend(self, document: Any) -> None:
        """Changes one node of the document in place."""
        rng = self._rng
        nodes = _nodes(document)
        if not nodes:
            return
        parent = rng.choice(nodes)
        if isinstance(parent, dict):
            self._bend_object(parent)
        else:
            self._bend_array(parent)

    def _bend_object(self, parent: dict[str, Any]) -> None:
        rng = self._rng
        kind = rng.randrange(5)
        if kind == 0 or not parent:
            parent[rng.choice(_KEYS)] = rng.choice(_VALUES)
            return
        key = rng.choice(list(parent))
        if kind == 1:
            del parent[key]
        elif kind == 2:
            parent[rng.choice(_KEYS)] = parent.pop(key)
        elif kind == 3 and type(parent[key]) is int:
            parent[key] += rng.choice((-1, 1))
        else:
            parent[key] = rng.choice(_VALUES)

    def _bend_array(self, parent: list[Any]) -> None:
        rng = self._rng
        kind = rng.randrange(4)
        if kind == 0 or not parent:
            parent.insert(rng.randint(0, len(parent)), rng.choice(_VALUES))
            return
        at = rng.randrange(len(parent))
        if kind == 1:
            parent.append(json.loads(json.dumps(parent[at])))
        elif kind == 2:
            del parent[at]
        else:
            parent[at] = rng.choice(_VALUES)

    def _bend_tensors(self, tensors: dict[str, WireTensor]) -> None:
        """Changes one tensor, or two, in place."""
        rng = self._rng
        name = rng.choice(list(tensors))
        bend: Callable[[WireTensor], WireTensor] = rng.choice(
            (self._renamed, self._retyped, self._reshaped, self._resized, self._refilled)
        )
        kind = rng.randrange(6)
        if kind == 0:
            del tensors[name]
        elif kind == 1:
            copy = self._renamed(tensors[name])
            tensors[copy.name] = copy
        elif kind == 2:
            other = tensors[rng.choice(list(tensors))]
            one = tensors[name]
            tensors[name] = other._replace(name=name)
            tensors[other.name] = one._replace(name=other.name)
        else:
            changed = bend(tensors.pop(name))
            tensors[changed.name] = changed

    def _renamed(self, item: WireTensor) -> WireTensor:
        return item._replace(name=self._rng.choice(_NAMES))

    def _retyped(self, item: WireTensor) -> WireTensor:
        rng = self._rng
        dtype = rng.choice(list(ITEM_BYTES))
        size = math.prod(item.shape) * ITEM_BYTES[dtype]
        return item._replace(dtype=dtype, data=(item.data + bytes(size))[:size])

    def _reshaped(self, item: WireTensor) -> WireTensor:
        shape = list(item.shape)
        kind = self._rng.randrange(4)
        if kind == 0:
            shape.reverse()
        elif kind == 1:
            shape.insert(self._rng.randint(0, len(shape)), 1)
        elif kind == 2:
            shape = [math.prod(shape)]
        else:
            self._rng.shuffle(shape)
        return item._replace(shape=tuple(shape))

    def _resized(self, item: WireTensor) -> WireTensor:
        rng = self._rng
        if not item.shape:
            return item
        axis = rng.randrange(len(item.shape))
        length = rng.choice((0, item.shape[axis] + 1, max(item.shape[axis] - 1, 0)))
        shape = (*item.shape[:axis], length, *item.shape[axis + 1 :])
        size = math.prod(shape) * ITEM_BYTES[item.dtype]
        return item._replace(shape=shape, data=(item.data + bytes(size))[:size])

    def _refilled(self, item: WireTensor) -> WireTensor:
        if item.name == META:
            return item
        return item._replace(data=self._rng.randbytes(len(item.data)))


def _nodes(value: Any) -> list[dict[str, Any] | list[Any]]:
    """Every object and array in a JSON value."""
    if not isinstance(value, dict | list):
        return []
    inner = value.values() if isinstance(value, dict) else value
    return [value, *(node for item in inner for node in _nodes(item))]
