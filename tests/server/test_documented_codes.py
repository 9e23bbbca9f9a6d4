"""The table of codes against the code that gives them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

import sample_wire
from sample_wire.adapters.server.codes import CODES

PACKAGE: Final = Path(sample_wire.__file__).parent
NAMES: Final = [code.name for code in CODES]
TABLE: Final = "codes.py"
# SessionError takes them by these names, some through a variable.
SPELLED: Final = re.compile(r"code=\"([a-z_]+)\"|\"((?:engine|assembly|encode)_[a-z]+)\"")
# No code of an error, but fields of other things that are spelled like one.
OTHERS: Final = {"engine_url", "engine_kind", "engine_http"}


def spelled_codes() -> set[str]:
    folders = ("session", "adapters/server", "adapters/tokenizer")
    paths = [path for name in folders for path in (PACKAGE / name).glob("*.py")]
    texts = [path.read_text("utf-8") for path in paths if path.name != TABLE]
    return {one or other for text in texts for one, other in SPELLED.findall(text)} - OTHERS


def test_every_code_is_in_the_table_once() -> None:
    assert sorted(NAMES) == sorted(set(NAMES))


def test_the_table_has_every_code_that_the_server_spells() -> None:
    assert spelled_codes() - {*NAMES} == set()


def test_the_table_has_no_code_that_nothing_spells() -> None:
    told = {*NAMES} - {"not_found", "method_not_allowed", "internal_error"}
    assert told - spelled_codes() == set()
