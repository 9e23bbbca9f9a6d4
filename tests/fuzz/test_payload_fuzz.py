"""The payload fuzzer, short and seeded; CONTRIBUTING.md tells how to run it for long."""

from __future__ import annotations

from typing import Final

import pytest

from ._payload_check import check_payload
from ._payload_inputs import PayloadInputs
from ._run import Result, run

_NUM_INPUTS: Final = 4_000


@pytest.fixture(scope="module")
def result() -> Result:
    return run(PayloadInputs(seed=0).next_input, check_payload, _NUM_INPUTS)


def test_nothing_is_found(result: Result) -> None:
    assert not result.findings, "\n".join(map(str, result.findings))


@pytest.mark.parametrize(
    "outcome",
    ["accepted", "ContainerError", "MetaError", "FieldError", "VersionError", "LimitError"],
)
def test_every_outcome_comes_up(result: Result, outcome: str) -> None:
    assert sum(count for kind, count in result.kinds.items() if outcome in kind) > 0


def test_a_good_share_of_the_inputs_is_accepted(result: Result) -> None:
    accepted = sum(count for kind, count in result.kinds.items() if kind.startswith("accepted"))
    assert accepted > _NUM_INPUTS / 10


def test_a_seed_stands_for_its_inputs() -> None:
    first, second = PayloadInputs(seed=7), PayloadInputs(seed=7)
    assert [first.next_input() for _ in range(50)] == [second.next_input() for _ in range(50)]
