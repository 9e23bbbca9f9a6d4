"""The text of a generated turn as its client reads it: marks are no text, but those of tools."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sample_wire.adapters.tokenizer import HFTokenizer

from ._folders import GLM_ADDED, QWEN3_ADDED, QWEN3_TEMPLATE, write_small

CALL = "<tool_call>{}</tool_call>"


def loaded(folder: Path, added: tuple[str, ...], *, all_special: bool) -> HFTokenizer:
    """A tokenizer with these marks, all of them special tokens where that is asked for."""
    write_small(folder, added, template=QWEN3_TEMPLATE)
    path = folder / "tokenizer.json"
    document = json.loads(path.read_text())
    for token in document["added_tokens"]:
        token["special"] = token["special"] or all_special
    path.write_text(json.dumps(document))
    return HFTokenizer(folder)


@pytest.mark.parametrize("all_special", [False, True], ids=["some special", "all special"])
def test_special_tokens_are_left_out_but_for_the_marks_of_tool_calls(
    tmp_path: Path, all_special: bool
) -> None:
    tokenizer = loaded(tmp_path, tuple(QWEN3_ADDED), all_special=all_special)
    text = f"<|im_start|>hello{CALL}<|im_end|><|endoftext|>"
    messages = [{"role": "user", "content": text}]
    ids = tokenizer.render(messages, None, {})
    assert text in tokenizer.decode(ids)
    assert tokenizer.decode_message(ids).startswith(f"user\nhello{CALL}\n")


def test_marks_that_are_no_special_tokens_are_text(qwen3: HFTokenizer) -> None:
    ids = [QWEN3_ADDED["<think>"], 9707, QWEN3_ADDED["</think>"], QWEN3_ADDED["<|im_end|>"]]
    assert qwen3.decode_message(ids) == "<think>Hello</think>"


def test_a_vocabulary_without_tool_calls_has_no_marks_to_keep(tmp_path: Path) -> None:
    marks = tuple(mark for mark in GLM_ADDED if "tool_call" not in mark)
    tokenizer = loaded(tmp_path, (*marks, "<|im_start|>", "<|im_end|>"), all_special=True)
    ids = tokenizer.render([{"role": "user", "content": "hello<|user|>"}], None, {})
    assert tokenizer.decode_message(ids) == "user\nhello\nassistant\n"
