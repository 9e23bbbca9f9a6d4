"""Random payloads of format 2 for the fuzzer, and bends of what only they have."""

from __future__ import annotations

import json
import struct
from random import Random
from typing import Any, Final

from vectors._compact import compact_payload, field_of, narrowed
from vectors._kit import Meaning, wire_tensors
from vectors._wire import ITEM_BYTES, META, WireTensor, meta_tensor
from vectors.independent_decoder import DTYPES, NARROWER

_ROUTED: Final = ("rollout_routed_experts", "rollout_indexer_topk")
_FIELDS: Final = ("tokens", "loss_mask", "rollout_log_probs", *_ROUTED)
_NUMPY_NAMES: Final = [numpy for _, _, numpy in DTYPES.values()]
_NUMBERS: Final[tuple[Any, ...]] = (0, 1, 2, 3, 4, -1, True, 1.0, None, "0", 2**63 - 1, 2**63)


def random_compact_payload(rng: Random, meaning: Meaning) -> bytes:
    """A right payload of a reply, with stored dtypes and shared rows of any choice."""
    shared = {
        name: pair
        for field in _ROUTED
        for name, pair in _shared(rng, field, meaning["samples"]).items()
    }
    items = wire_tensors(meaning["samples"])
    stored = {}
    for field in {field_of(item.name) for item in items}:
        of_field = [item for item in items if field_of(item.name) == field]
        if rng.random() < 0.3:
            stored[field] = rng.choice(_holding(of_field))
    return compact_payload(meaning, stored=stored, shared=shared)


def _shared(rng: Random, field: str, samples: list[Meaning]) -> dict[str, list[int]]:
    """Some first rows of some samples, to be an earlier one's whatever they were."""
    found: dict[str, list[int]] = {}
    for index, sample in enumerate(samples):
        earlier = rng.randrange(index) if index else 0
        mine, other = sample[field], samples[earlier][field]
        if not index or mine is None or other is None or mine["shape"][1:] != other["shape"][1:]:
            continue
        most = min(mine["shape"][0], other["shape"][0])
        if most and rng.random() < 0.7:
            found[f"{field}.{index}"] = [earlier, rng.randint(1, most)]
    return found


def _holding(items: list[WireTensor]) -> list[str]:
    """The dtypes that all tensors of a field may be stored in, the logical one among them."""
    logical = items[0].dtype
    return [logical, *(dtype for dtype in NARROWER.get(logical, ()) if _all_fit(items, dtype))]


def _all_fit(items: list[WireTensor], dtype: str) -> bool:
    try:
        for item in items:
            narrowed(item, dtype)
    except (OverflowError, struct.error):
        return False
    return True


def bend_compact(rng: Random, tensors: dict[str, WireTensor]) -> None:
    """Changes what format 2 adds to a payload, in place, if its document is JSON still."""
    try:
        document = json.loads(tensors[META].data)
    except ValueError:
        return
    if not isinstance(document, dict):
        return
    rng.choice((_bend_format, _bend_dtypes, _bend_shared, _bend_shared, _bend_stored))(
        rng, document, tensors
    )
    tensors[META] = meta_tensor(json.dumps(document, separators=(",", ":")).encode())


def _bend_format(rng: Random, document: dict[str, Any], _: dict[str, WireTensor]) -> None:
    document["format"] = rng.choice((1, 2, 2, 3, 0, True, 2.0, "2", None))


def _bend_dtypes(rng: Random, document: dict[str, Any], tensors: dict[str, WireTensor]) -> None:
    """Another logical dtype, a name more, a name less, or a tensor and its name renamed."""
    dtypes = document.get("dtypes")
    names = [name for name in tensors if name != META]
    if not isinstance(dtypes, dict) or not names:
        document["dtypes"] = {name: rng.choice(_NUMPY_NAMES) for name in names}
        return
    name, kind = rng.choice(names), rng.randrange(4)
    if kind == 0:
        dtypes[name] = rng.choice((*_NUMPY_NAMES, *_NUMPY_NAMES, "I64", "", 8, None))
    elif kind == 1:
        dtypes.pop(name, None)
    elif kind == 2:
        dtypes[_any_name(rng)] = rng.choice(_NUMPY_NAMES)
    else:
        other = _any_name(rng)
        tensors[other] = tensors.pop(name)._replace(name=other)
        dtypes[other] = dtypes.pop(name, "int64")


def _bend_shared(rng: Random, document: dict[str, Any], _: dict[str, WireTensor]) -> None:
    """Another pair, one number of a pair by one, a name less, or rows moved to another name."""
    shared = document.setdefault("shared", {})
    if not isinstance(shared, dict):
        return
    pairs = [pair for pair in shared.values() if isinstance(pair, list) and len(pair) == 2]
    kind = rng.randrange(5)
    if kind == 0 or not pairs:
        shared[_any_name(rng)] = [rng.choice(_NUMBERS), rng.choice(_NUMBERS)]
    elif kind == 1:
        del shared[rng.choice(list(shared))]
    elif kind == 2:
        shared[_any_name(rng)] = shared.pop(rng.choice(list(shared)))
    else:
        pair, at = rng.choice(pairs), rng.randrange(2)
        pair[at] = pair[at] + rng.choice((-1, 1)) if type(pair[at]) is int else 0


def _bend_stored(rng: Random, _: dict[str, Any], tensors: dict[str, WireTensor]) -> None:
    """The same number of items in another dtype, of random bits."""
    name = rng.choice(list(tensors))
    if name == META:
        return
    item, dtype = tensors[name], rng.choice(list(ITEM_BYTES))
    num_items = len(item.data) // ITEM_BYTES[item.dtype]
    data = rng.randbytes(num_items * ITEM_BYTES[dtype])
    tensors[name] = item._replace(dtype=dtype, data=data)


def _any_name(rng: Random) -> str:
    return f"{rng.choice(_FIELDS)}.{rng.choice((0, 0, 1, 1, 2, 3, '00', ''))}"
