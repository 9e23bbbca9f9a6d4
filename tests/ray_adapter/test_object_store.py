"""Payloads and samples in Ray's object store: what is copied on the way, and how often."""

from __future__ import annotations

import gc
from typing import Any

import numpy as np
import pytest
from strategies import same_sample
from unit._samples import make_sample

from sample_wire import Payload, Sample, decode_samples, encode_samples
from sample_wire.assembly import RowLedger

pytest.importorskip("ray")
import ray

from ._memory import lies_in_the_store, private_bytes
from ._trainer import arrays_of, digests, given_payload, given_samples, growth_of_reading

pytestmark = [pytest.mark.ray, pytest.mark.usefixtures("cluster")]
# Ray keeps smaller objects out of the store.
NUM_TOKENS = 20_000


def large_sample(num_tokens: int = NUM_TOKENS, seed: int = 7) -> Sample:
    """A sample with arrays that are worth sharing."""
    random = np.random.default_rng(seed)
    R = num_tokens // 2
    return make_sample(
        num_tokens,
        R,
        tokens=random.integers(0, 150_000, num_tokens),
        loss_mask=random.integers(0, 2, R, dtype=np.uint8),
        rollout_log_probs=-random.random(R),
        rollout_routed_experts=random.integers(0, 256, (num_tokens - 1, 25, 10), dtype=np.int32),
    )


def run(function: Any, *arguments: Any) -> Any:
    """What a function gives in a process of the cluster."""
    return ray.get(ray.remote(function).remote(*arguments))


def test_a_payload_comes_back_with_the_same_bytes() -> None:
    payload = encode_samples([large_sample(2000)], {"a": 1})
    again = ray.get(ray.put(payload))
    assert type(again) is Payload
    assert bytes(again) == bytes(payload)


def test_arrays_of_a_payload_lie_in_the_store_read_only() -> None:
    payload = ray.get(ray.put(encode_samples([large_sample()])))
    (sample,) = decode_samples(payload, Sample()).samples
    for array in arrays_of(sample).values():
        assert lies_in_the_store(array)
        assert not array.flags.writeable
        assert array.flags.aligned


def test_arrays_of_decoded_samples_lie_in_the_store_read_only() -> None:
    sample = large_sample()
    reply = decode_samples(encode_samples([sample]).contiguous(), Sample(label="kept"))
    (again,) = ray.get(ray.put(reply)).samples
    for array in arrays_of(again).values():
        assert lies_in_the_store(array)
        assert not array.flags.writeable
    assert same_sample(again, reply.samples[0])


def test_rows_that_a_server_keeps_in_blocks_lie_in_the_store_once_they_are_joined() -> None:
    sample = large_sample()
    ledger = RowLedger((25, 10))
    assert sample.rollout_routed_experts is not None
    rows: Any = ledger.extend(ledger.empty(), 0, [sample.rollout_routed_experts])
    expected = digests(sample)
    sample.rollout_routed_experts = rows
    payload = encode_samples([sample])
    for sent, is_shared in ((payload, False), (Payload([payload.contiguous()]), True)):
        (found,) = decode_samples(ray.get(ray.put(sent)), Sample()).samples
        assert digests(found) == expected
        assert all(map(lies_in_the_store, arrays_of(found).values())) is is_shared


def test_a_trainer_process_reads_a_payload_from_the_store() -> None:
    sample = large_sample()
    ref = ray.put(encode_samples([sample]))
    (seen,) = run(given_payload, ref, Sample(label="kept"))
    assert seen == {
        "digests": digests(sample),
        "in_store": True,
        "writable": False,
        "label": "kept",
    }


def test_a_trainer_process_reads_decoded_samples_from_the_store() -> None:
    samples = decode_samples(encode_samples([large_sample()] * 2), Sample(label="kept")).samples
    for seen in run(given_samples, ray.put(samples)):
        assert (seen["in_store"], seen["writable"], seen["label"]) == (True, False, "kept")
        assert seen["digests"] == digests(samples[0])


def test_putting_makes_no_copy_beside_the_one_in_the_store() -> None:
    sample = large_sample(100_000)
    payload = encode_samples([sample])
    before = private_bytes()
    ref = ray.put(payload)
    assert private_bytes() - before < payload.nbytes // 10
    assert payload.nbytes > 100_000_000
    del ref


def test_a_trainer_process_that_reads_everything_has_no_copy_of_its_own() -> None:
    sample = large_sample(100_000)
    growth, nbytes, total = run(growth_of_reading, ray.put(encode_samples([sample])))
    assert nbytes > 100_000_000
    assert growth < nbytes // 10
    assert total == sum(int(array.sum()) for array in arrays_of(sample).values())


def test_arrays_outlive_the_reference_to_what_they_lie_in() -> None:
    sample = large_sample(seed=3)
    ref = ray.put(encode_samples([sample]))
    (found,) = decode_samples(ray.get(ref), Sample()).samples
    del ref
    gc.collect()
    for seed in range(4):  # others are put where it would have been
        ray.put(encode_samples([large_sample(seed=seed)]))
    assert digests(found) == digests(sample)


def test_c07_a_writable_copy_is_had_by_asking_for_it() -> None:
    ref = ray.put(encode_samples([large_sample()]))
    (sample,) = decode_samples(ray.get(ref), Sample(), copy=True).samples
    sample.tokens[:] = 0
    (again,) = decode_samples(ray.get(ref), Sample()).samples
    assert again.tokens.any()
