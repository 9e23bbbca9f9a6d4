"""One loaded tokenizer of each family for all tests here."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from tokenizers import Tokenizer

from sample_wire.adapters.tokenizer import HFTokenizer

from ._folders import GLM_ADDED, GLM_TEMPLATE, QWEN3_ADDED, QWEN3_TEMPLATE, write_qwen3, write_small


@pytest.fixture(scope="session")
def qwen3_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The real vocabulary: some seconds to write and to load."""
    return write_qwen3(tmp_path_factory.mktemp("qwen3"))


@pytest.fixture(scope="session")
def qwen3(qwen3_folder: Path) -> HFTokenizer:
    return HFTokenizer(qwen3_folder, family="qwen3")


@pytest.fixture(scope="session")
def qwen3_ids(qwen3_folder: Path) -> Callable[[str], list[int]]:
    """Encodes as the folder says, without transformers."""
    return encoder(qwen3_folder)


@pytest.fixture(scope="session")
def chatml_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Qwen3 template and tokens with a small vocabulary."""
    return write_small(tmp_path_factory.mktemp("chatml"), QWEN3_ADDED, template=QWEN3_TEMPLATE)


@pytest.fixture(scope="session")
def glm_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_small(tmp_path_factory.mktemp("glm"), GLM_ADDED, template=GLM_TEMPLATE)


@pytest.fixture(scope="session")
def glm(glm_folder: Path) -> HFTokenizer:
    return HFTokenizer(glm_folder, family="glm")


@pytest.fixture(scope="session")
def glm_ids(glm_folder: Path) -> Callable[[str], list[int]]:
    return encoder(glm_folder)


def encoder(folder: Path) -> Callable[[str], list[int]]:
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))

    def encode(text: str) -> list[int]:
        ids: list[int] = tokenizer.encode(text, add_special_tokens=False).ids
        return ids

    return encode
