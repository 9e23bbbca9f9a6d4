"""What a run found, as rows of a table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

_HEAD: Final = ("| run | what | found | bound | verdict |", "| --- | --- | --- | --- | --- |")
_VERDICTS: Final = {True: "met", False: "**missed**", None: ""}


class Row(NamedTuple):
    """One thing that a run found.

    Attributes:
        what: is told.
        found: a figure with its unit, or how many of how many.
        bound: what it has to be; "" where it is told beside others.
        is_met: whether it is; None without a bound.
        is_fact: whether it is the same on every machine, and so is judged in the tests too.
    """

    what: str
    found: str
    bound: str = ""
    is_met: bool | None = None
    is_fact: bool = False


def fact(what: str, *, count: int, of: int) -> Row:
    """Something that has to hold in every case."""
    return Row(what, f"{count:,} of {of:,}", "all", count == of, is_fact=True)


def at_most(what: str, value: float, bound: float, unit: str) -> Row:
    """A figure of this machine, with its limit."""
    return Row(what, _figure(value, unit), f"<= {bound:g} {unit}", value <= bound)


def told(what: str, value: float, unit: str) -> Row:
    """A figure without a limit."""
    return Row(what, _figure(value, unit))


def _figure(value: float, unit: str) -> str:
    number = f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
    return f"{number} {unit}"


def table(runs: Mapping[str, Sequence[Row]]) -> str:
    """The runs' rows in Markdown."""
    lines = [
        f"| {name} | {row.what} | {row.found} | {row.bound} | {_VERDICTS[row.is_met]} |"
        for name, rows in runs.items()
        for row in rows
    ]
    return "\n".join([*_HEAD, *lines])
