"""The table of codes that stands beside the server, against the code."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

import sample_wire
from sample_wire.adapters import server

PACKAGE: Final = Path(sample_wire.__file__).parent
TEXT: Final = (Path(server.__file__).parent / "README.md").read_text("utf-8")
ROWS: Final = re.findall(r"^\| (\d{3}) \| `([a-z_]+)` \|", TEXT, re.MULTILINE)
# SessionError takes them by these names, some through a variable.
SPELLED: Final = re.compile(r"code=\"([a-z_]+)\"|\"((?:engine|assembly|encode)_[a-z]+)\"")
# No code of an error, but fields of other things that are spelled like one.
OTHERS: Final = {"engine_url", "engine_kind", "engine_http"}


def spelled_codes() -> set[str]:
    folders = ("session", "adapters/server", "adapters/tokenizer")
    texts = (path.read_text("utf-8") for name in folders for path in (PACKAGE / name).glob("*.py"))
    return {one or other for text in texts for one, other in SPELLED.findall(text)} - OTHERS


def test_every_code_is_in_the_table_once() -> None:
    codes = [code for _, code in ROWS]
    assert sorted(codes) == sorted(set(codes))


def test_the_table_has_every_code_that_the_server_spells() -> None:
    assert spelled_codes() - {code for _, code in ROWS} == set()


def test_the_table_has_no_code_that_nothing_spells() -> None:
    told = {code for _, code in ROWS} - {"not_found", "method_not_allowed", "internal_error"}
    assert told - spelled_codes() == set()
