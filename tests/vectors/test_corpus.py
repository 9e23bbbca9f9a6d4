"""The payload corpus: every case gets its verdict, its values, and stays within the limits.

corpus/README.md says what a case holds.  Where it leaves a choice, the choice is pinned here
and stated in SPEC section 12.
"""

from __future__ import annotations

import enum
import hashlib
import json
import os
import pickle
import subprocess
import sys
import time
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import msgspec
import numpy as np
import pytest

from sample_wire import DecodeError, Sample, SamplesReply, decode_samples, read_container

from ._spec import table

CORPUS: Final = Path(__file__).parent / "corpus"
MANIFEST: Final[dict[str, Any]] = json.loads((CORPUS / "manifest.json").read_text())
LIMITS: Final[dict[str, int]] = MANIFEST["limits"]
CASES: Final[dict[str, dict[str, Any]]] = {case["name"]: case for case in MANIFEST["cases"]}
# The corpus names these; fields that are newer than it (spec_info) are not in `expected`.
FIELDS: Final = (
    "tokens",
    "response",
    "response_length",
    "loss_mask",
    "rollout_log_probs",
    "rollout_routed_experts",
    "rollout_indexer_topk",
    "status",
    "weight_versions",
    "prefix_cache_info",
    "metadata",
)
CHOICES: Final = {
    "container/dtype/known-but-not-numpy-bf16": "ContainerError",
    "container/dtype/known-but-not-numpy-f8_e5m2": "ContainerError",
    "container/header-text/leading-space": "ContainerError",
    "container/length-prefix/real-header-of-100mb": "accept",
    "container/nesting/arrays-100": "ContainerError",
    "container/structure/unknown-key-in-entry": "ContainerError",
    "sample/counts/20000-all-null-samples": "LimitError",
    "sample/envelope/no-samples-no-reason": "accept",
    "sample/envelope/unknown-top-key": "accept",
    "sample/keys/sample-carries-__class__": "accept",
    "sample/keys/sample-carries-__dict__": "accept",
    "sample/keys/sample-carries-generate_function_path": "accept",
    "sample/keys/sample-carries-group_index": "accept",
    "sample/keys/sample-carries-to_dict": "accept",
    "sample/keys/sample-carries-train_metadata": "accept",
    "sample/lengths/experts-zero-layers": "FieldError",
    "sample/meta-json/deep-metadata-500": "LimitError",
    "sample/meta-json/overflow-float-in-metadata": "FieldError",
    "sample/nulls/hundred-thousand-entries": "FieldError",
    "sample/nulls/tokens-null": "FieldError",
    "sample/scalar-types/prefix-cache-unknown-key": "accept",
    "sample/values/log-prob-nan": "accept",
    "sample/values/mask-has-2": "accept",
    "sample/values/mask-has-255": "accept",
    "sample/values/token-i64-max": "accept",
}
_BUFFERS: Final[list[Callable[[bytes], object]]] = [bytes, bytearray, memoryview]


def _params(keep: Callable[[dict[str, Any]], bool]) -> list[Any]:
    return [
        pytest.param(case, id=name, marks=[pytest.mark.heavy] if case.get("heavy") else [])
        for name, case in CASES.items()
        if keep(case)
    ]


def _bytes_of(case: dict[str, Any]) -> bytes:
    data = (CORPUS / case["file"]).read_bytes()
    return zlib.decompress(data) if case["encoding"] == "zlib" else data


def _read(case: dict[str, Any], buffer: object, template: Sample | None = None) -> Any:
    if case["layer"] == "container":
        return read_container(buffer)
    return decode_samples(buffer, template or Sample())


def _refusal(case: dict[str, Any], buffer: object) -> DecodeError | None:
    try:
        _read(case, buffer)
    except DecodeError as error:
        return error
    return None


def _expected_verdict(case: dict[str, Any]) -> str:
    if case["expect"] == "either":
        return "accept" if CHOICES[case["name"]] == "accept" else "reject"
    return str(case["expect"])


def _described(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        raw = value.astype(value.dtype.newbyteorder("<"), order="C").tobytes()
        digest = hashlib.sha256(raw).hexdigest()
        return {"dtype": str(value.dtype), "shape": list(value.shape), "sha256": digest}
    if isinstance(value, enum.Enum):
        return value.value
    return msgspec.to_builtins(value) if isinstance(value, msgspec.Struct) else value


def _described_reply(reply: SamplesReply[Sample]) -> dict[str, Any]:
    return {
        "samples": [
            {name: _described(getattr(sample, name)) for name in FIELDS} for sample in reply.samples
        ],
        "session_metadata": reply.session_metadata,
        "empty_reason": reply.empty_reason,
    }


def test_every_file_of_the_manifest_is_there_as_it_was() -> None:
    wrong = [
        name
        for name, case in CASES.items()
        if hashlib.sha256(_bytes_of(case)).hexdigest() != case["sha256"]
    ]
    assert wrong == []


@pytest.mark.parametrize("kind", _BUFFERS, ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("case", _params(lambda _: True))
def test_every_case_gets_its_verdict(case: dict[str, Any], kind: Callable[[bytes], object]) -> None:
    refusal = _refusal(case, kind(_bytes_of(case)))
    assert ("accept" if refusal is None else "reject") == _expected_verdict(case), case["reason"]


@pytest.mark.parametrize("case", _params(lambda case: "tensors" in case))
def test_an_accepted_container_holds_its_tensors(case: dict[str, Any]) -> None:
    found = {name: _described(array) for name, array in _read(case, _bytes_of(case)).items()}
    assert found == case["tensors"]


@pytest.mark.parametrize("case", _params(lambda case: "tensor_count" in case))
def test_an_accepted_large_container_holds_all_its_tensors(case: dict[str, Any]) -> None:
    assert len(_read(case, _bytes_of(case))) == case["tensor_count"]


@pytest.mark.parametrize("case", _params(lambda case: "expected" in case))
def test_an_accepted_reply_holds_its_values(case: dict[str, Any]) -> None:
    assert _described_reply(_read(case, _bytes_of(case))) == case["expected"]


@pytest.mark.parametrize("case", _params(lambda case: "expected_sha256" in case))
def test_an_accepted_long_reply_holds_its_values(case: dict[str, Any]) -> None:
    found = _described_reply(_read(case, _bytes_of(case)))
    text = json.dumps(found, sort_keys=True, ensure_ascii=True, separators=(",", ":"))
    assert hashlib.sha256(text.encode()).hexdigest() == case["expected_sha256"]


@pytest.mark.parametrize("case", _params(lambda case: _expected_verdict(case) == "reject"))
def test_the_text_of_a_refusal_is_short(case: dict[str, Any]) -> None:
    assert 0 < len(str(_refusal(case, _bytes_of(case)))) <= LIMITS["error_text_max_chars"]


@pytest.mark.parametrize("case", _params(lambda _: True))
def test_a_verdict_takes_no_more_cpu_time_than_the_limit(case: dict[str, Any]) -> None:
    # CPU time, not wall time: other processes of a busy machine do not count.
    data = _bytes_of(case)
    before = time.process_time()
    _refusal(case, data)
    assert time.process_time() - before <= LIMITS["seconds"]


@pytest.mark.parametrize(
    "case",
    _params(lambda case: case["layer"] == "sample" and _expected_verdict(case) == "reject"),
)
def test_a_refusal_leaves_the_template_as_it_was(case: dict[str, Any]) -> None:
    template = Sample(metadata={"kept": {"deep": [1]}}, label=np.arange(3), group_index=7)
    before = pickle.dumps(template)
    with pytest.raises(DecodeError):
        _read(case, _bytes_of(case), template)
    assert pickle.dumps(template) == before


@pytest.mark.parametrize(
    "case",
    _params(lambda case: case["category"] == "keys" and _expected_verdict(case) == "accept"),
)
def test_a_key_that_is_no_computed_field_changes_nothing(case: dict[str, Any]) -> None:
    template = Sample(group_index=7, generate_function_path="mine", train_metadata={"kept": 1})
    (sample,) = _read(case, _bytes_of(case), template).samples
    kept = (sample.group_index, sample.generate_function_path, sample.train_metadata)
    assert type(sample) is Sample
    assert kept == (7, "mine", {"kept": 1})
    assert vars(sample).keys() == vars(template).keys()


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="the peak is Linux's count")
def test_no_case_takes_more_memory_above_its_payload_than_the_limit() -> None:
    script = Path(__file__).parent / "_peak_memory.py"
    root = str(Path(__file__).parents[2])
    run = subprocess.run(
        [sys.executable, str(script), str(CORPUS)],
        env={**os.environ, "PYTHONPATH": root},
        capture_output=True,
        text=True,
        check=True,
    )
    grown_kib = json.loads(run.stdout)
    limit_kib = LIMITS["memory_mib_over_payload"] * 1024
    assert grown_kib.keys() == {name for name, case in CASES.items() if not case.get("heavy")}
    assert {name: kib for name, kib in grown_kib.items() if kib > limit_kib} == {}


def test_every_choice_is_pinned() -> None:
    assert CHOICES.keys() == {name for name, case in CASES.items() if case["expect"] == "either"}


@pytest.mark.parametrize("case", _params(lambda case: case["expect"] == "either"))
def test_a_choice_keeps_its_verdict(case: dict[str, Any]) -> None:
    refusal = _refusal(case, _bytes_of(case))
    verdict = "accept" if refusal is None else type(refusal).__name__
    assert verdict == CHOICES[case["name"]]


def test_spec_section_12_states_every_choice() -> None:
    stated = {row["case"]: row["verdict"] for row in table("12", "case")}
    assert stated == {
        name: "accept" if verdict == "accept" else f"refuse: {verdict}"
        for name, verdict in CHOICES.items()
    }
