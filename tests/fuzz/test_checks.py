"""The fuzzers find what they are there to find: each kind of fault is planted once."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest
from vectors._kit import payload, reply, sample
from vectors._wire import container, framed, tensor

from sample_wire import (
    ContainerError,
    FieldError,
    Payload,
    Sample,
    SamplesReply,
    decode_samples,
    encode_samples,
)
from sample_wire.codec import Layout

from . import _container_check, _payload_check, _run
from ._container_check import check_container
from ._findings import Finding
from ._payload_check import check_payload

_GOOD: Final = container([tensor("a", "U8", [2], [1, 2])])
_BAD: Final = framed("{}", b"\0")
_REPLY: Final = payload(reply(sample()))


def _raising(error: Exception) -> Callable[..., Any]:
    def raises(*_: object, **__: object) -> Any:
        raise error

    return raises


@pytest.mark.parametrize(
    ("read", "data", "what"),
    [
        (_raising(KeyError("a")), _GOOD, "raised KeyError"),
        (_raising(ContainerError("no")), _GOOD, "refuses, safetensors accepts"),
        (lambda _: {}, _BAD, "accepts, safetensors refuses"),
        (lambda _: {}, _GOOD, "with different tensors"),
        (lambda _: {"a": np.array([1, 3], np.uint8)}, _GOOD, "with different tensors"),
        (lambda _: {"a": np.array([1, 2], np.int8)}, _GOOD, "with different tensors"),
        (lambda _: {"a": np.array([[1, 2]], np.uint8)}, _GOOD, "with different tensors"),
    ],
    ids=["foreign", "strict", "lenient", "none", "value", "dtype", "shape"],
)
def test_the_container_fuzzer_finds(
    monkeypatch: pytest.MonkeyPatch, read: Callable[..., Any], data: bytes, what: str
) -> None:
    monkeypatch.setattr(_container_check, "read_container", read)
    outcome = check_container(data)
    assert isinstance(outcome, Finding)
    assert what in outcome.what


def _changed(**fields: Any) -> Callable[..., SamplesReply[Sample]]:
    def decode_changed(*args: Any, **kwargs: Any) -> SamplesReply[Sample]:
        found: SamplesReply[Sample] = decode_samples(*args, **kwargs)
        for name, value in fields.items():
            setattr(found.samples[0], name, value)
        return found

    return decode_changed


def _touching(_buffer: object, template: Sample, **_: object) -> Any:
    template.label["touched"] = True
    raise FieldError("no")


def _only_whole(buffer: object, template: Sample, **kwargs: Any) -> Any:
    if isinstance(buffer, Payload):
        raise FieldError("no")
    return decode_samples(buffer, template, **kwargs)


def _only_widened(buffer: object, template: Sample, *, widen: bool, **kwargs: Any) -> Any:
    if not widen:
        raise FieldError("no")
    return decode_samples(buffer, template, **kwargs)


@pytest.mark.parametrize(
    ("decode", "data", "what"),
    [
        (_raising(RecursionError()), _REPLY, "raised RecursionError"),
        (_raising(FieldError("no")), _REPLY, "it is good"),
        (lambda *_, **__: SamplesReply([], {}, None), _BAD, "it breaks C15"),
        (_changed(response="hi?"), _REPLY, "read to something else"),
        (_changed(response_length=2.0), _REPLY, "read to something else"),
        (_only_whole, _REPLY, "another verdict in pieces"),
        (_only_widened, _REPLY, "another verdict where nothing is widened"),
    ],
    ids=["foreign", "strict", "lenient", "value", "type", "pieces", "stored"],
)
def test_the_payload_fuzzer_finds(
    monkeypatch: pytest.MonkeyPatch, decode: Callable[..., Any], data: bytes, what: str
) -> None:
    monkeypatch.setattr(_payload_check, "decode_samples", decode)
    outcome = check_payload(data)
    assert isinstance(outcome, Finding)
    assert what in outcome.what


def test_the_payload_fuzzer_finds_a_long_text(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_payload_check, "_MAX_TEXT", 1)
    outcome = check_payload(_BAD)
    assert isinstance(outcome, Finding)
    assert "too long" in outcome.what


def test_the_payload_fuzzer_finds_a_changed_template(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_payload_check, "decode_samples", _touching)
    outcome = check_payload(_BAD)
    del _payload_check.TEMPLATE.label["touched"]
    assert isinstance(outcome, Finding)
    assert outcome.what == "the template was changed"


def test_the_payload_fuzzer_finds_what_cannot_be_encoded_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(_payload_check, "encode_samples", _raising(ValueError("no")))
    outcome = check_payload(_REPLY)
    assert isinstance(outcome, Finding)
    assert "raised ValueError" in outcome.what


def test_the_payload_fuzzer_finds_a_layout_in_which_something_is_lost(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def encode_losing(*args: Any, layout: Layout, **kwargs: Any) -> Payload:
        samples, *others = args
        return encode_samples([] if layout == "compact" else samples, *others, **kwargs)

    monkeypatch.setattr(_payload_check, "encode_samples", encode_losing)
    outcome = check_payload(_REPLY)
    assert isinstance(outcome, Finding)
    assert "encoded (compact) and read again" in outcome.what


def _run_main(monkeypatch: pytest.MonkeyPatch, check: Callable[[bytes], str | Finding]) -> int:
    monkeypatch.setattr(sys, "argv", ["fuzz", "--seed", "3", "--num-inputs", "12000"])
    return _run.main(lambda _seed: lambda: _GOOD, check)


def test_a_long_run_without_findings_exits_0(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    assert _run_main(monkeypatch, lambda _: "fine") == 0
    assert "seed 3: {'fine': 12000}, 0 findings" in capfd.readouterr().out


def test_a_long_run_prints_a_finding_as_hex_and_exits_1(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    assert _run_main(monkeypatch, lambda data: Finding("found it", data)) == 1
    assert f"found it\n  bytes.fromhex('{_GOOD.hex()}')" in capfd.readouterr().out


def test_a_long_run_stops_after_many_findings(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: Counter[str] = Counter()

    def check(data: bytes) -> Finding:
        seen["inputs"] += 1
        return Finding("found it", data)

    _run_main(monkeypatch, check)
    assert seen["inputs"] < 100


def test_a_long_run_finds_a_slow_input(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(_run, "_MAX_INPUT_S", -1.0)
    assert _run_main(monkeypatch, lambda _: "fine") == 1
    assert "took 0.0 s" in capfd.readouterr().out


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="memory is Linux's count")
def test_a_long_run_whose_memory_grows_exits_1(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_run, "_MAX_GROWTH_MIB", -(10**6))
    assert _run_main(monkeypatch, lambda _: "fine") == 1
