"""The public names: what the package exports, and what README says it does."""

from __future__ import annotations

import pathlib
import re

import pytest

import sample_wire

README = pathlib.Path(__file__).parents[2] / "README.md"


def names_in_readme() -> list[str]:
    """The names in backticks in the list of the section "Public names" of README.md."""
    _, _, section = README.read_text(encoding="utf-8").partition("\n## Public names\n")
    lines = section.partition("\n## ")[0].splitlines()
    items = " ".join(line for line in lines if line.startswith(("- ", "  ")))
    return re.findall(r"`([A-Za-z_]\w*)`", items)


def test_all_is_sorted_and_has_no_name_twice() -> None:
    assert sample_wire.__all__ == sorted({*sample_wire.__all__})


@pytest.mark.parametrize("name", sample_wire.__all__)
def test_every_public_name_is_documented(name: str) -> None:
    assert (getattr(sample_wire, name).__doc__ or "").strip()


@pytest.mark.parametrize("name", sample_wire.__all__)
def test_every_public_name_belongs_to_the_package(name: str) -> None:
    assert getattr(sample_wire, name).__module__.startswith("sample_wire")


def test_nothing_public_is_missing_from_all() -> None:
    defined = {
        name
        for name, value in vars(sample_wire).items()
        if not name.startswith("_") and getattr(value, "__module__", None) is not None
    }
    assert defined - {*sample_wire.__all__} == set()


def test_readme_lists_exactly_the_public_names() -> None:
    assert sorted(names_in_readme()) == sample_wire.__all__


def test_the_version_is_that_of_the_project() -> None:
    project = (README.parent / "pyproject.toml").read_text(encoding="utf-8")
    assert f'\nversion = "{sample_wire.__version__}"\n' in project
