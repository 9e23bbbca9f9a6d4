"""A command without its extra: one line, or the error of a module of ours that is missing."""

from __future__ import annotations

import pytest

from sample_wire._extras import USAGE, without_extra


def test_what_to_install_is_said_in_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    error = ModuleNotFoundError("No module named 'openai'", name="openai")
    assert without_extra(error, "install it ({})\n") == USAGE
    assert capsys.readouterr().err == "install it (No module named 'openai')\n"


@pytest.mark.parametrize("name", ["sample_wire", "sample_wire.demo.story"])
def test_a_module_of_ours_that_is_missing_is_no_missing_extra(name: str) -> None:
    error = ModuleNotFoundError(f"No module named {name!r}", name=name)
    with pytest.raises(ModuleNotFoundError) as raised:
        without_extra(error, "install it ({})\n")
    assert raised.value is error
