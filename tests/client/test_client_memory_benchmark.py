"""The benchmark of the client's memory runs, here at a small shape."""

from __future__ import annotations

import pytest

from benchmarks._client_memory import WAYS, client_peaks
from benchmarks._memory import has_resident_peak


@pytest.mark.skipif(not has_resident_peak(), reason="the system tells no peak resident set")
def test_every_way_is_seen_to_hold_the_payload() -> None:
    peaks = client_peaks("M")
    assert peaks.keys() == WAYS.keys()
    # Not the whole of it: at 8 MB some lies where an import had its own peak before.
    assert min(peaks.values()) >= 0.25
