"""A script that prints what the library refuses; its output must not depend on `python -O`."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Annotated, Any

import numpy as np

from sample_wire import (
    Sample,
    decode_samples,
    detach,
    encode_samples,
    read_container,
    read_fields,
    strip_response,
    validate,
    write_container,
)


def routed(rows: int) -> Any:
    return np.zeros((rows, 1, 1), np.int32)


def sample(**fields: Any) -> Sample:
    consistent: dict[str, Any] = {"tokens": np.arange(3), "response_length": 2}
    return Sample(**(consistent | fields))


def define(annotation: Any) -> object:
    return type("Odd", (Sample,), {"__annotations__": {"foo": annotation}, "foo": None})


def altered(old: bytes, new: bytes) -> bytes:
    whole = bytes(encode_samples([sample(loss_mask=[1, 0])]))
    if old not in whole:
        raise LookupError(old)
    return whole.replace(old, new)


def template(**fields: Any) -> object:
    return decode_samples(altered(b"", b""), Sample(**fields))


REFUSALS: dict[str, Callable[[], object]] = {
    "wrap": lambda: encode_samples([sample(loss_mask=[1, 256])]),
    "fraction": lambda: encode_samples([sample(tokens=[0.5, 1, 2])]),
    "strict": lambda: encode_samples([sample(rollout_routed_experts=[[[1]], [[2]]])]),
    "rows": lambda: encode_samples([sample(rollout_routed_experts=routed(3))]),
    "null": lambda: encode_samples([sample(tokens=None)]),
    "length": lambda: encode_samples([sample(response_length=4)]),
    "negative": lambda: validate(sample(response_length=-1)),
    "validate": lambda: validate(sample(loss_mask=[1])),
    "strip": lambda: strip_response(sample(), 3, decode_text=str),
    "nan": lambda: encode_samples([sample(metadata={"a": float("nan")})]),
    "bytes": lambda: encode_samples([sample(metadata={"a": [b"x"]})]),
    "surrogate": lambda: encode_samples([sample(metadata={"a": "\ud800"})]),
    "status": lambda: encode_samples([sample(status="completed")]),
    "session": lambda: encode_samples([], {"a": {1, 2}}),
    "class": lambda: encode_samples([5]),
    "field-set": lambda: encode_samples([], field_set=9),
    "name": lambda: write_container({"__metadata__": np.zeros(1)}),
    "dtype": lambda: write_container({"a": np.zeros(1, object)}),
    "short": lambda: read_container(b"1234567"),
    "claim": lambda: read_container(b"\xff" * 8 + b"{}"),
    "header": lambda: read_container((3).to_bytes(8, "little") + b"{,}"),
    "no-buffer": lambda: read_container(5),
    "truncated": lambda: decode_samples(altered(b"", b"")[:-1], Sample()),
    "wire-status": lambda: decode_samples(altered(b'"pending"', b'"pendant"'), Sample()),
    "wire-length": lambda: decode_samples(altered(b'length":2', b'length":1'), Sample()),
    "wire-key": lambda: decode_samples(altered(b'"metadata"', b'"metadatA"'), Sample()),
    "wire-json": lambda: decode_samples(altered(b'"metadata":{}', b'"metadata":{]'), Sample()),
    "samples": lambda: decode_samples(altered(b"", b""), Sample(), max_samples=0),
    "depth": lambda: decode_samples(altered(b"", b""), Sample(), max_depth=2),
    "reward": lambda: decode_samples(altered(b"", b""), Sample(), field_set=2),
    "template": lambda: template(weight_versions=["1"]),
    "template-rows": lambda: template(teacher_log_probs=[1.0]),
    "template-metadata": lambda: template(metadata=[1]),
    "fields": lambda: read_fields(altered(b"", b""), ["nope"]),
    "detach": lambda: detach(sample(), "nope"),
    "owner": lambda: define(int),
    "bare": lambda: define(Annotated[int, Sample]),
    "nothing": lambda: encode_samples([sample()]).nbytes,
}


def main() -> None:
    print(f"debug: {__debug__}", file=sys.stderr)
    for name, refusal in REFUSALS.items():
        try:
            outcome = f"accepted: {refusal()}"
        except Exception as error:  # noqa: BLE001  # whatever is raised is what is compared
            outcome = f"{type(error).__name__}: {error} {vars(error)}"
        print(f"{name}: {outcome}")


if __name__ == "__main__":
    main()
