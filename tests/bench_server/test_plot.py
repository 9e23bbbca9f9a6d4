"""The plot: well-formed, in ASCII, with each figure where it belongs."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from typing import Final

import pytest

from sample_wire.bench_server.plot import plot_svg

from ._runs import leg, run

SVG: Final = "{http://www.w3.org/2000/svg}"
BOTH: Final = run(leg(), leg(incremental=True))


@pytest.fixture(scope="module")
def document() -> ElementTree.Element:
    """The plot of both legs."""
    return ElementTree.fromstring(plot_svg(BOTH, "A < B & C."))


def texts(document: ElementTree.Element) -> list[str]:
    return [str(one.text) for one in document.iter(f"{SVG}text")]


def places(line: ElementTree.Element) -> list[tuple[float, float]]:
    pairs = (pair.split(",") for pair in line.attrib["points"].split())
    return [(float(x), float(y)) for x, y in pairs]


def curves(document: ElementTree.Element) -> list[ElementTree.Element]:
    """The lines of figures; those of the legend have two points at one height."""
    lines = [line for line in document.iter(f"{SVG}polyline") if line.get("stroke-width") == "2.5"]
    return [line for line in lines if places(line)[0][1] != places(line)[1][1]]


def test_it_is_ascii_and_a_line_more_than_the_last() -> None:
    text = plot_svg(BOTH)
    assert text.isascii()
    assert text.endswith("</svg>\n")


def test_what_is_told_of_the_machine_is_escaped(document: ElementTree.Element) -> None:
    assert any(text.endswith("256 experts. A < B & C.") for text in texts(document))


def test_there_is_a_line_for_each_way_and_leg(document: ElementTree.Element) -> None:
    found = [(line.get("stroke"), line.get("stroke-dasharray")) for line in curves(document)]
    assert len(found) == 2 * 3 + 2 * 2
    assert sum(dash is not None for _, dash in found) == 5


def test_a_tenfold_value_is_one_tick_higher(document: ElementTree.Element) -> None:
    """All figures of the run grow tenfold from the first point to the last."""
    heights = [a[1] - b[1] for a, b in map(places, curves(document))]
    # Of three powers of ten between 10 ms and 10 s, and of two between 10 MiB and 1,000 MiB.
    assert heights == pytest.approx([320 / 3] * 6 + [320 / 2] * 4, abs=0.1)


def test_more_is_higher_and_later_is_further_to_the_right(document: ElementTree.Element) -> None:
    times = curves(document)[:3]
    heights = [places(line)[0][1] for line in times]
    assert heights == sorted(heights)
    assert all(a[0] < b[0] for a, b in map(places, times))


@pytest.mark.parametrize(
    "label",
    ["10 ms", "100 ms", "1 s", "10 s", "10 MiB", "1,000 MiB", "10.0 s", "1.00 s", "1,000.0 MiB"],
)
def test_ticks_and_ends_are_labelled(document: ElementTree.Element, label: str) -> None:
    assert label in texts(document)


def test_labels_that_would_lie_on_each_other_are_told_once(document: ElementTree.Element) -> None:
    """Both legs of the run have the same figures."""
    assert texts(document).count("10.0 s") == 1


@pytest.mark.parametrize("form", ["full-prefix", "incremental"])
@pytest.mark.parametrize(
    "name", ["records-GET, straightforward", "records-GET, this library", "samples-POST"]
)
def test_the_legend_names_every_line(document: ElementTree.Element, name: str, form: str) -> None:
    assert f"{name}, {form} R3" in texts(document)


def test_one_point_is_plotted_too() -> None:
    one = leg()
    del one.curve[1:]
    document = ElementTree.fromstring(plot_svg(run(one)))
    assert len([*document.iter(f"{SVG}circle")]) == 5
