"""The text and the facts of a DecodeError hold no content of the payload (SPEC section 9.2)."""

from __future__ import annotations

from typing import Any, Final

import pytest

from sample_wire import DecodeError, Sample, decode_samples

from ._compact import compact_payload
from ._kit import document_of, payload, reply, sample, wire_tensors
from ._wire import compact, container, framed, meta_tensor, tensor

_SECRET: Final = "zq5secret"


def _leaking(document: dict[str, Any]) -> bytes:
    return container([*wire_tensors([sample()]), meta_tensor(document)])


def _with(**changes: Any) -> bytes:
    document = document_of(reply(sample()))
    return _leaking({**document, "samples": [{**document["samples"][0], **changes}]})


_DTYPES: Final = {
    "tokens.0": "int64",
    "loss_mask.0": "uint8",
    "rollout_log_probs.0": "float64",
    "rollout_routed_experts.0": "int32",
}


def _compact_with(**changes: Any) -> bytes:
    return compact_payload(reply(sample()), document=lambda doc: {**doc, **changes})


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(_with(status=_SECRET), id="status"),
        pytest.param(_with(status=f"x - at `$.samples[3].{_SECRET}`"), id="status-like-a-place"),
        pytest.param(_with(status=f"missing required field `{_SECRET}`"), id="status-like-a-field"),
        pytest.param(_with(response={_SECRET: 1}), id="response"),
        pytest.param(_with(response_length=_SECRET), id="response_length"),
        pytest.param(_with(weight_versions={_SECRET: 1}), id="weight_versions"),
        pytest.param(_with(prefix_cache_info={_SECRET: 1}), id="prefix_cache_info"),
        pytest.param(_with(metadata=_SECRET), id="metadata"),
        pytest.param(_with(nulls=[_SECRET]), id="nulls"),
        pytest.param(
            payload(reply(sample()), document=lambda doc: {**doc, "format": _SECRET}), id="format"
        ),
        pytest.param(
            payload(reply(sample()), document=lambda doc: {**doc, "empty_reason": {_SECRET: 1}}),
            id="empty_reason",
        ),
        pytest.param(
            payload(reply(sample()), document=lambda doc: compact(doc) + _SECRET), id="no-json"
        ),
        pytest.param(
            payload(
                reply(sample()),
                document=lambda doc: compact(doc).replace('"turns":1', f'"{_SECRET}":1e999'),
            ),
            id="number-under-key",
        ),
        pytest.param(
            payload(
                reply(sample()),
                tensors=lambda found: [*found, tensor(_SECRET, "U8", [1], [0])],
            ),
            id="tensor-name",
        ),
        pytest.param(
            framed(f'{{"a":{{"dtype":"{_SECRET}","shape":[],"data_offsets":[0,1]}}}}', b"\0"),
            id="dtype",
        ),
        pytest.param(framed(f'{{"a":{{"{_SECRET}":1}}}}'), id="entry-key"),
        pytest.param(_compact_with(dtypes=_SECRET), id="dtypes"),
        pytest.param(_compact_with(dtypes={_SECRET: "int64"}), id="dtypes-name"),
        pytest.param(_compact_with(dtypes={**_DTYPES, "tokens.0": _SECRET}), id="dtypes-value"),
        pytest.param(_compact_with(dtypes={"tokens.0": {_SECRET: 1}}), id="dtypes-object"),
        pytest.param(_compact_with(shared={_SECRET: [0, 1]}), id="shared-name"),
        pytest.param(_compact_with(shared={f"{_SECRET}.1": [0, 1]}), id="shared-field"),
        pytest.param(_compact_with(shared={"tokens.0": [_SECRET, 1]}), id="shared-value"),
        pytest.param(
            compact_payload(
                reply(sample()),
                document=lambda doc: {**doc, "dtypes": {**_DTYPES, f"{_SECRET}.0": "int64"}},
                tensors=lambda found: [*found, tensor(f"{_SECRET}.0", "F32", [1], [0])],
            ),
            id="stored-name",
        ),
        pytest.param(framed(f'{{"__metadata__":{{"{_SECRET}":1}}}}'), id="header-metadata"),
        pytest.param(framed(f'{{"{_SECRET}":1,"{_SECRET}":1}}'), id="key-twice"),
    ],
)
def test_section_9_2_an_error_holds_no_content_of_the_payload(data: bytes) -> None:
    with pytest.raises(DecodeError) as raised:
        decode_samples(data, Sample())
    error = raised.value
    shown = [str(error), error.field, error.expected, error.got, str(error.__cause__)]
    assert not any(_SECRET in text for text in shown if text is not None)
