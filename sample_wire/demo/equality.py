"""Whether a sample that was received is, bit for bit, what was sent over the trainer's own."""

from __future__ import annotations

import numpy as np

from ..blocks import RowBlocks
from ..sample import Sample
from ..schema import Computed


def differences(
    sent: Sample, received: Sample, template: Sample, *, field_set: int = 1
) -> list[str]:
    """Names of the fields that are not what they must be; empty if all is well.

    A computed field must be the one that was sent, metadata the template's updated with it, and
    every other field the template's.
    """
    return [
        field.name
        for field in Sample.__sample_schema__.fields
        if not _same(
            getattr(received, field.name),
            _expected(field.name, field.owner, sent, template, field_set),
        )
    ]


def _expected(name: str, owner: object, sent: Sample, template: Sample, field_set: int) -> object:
    if not isinstance(owner, Computed) or owner.since > field_set:
        return getattr(template, name)
    if owner.overlay == "update":
        return {**getattr(template, name), **getattr(sent, name)}
    return getattr(sent, name)


def _same(one: object, other: object) -> bool:
    """Equal and of one type; for arrays, the same dtype, shape and bytes.

    R3 is sent as RowBlocks, whose array is what must be received.
    """
    if isinstance(one, np.ndarray) and isinstance(other, RowBlocks):
        other = np.asarray(other)
    if isinstance(one, np.ndarray) and isinstance(other, np.ndarray):
        facts = [(array.dtype, array.shape, array.tobytes()) for array in (one, other)]
        return facts[0] == facts[1]
    return type(one) is type(other) and bool(one == other)
