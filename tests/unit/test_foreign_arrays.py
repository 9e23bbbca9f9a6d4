"""Array-likes of others: what they raise, and what looking at them must not change."""

from __future__ import annotations

import sys
import threading
import warnings
from typing import Any

import numpy as np
import pytest

from sample_wire import EncodeError, Sample, encode_samples, validate, write_container


class NeedsGrad:
    """As a torch tensor that requires grad."""

    def __array__(self, *_: Any, **__: Any) -> np.ndarray[Any, Any]:
        raise RuntimeError("cannot become an array")


def of_log_probs(value: Any) -> Sample:
    return Sample(tokens=[1, 2], response_length=2, rollout_log_probs=value)  # type: ignore[arg-type]  # lists are taken too


@pytest.mark.parametrize("value", [NeedsGrad(), [NeedsGrad(), 1.0]], ids=["itself", "in a list"])
def test_an_array_protocol_that_raises_is_an_encode_error(value: Any) -> None:
    with pytest.raises(EncodeError, match="sample 0, field rollout_log_probs"):
        encode_samples([of_log_probs(value)])


def test_encoding_in_threads_leaves_the_warning_filters_alone() -> None:
    before = list(warnings.filters)
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        sample = of_log_probs(np.zeros(2, np.float32))
        threads = [
            threading.Thread(target=lambda: [encode_samples([sample]) for _ in range(100)])
            for _ in range(4)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(interval)
    assert warnings.filters == before


@pytest.mark.parametrize("name", ["a b", "a"])
def test_a_name_of_a_text_subclass_is_written_as_its_text(name: str) -> None:
    array = np.arange(3)
    assert bytes(write_container({np.str_(name): array})) == bytes(write_container({name: array}))


@pytest.mark.parametrize(
    "fields",
    [{"loss_mask": np.array(5)}, {"loss_mask": 5}, {"tokens": 5}, {"response_length": "x"}],
    ids=str,
)
def test_validate_refuses_what_has_no_rows(fields: dict[str, Any]) -> None:
    with pytest.raises(EncodeError) as caught:
        validate(Sample(**fields))
    assert caught.value.field == next(iter(fields))
