"""A rollout step that is dumped to files and mapped again: whole, in part, in one file or many."""

from __future__ import annotations

import json
import mmap
import pathlib
import sys
from typing import Any

import numpy as np
import pytest

from sample_wire import (
    ContainerError,
    Payload,
    Sample,
    decode_samples,
    encode_samples,
    read_container,
    read_fields,
)

from ._samples import arrays_of, digest, large_sample

STEP = [large_sample(200, seed) for seed in range(4)]
on_linux = pytest.mark.skipif(sys.platform != "linux", reason="needs /proc/self/smaps")


def mapped(path: pathlib.Path) -> mmap.mmap:
    """The file, mapped for reading.  It lives as long as the arrays in it."""
    with path.open("rb") as file:
        return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)


def dumped(path: pathlib.Path, *samples: Sample) -> pathlib.Path:
    """One payload in one file."""
    with path.open("wb") as file:
        encode_samples(samples).write_to(file)
    return path


def test_a_step_of_one_file_a_payload_is_opened_again(tmp_path: pathlib.Path) -> None:
    for index, sample in enumerate(STEP):
        dumped(tmp_path / f"{index:06}.safetensors", sample)
    found = [
        sample
        for path in sorted(tmp_path.glob("*.safetensors"))
        for sample in decode_samples(mapped(path), Sample(label="kept")).samples
    ]
    assert [*map(digest, found)] == [*map(digest, STEP)]
    assert {sample.label for sample in found} == {"kept"}


def dump_in_one(folder: pathlib.Path, align: int) -> None:
    """All payloads of the step in one file, each at a multiple of align, and where they are."""
    ranges = []
    with (folder / "step").open("wb") as file:
        for sample in STEP:
            file.write(bytes(-file.tell() % align))
            start = file.tell()
            ranges.append([start, start + encode_samples([sample]).write_to(file)])
    (folder / "step.json").write_text(json.dumps(ranges))


def opened_from_one(folder: pathlib.Path) -> list[tuple[Sample, bool]]:
    """The samples of such a file, and of each whether all its arrays are views of the mapping."""
    view = memoryview(mapped(folder / "step"))
    whole = np.frombuffer(view, np.uint8)
    found = []
    for start, stop in json.loads((folder / "step.json").read_text()):
        (sample,) = decode_samples(view[start:stop], Sample()).samples
        views = [np.shares_memory(array, whole) for array in arrays_of(sample).values()]
        found.append((sample, all(views)))
    return found


def test_a_step_in_one_file_is_opened_again_without_a_copy(tmp_path: pathlib.Path) -> None:
    dump_in_one(tmp_path, align=8)
    found = opened_from_one(tmp_path)
    assert [digest(sample) for sample, _ in found] == [*map(digest, STEP)]
    assert all(is_view for _, is_view in found)


def test_payloads_at_odd_places_are_read_by_value(tmp_path: pathlib.Path) -> None:
    dump_in_one(tmp_path, align=1)
    found = opened_from_one(tmp_path)
    assert [digest(sample) for sample, _ in found] == [*map(digest, STEP)]


def test_a_file_that_was_not_written_to_its_end_is_refused(tmp_path: pathlib.Path) -> None:
    path = dumped(tmp_path / "torn", STEP[0])
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(ContainerError):
        decode_samples(mapped(path), Sample())


def test_a_file_is_one_of_safetensors(tmp_path: pathlib.Path) -> None:
    from safetensors.numpy import load_file

    path = dumped(tmp_path / "0.safetensors", STEP[0])
    found: dict[str, Any] = load_file(path)
    assert {*found} == {*read_container(mapped(path))}


def test_a_mapped_payload_is_sent_on_without_being_read_by_python(tmp_path: pathlib.Path) -> None:
    path = dumped(tmp_path / "payload", STEP[0])
    payload = Payload([mapped(path)])
    assert digest(decode_samples(payload, Sample()).samples[0]) == digest(STEP[0])


def resident_bytes(path: pathlib.Path) -> int:
    """How much of a mapped file this process has touched, by the kernel's own account."""
    inside, found = False, 0
    for line in pathlib.Path("/proc/self/smaps").read_text("utf-8").splitlines():
        words = line.split()
        if "-" in words[0] and not words[0].endswith(":"):
            inside = words[-1] == str(path)
        elif inside and words[0] == "Rss:":
            found += int(words[1]) * 1024
    return found


NUM_TOKENS = 32_000
R3_BYTES = (NUM_TOKENS - 1) * 250 * 4
# Pages are read in groups around the one that is touched.
SOME_PAGES = 1 << 20


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """A payload of which R3 is 32 MB, and all the rest less than one."""
    return dumped(tmp_path_factory.mktemp("step") / "large", large_sample(NUM_TOKENS))


@on_linux
@pytest.mark.parametrize("names", [["loss_mask"], ["status"], ["tokens", "rollout_log_probs"]])
def test_a_partial_read_touches_the_pages_of_its_fields_only(
    large: pathlib.Path, names: list[str]
) -> None:
    buffer = mapped(large)
    (found,) = read_fields(buffer, names)
    for value in found.values():
        assert not isinstance(value, np.ndarray) or value.sum() != 0
    assert 0 < resident_bytes(large) < SOME_PAGES < R3_BYTES // 10


@on_linux
def test_decoding_touches_no_page_of_an_array_before_it_is_used(large: pathlib.Path) -> None:
    buffer = mapped(large)
    (sample,) = decode_samples(buffer, Sample()).samples
    assert 0 < resident_bytes(large) < SOME_PAGES
    assert sample.rollout_routed_experts is not None
    sample.rollout_routed_experts.sum()
    assert resident_bytes(large) > R3_BYTES
