"""The container fuzzer, short and seeded; CONTRIBUTING.md tells how to run it for long."""

from __future__ import annotations

from typing import Final

import pytest

from ._container_check import BOTH_ACCEPT, BOTH_REFUSE, EXPLAINED, check_container
from ._container_inputs import ContainerInputs
from ._run import Result, run

_NUM_INPUTS: Final = 20_000


@pytest.fixture(scope="module")
def result() -> Result:
    return run(ContainerInputs(seed=0).next_input, check_container, _NUM_INPUTS)


def test_no_disagreement_with_safetensors_is_left_unexplained(result: Result) -> None:
    assert not result.findings, "\n".join(map(str, result.findings))


@pytest.mark.parametrize("kind", [BOTH_ACCEPT, BOTH_REFUSE])
def test_a_good_share_of_the_inputs_is_accepted_and_a_good_share_refused(
    result: Result, kind: str
) -> None:
    assert result.kinds[kind] > _NUM_INPUTS / 10


@pytest.mark.parametrize("rule", EXPLAINED)
def test_every_explained_difference_comes_up(result: Result, rule: str) -> None:
    assert result.kinds[rule] > 0


def test_a_seed_stands_for_its_inputs() -> None:
    first, second = ContainerInputs(seed=7), ContainerInputs(seed=7)
    assert [first.next_input() for _ in range(50)] == [second.next_input() for _ in range(50)]
