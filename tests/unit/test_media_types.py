"""Which layout an Accept header asks for, and how Content-Types are read."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sample_wire.adapters._media_types import (
    PAYLOAD_TYPES,
    accept_header,
    accepted_layout,
    canonical_type,
    wanted_types,
)
from sample_wire.codec import Layout

OCTETS = "application/octet-stream"
COMPACT = f"{OCTETS}; format=2"

EXACT_IS_SENT = {
    "nothing": "",
    "any type": "*/*",
    "any application": "application/*",
    "the type": OCTETS,
    "upper case": "APPLICATION/OCTET-STREAM",
    "format 1": f"{OCTETS}; format=1",
    "a lowest weight": f"{OCTETS}; q=0.001",
    "a browser's": "text/html, application/xhtml+xml, */*;q=0.8",
    "other parameters": f"{OCTETS}; charset=binary; version=2",
    "compact less liked": f"{COMPACT}; q=0.4, {OCTETS}; q=0.5",
    "compact excluded": f"{COMPACT}; q=0, */*",
    "a wildcard that excludes and a type that does not": f"*/*; q=0, {OCTETS}",
    "any application excluded and a type that is not": f"application/*; q=0, {OCTETS}",
    "the specific range has the weight": f"*/*; q=0.1, {OCTETS}; q=0.9, {COMPACT}; q=0.5",
    "formats named, format 1 first": f"{OCTETS}; format=1, {COMPACT}",
    "an unknown format before any": f"{OCTETS}; format=3, */*; q=0.1",
    "empty members": f" , ,{OCTETS},, ",
    "a first range as specific as a second": f"{OCTETS}; q=0.5, {OCTETS}; q=0",
}
COMPACT_IS_SENT = {
    "the type": COMPACT,
    "no spaces": f"{OCTETS};format=2",
    "tabs": f"{OCTETS}\t;\tformat=2\t;\tq=1",
    "upper case": "Application/Octet-Stream; FORMAT=2; Q=1",
    "quoted": f'{OCTETS}; format="2"',
    "quoted with a backslash": f'{OCTETS}; format="\\2"',
    "empty parameters": f"{OCTETS};; format=2 ;",
    "a weight before the format": f"{OCTETS}; q=0.2; format=2",
    "this library's client": f"{COMPACT}, {OCTETS}; q=0.5",
    "equal weights, the specific one wins": f"{OCTETS}, {COMPACT}",
    "before any type": f"*/*, {COMPACT}",
    "with another parameter": f'{OCTETS}; note="a, b; q=0"; format=2',
    "a wildcard with the format": "*/*; format=2",
    "other types": f"text/html, {COMPACT}; q=0.3",
    "formats named, format 2 first": f"{COMPACT}, {OCTETS}; format=1",
    "exact excluded": f"{OCTETS}; q=0, {COMPACT}; q=0.1",
    "the longest weights": f"{COMPACT}; q=1.000, {OCTETS}; q=0.999",
}
NOTHING_IS_SENT = {
    "another type": "application/json",
    "an unknown format": f"{OCTETS}; format=3",
    "a format with zeros": f"{OCTETS}; format=02",
    "an empty format": f'{OCTETS}; format=""',
    "everything excluded": "*/*; q=0",
    "both excluded": f"{OCTETS}; q=0.0, {COMPACT}; q=0.000",
    "the type excluded from any": f"*/*, {OCTETS}; q=0",
    "a type that only begins alike": f"{OCTETS}s",
    "a wildcard for the type alone": "*/octet-stream",
}
MALFORMED = {
    "no type": "octets",
    "no subtype": "application/",
    "spaces in a type": "application / octet-stream",
    "a weight that is none": f"{COMPACT}; q=high",
    "a weight above 1": f"{COMPACT}; q=1.001",
    "a negative weight": f"{COMPACT}; q=-1",
    "a weight of four digits": f"{COMPACT}; q=0.0001",
    "no weight": f"{COMPACT}; q=",
    "two weights": f"{OCTETS}; q=0; q=0",
    "two formats": f"{OCTETS}; format=1; format=2",
    "a parameter without a value": f"{OCTETS}; format",
    "spaces around =": f"{OCTETS}; format = 2",
    "a quoted string that does not end": f'{OCTETS}; format="2, text/html',
    "a quoted string that ends in a backslash": f'{OCTETS}; format="2\\',
    "text after a quoted string": f'{OCTETS}; format="2"2',
    "bytes that are no token": f"{OCTETS}; format=\xb2",
    "a control character": f"{OCTETS}\x00; format=2",
}


MEMBERS = [*EXACT_IS_SENT.values(), *COMPACT_IS_SENT.values(), *MALFORMED.values()]


def cases(headers: dict[str, str]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("header", headers.values(), ids=headers)


@cases(EXACT_IS_SENT)
def test_the_exact_layout_is_sent_to_who_does_not_ask_for_another(header: str) -> None:
    assert accepted_layout([header]) == "exact"


@cases(COMPACT_IS_SENT)
def test_the_compact_layout_is_sent_to_who_names_its_format(header: str) -> None:
    assert accepted_layout([header]) == "compact"


@cases(NOTHING_IS_SENT)
def test_who_takes_neither_layout_is_sent_neither(header: str) -> None:
    assert accepted_layout([header]) is None


@cases(MALFORMED)
def test_a_header_that_is_malformed_counts_as_absent(header: str) -> None:
    assert accepted_layout([header]) == accepted_layout([]) == "exact"


@cases(MALFORMED)
def test_a_malformed_member_does_not_spoil_those_before_it(header: str) -> None:
    assert accepted_layout([f"{COMPACT}; q=0.1, {header}"]) == "compact"


def test_several_header_lines_are_one_list() -> None:
    assert accepted_layout(["text/html", f"{OCTETS}; q=0.5", COMPACT]) == "compact"


@settings(max_examples=300, deadline=None)
@given(
    st.lists(st.text('a/*;,="\\ q.012format', max_size=30) | st.sampled_from(MEMBERS), max_size=5)
)
def test_any_header_gives_a_layout_or_none(headers: list[str]) -> None:
    assert accepted_layout(headers) in ("exact", "compact", None)
    assert accepted_layout(headers) == accepted_layout([", ".join(headers)])


@pytest.mark.parametrize("piece", ['"', "\\", '"\\', '\\"', ",", ";", "a/b;c=", '";"', "q=0;"])
def test_a_long_header_is_read_in_linear_time(piece: str) -> None:
    """A quadratic reader would take minutes for these, the linear one takes milliseconds."""
    assert accepted_layout([f"{COMPACT},x/y;", piece * 200_000, f",{COMPACT}"]) == "compact"


@pytest.mark.parametrize("layout", PAYLOAD_TYPES)
def test_what_a_client_asks_for_is_what_it_is_sent(layout: Layout) -> None:
    assert accepted_layout([accept_header(wanted_types(layout))]) == layout


def test_a_client_that_wants_the_compact_layout_takes_the_exact_one_too() -> None:
    assert accept_header(wanted_types("compact")) == f"{COMPACT}, {OCTETS}; q=0.5"


@pytest.mark.parametrize(
    ("content_type", "canonical"),
    [
        (OCTETS, OCTETS),
        ("Application/Octet-Stream; charset=binary", OCTETS),
        (f"{OCTETS};format=1", OCTETS),
        (f"{OCTETS};FORMAT=2", COMPACT),
        (f'{OCTETS} ;  format="2"', COMPACT),
        (f"{OCTETS}; charset=binary; format=2", COMPACT),
        (f"{OCTETS}; format=3", f"{OCTETS}; format=3"),
        (f"{OCTETS}; charset", OCTETS),
        (f"{OCTETS};", OCTETS),
        ("text/html; charset=utf-8", "text/html"),
        ("application/json; format=2", "application/json"),
        ("", ""),
    ],
)
def test_a_content_type_is_spelled_in_one_way(content_type: str, canonical: str) -> None:
    assert canonical_type(content_type) == canonical
