"""The row ledger equals a list of full arrays, whatever is appended, changed or rolled back."""

from __future__ import annotations

from unittest import mock

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from sample_wire.assembly import RowLedger, ledger
from sample_wire.blocks import RowBlocks

from ._records import Array

RANGES = ((0, 4), (0, 256), (-1, 4), (0, 65536), (-1, 30000), (-(2**31), 2**31))
DTYPES = ("int32", "int64", "uint8", "int8", "uint16", "int16")


def random_rows(draw: st.DrawFn, num_rows: int, shape: tuple[int, ...]) -> Array:
    """Rows of one of the ranges, in a dtype that holds it."""
    low, high = draw(st.sampled_from(RANGES))
    dtypes = [
        name for name in DTYPES if np.iinfo(name).min <= low and high - 1 <= np.iinfo(name).max
    ]
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    return rng.integers(low, high, (num_rows, *shape)).astype(draw(st.sampled_from(dtypes)))


def cut_up(draw: st.DrawFn, rows: Array) -> list[Array]:
    """The rows in chunks, some of them empty."""
    cuts = sorted(draw(st.lists(st.integers(0, len(rows)), max_size=3)))
    return np.split(rows, cuts)


def resent(draw: st.DrawFn, full: Array, shape: tuple[int, ...]) -> Array:
    """A turn's rows sent again: fewer of them, some changed, and new ones after."""
    kept = full[: draw(st.integers(0, len(full)) | st.just(len(full)))].astype(np.int64)
    for at in draw(st.lists(st.integers(0, max(len(kept) - 1, 0)), max_size=6)):
        if len(kept):
            kept[at] = random_rows(draw, 1, shape)[0]
    if len(kept) and draw(st.booleans()):
        every = draw(st.integers(2, 4))
        kept[::every] = random_rows(draw, len(kept[::every]), shape)
    return np.concatenate([kept, random_rows(draw, draw(st.integers(0, 30)), shape)])


@st.composite
def histories(draw: st.DrawFn, shape: tuple[int, ...]) -> list[tuple[RowBlocks, Array]]:
    """Versions of a session's rows, each beside the array that it must equal."""
    rows = RowLedger(shape)
    versions = [(rows.empty(), np.empty((0, *shape), np.int64))]
    for _ in range(draw(st.integers(1, 8))):
        held, full = versions[draw(st.integers(0, len(versions) - 1))]
        start = 0
        if draw(st.booleans()):
            start = draw(st.integers(0, len(full)))
            sent = random_rows(draw, draw(st.integers(0, 40)), shape)
        else:
            sent = resent(draw, full, shape)
        made = rows.extend(held, start, cut_up(draw, sent))
        versions.append((made, np.concatenate([full[:start], sent])))
        if draw(st.integers(0, 3)) == 0:
            versions.pop(draw(st.integers(0, len(versions) - 1)))  # rolled back
        versions = versions or [(rows.empty(), np.empty((0, *shape), np.int64))]
    return versions


def check(versions: list[tuple[RowBlocks, Array]], data: st.DataObject) -> None:
    """Every version, its slices and its common prefix with another, are those of the arrays."""
    for made, full in versions:
        assert made.shape == full.shape
        assert np.array_equal(made.to_array(np.int32), full)
        start, stop = data.draw(st.integers(-50, 50)), data.draw(st.integers(-50, 50))
        assert np.array_equal(made[start:stop].to_array(np.int64), full[start:stop])
        _, other = versions[data.draw(st.integers(0, len(versions) - 1))]
        pairs = enumerate(zip(full.tolist(), other.tolist(), strict=False))
        both = min(len(full), len(other))
        assert made.common_prefix(other) == next((i for i, (a, b) in pairs if a != b), both)


@given(data=st.data())
def test_every_version_is_the_array_that_was_sent(data: st.DataObject) -> None:
    check(data.draw(histories(data.draw(st.sampled_from([(), (1,), (2, 3)])))), data)


@given(data=st.data(), buffer_bytes=st.sampled_from([1, 30, 100]))
def test_versions_over_many_buffers_are_the_arrays_that_were_sent(
    data: st.DataObject, buffer_bytes: int
) -> None:
    with mock.patch.object(ledger, "_BUFFER_BYTES", buffer_bytes):
        check(data.draw(histories(data.draw(st.sampled_from([(), (2, 3)])))), data)
