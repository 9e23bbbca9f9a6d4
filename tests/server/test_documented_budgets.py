"""The table of limits in the README, against the settings."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Final

import pytest

from sample_wire.adapters.server import ServerSettings

README: Final = Path(__file__).parents[2] / "README.md"
ROWS: Final = re.findall(
    r"^\| [^|]+ \| ([^|]+) \| `([a-z_]+)` \| [^|]+ \|$", README.read_text("utf-8"), re.MULTILINE
)
UNITS: Final = {"": 1, "s": 1, "MiB": 2**20, "GiB": 2**30}
SETTINGS: Final = ServerSettings(engine_url="http://h", tokenizer="chatml")


def value_of(text: str) -> Any:
    """The number that a cell says, or None."""
    number, _, unit = text.partition(" ")
    return int(number.replace(",", "")) * UNITS[unit] if number[0].isdigit() else None


@pytest.mark.parametrize(("told", "setting"), ROWS, ids=[setting for _, setting in ROWS])
def test_a_limit_has_the_default_that_the_readme_tells(told: str, setting: str) -> None:
    assert getattr(SETTINGS, setting) == value_of(told)


def test_every_limit_is_in_the_readme() -> None:
    fields = ServerSettings.__struct_fields__
    limits = {name for name in fields if name.endswith("_s") or name.startswith("max_")}
    assert {setting for _, setting in ROWS} == limits
