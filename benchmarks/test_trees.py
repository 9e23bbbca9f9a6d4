"""Trees: that the leaves are what their rows say.  All at M, as P takes a while (report.py)."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks._assembly import Session, session_of
from benchmarks._figures import MEASURED, TARGETS
from benchmarks._timing import Effort
from benchmarks._tree_targets import (
    NUM_LEAVES,
    collect,
    leaf_bytes,
    num_sampled,
    own_bytes,
    read_line,
    trees,
)
from sample_wire import Sample, decode_samples

SHORTEST = Effort("test", rounds=1, long_rounds=1, round_s=0.0, gap_rounds=1, session="M")
# A leaf's objects and log-probs, and its part of a buffer that is not full.
MAX_OVERHEAD_BYTES = 2**20 / NUM_LEAVES + 8 * 2**10


@pytest.fixture(scope="module")
def session() -> Session:
    return session_of("M")


def test_every_leaf_has_a_row() -> None:
    results = trees(SHORTEST)
    assert results.keys() == {"tree memory", "tree assemble"}
    assert results.keys() <= {*TARGETS, *MEASURED}
    assert {result.measured_at for result in results.values()} == {"shape M"}


def test_a_leaf_costs_what_is_its_own(session: Session) -> None:
    log_probs = 8 * num_sampled(session)
    assert leaf_bytes(session) <= own_bytes(session) + log_probs + MAX_OVERHEAD_BYTES
    assert own_bytes(session) < session.narrow_bytes(session.num_turns) / 8


def test_the_leaves_are_whole_samples(session: Session) -> None:
    line = read_line(session)
    samples = decode_samples(bytes(collect(session, [line, line[:-1]])), Sample()).samples
    for sample, num_turns in zip(samples, (session.num_turns, session.num_turns - 1), strict=True):
        assert np.array_equal(sample.tokens, session.ids(num_turns))
        assert sample.rollout_routed_experts is not None
        assert np.array_equal(sample.rollout_routed_experts, session.rows(num_turns))
