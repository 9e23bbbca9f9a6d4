"""The plot of a run, as SVG: collect time and reply size by number of turns, on log scales."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, NamedTuple
from xml.sax.saxutils import escape, quoteattr

from .figures import FORMS, Leg, Run
from .tables import MIB, mebibytes, scale_line, seconds
from .trainer import LIBRARY, RECORDS, SAMPLES, STRAIGHTFORWARD

_TITLE: Final = "Collecting one session: time and bytes by number of turns"
_WIDTH, _HEIGHT = 960, 520
_TOP, _BOTTOM = 76, 396  # of the panels
_PANELS: Final = ((88, 410), (560, 882))
# Less room than this between two labels, and the second is left out.
_LABEL_ROOM: Final = 14
_LEGEND_TOP: Final = 448
_INK, _GRID = "#222222", "#dddddd"
_COLORS: Final = {STRAIGHTFORWARD: "#c0392b", LIBRARY: "#d68910", SAMPLES: "#1f618d"}
_DASHES: Final = {False: "", True: "6 4"}
_NAMES: Final = {
    STRAIGHTFORWARD: "records-GET, straightforward",
    LIBRARY: "records-GET, this library",
    SAMPLES: "samples-POST",
}


class _Line(NamedTuple):
    color: str
    dash: str
    places: list[tuple[float, float]]


class _Scale(NamedTuple):
    """A logarithmic scale.

    Attributes:
        low, high: powers of ten, as exponents.
        start, end: where they lie.
    """

    low: float
    high: float
    start: float
    end: float

    def place(self, value: float) -> float:
        """Where a value lies."""
        share = (math.log10(value) - self.low) / (self.high - self.low)
        return self.start + share * (self.end - self.start)


def plot_svg(run: Run, note: str = "") -> str:
    """The plot as an SVG document; ASCII.

    Args:
        run: with a curve of one point or more in each leg.
        note: a line about where it was measured; ASCII too.
    """
    body = [
        _text(_WIDTH / 2, 26, _TITLE, size=18, anchor="middle"),
        _text(_WIDTH / 2, 46, " ".join([scale_line(run.scale), note]).rstrip(), anchor="middle"),
        *_panel(_PANELS[0], "time until the sample is there", _times(run), _time_tick, seconds),
        *_panel(_PANELS[1], "size of the reply", _sizes(run), _size_tick, mebibytes),
        *_legend(),
    ]
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" '
        f'aria-label={quoteattr(_TITLE)} font-family="sans-serif" font-size="13">'
    )
    background = f'<rect width="{_WIDTH}" height="{_HEIGHT}" fill="#ffffff"/>'
    return "\n".join([head, background, *body, "</svg>", ""])


def _times(run: Run) -> list[_Line]:
    return [
        _line(leg, way, [point.seconds[way] for point in leg.curve])
        for leg in run.legs
        for way in _COLORS
    ]


def _sizes(run: Run) -> list[_Line]:
    return [
        _line(leg, way, [point.reply_bytes[path] / MIB for point in leg.curve])
        for leg in run.legs
        for way, path in ((STRAIGHTFORWARD, RECORDS), (SAMPLES, SAMPLES))
    ]


def _line(leg: Leg, way: str, values: Iterable[float]) -> _Line:
    turns = [float(point.turns) for point in leg.curve]
    return _Line(_COLORS[way], _DASHES[leg.incremental], [*zip(turns, values, strict=True)])


def _panel(
    sides: tuple[int, int],
    name: str,
    lines: Sequence[_Line],
    tick: Callable[[float], str],
    shown: Callable[[float], str],
) -> Iterator[str]:
    left, right = sides
    turns = [x for line in lines for x, _ in line.places]
    values = [y for line in lines for _, y in line.places]
    across = _Scale(*_exponents(turns, whole=False), left + 12, right - 12)
    up = _Scale(*_exponents(values, whole=True), _BOTTOM, _TOP)
    yield _text(left, _TOP - 8, name)
    yield from _axes(sides, across, up, sorted(set(turns)), tick)
    labelled: list[float] = []
    for line in lines:
        places = [(across.place(x), up.place(y)) for x, y in line.places]
        yield _stroke(places, line.color, width=2.5, dash=line.dash)
        for x, y in places:
            yield f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.5" fill="{line.color}"/>'
        x, y = places[-1]
        if all(abs(y - other) >= _LABEL_ROOM for other in labelled):
            labelled.append(y)
            yield _text(x + 8, y + 4, shown(line.places[-1][1]), color=line.color)


def _axes(
    sides: tuple[int, int],
    across: _Scale,
    up: _Scale,
    turns: Sequence[float],
    tick: Callable[[float], str],
) -> Iterator[str]:
    left, right = sides
    yield _text((left + right) / 2, _BOTTOM + 38, "turns of the session", anchor="middle")
    for exponent in range(int(up.low), int(up.high) + 1):
        y = up.place(10.0**exponent)
        yield _stroke([(left, y), (right, y)], _GRID)
        yield _text(left - 6, y + 4, tick(10.0**exponent), anchor="end")
    for number in turns:
        x = across.place(number)
        yield _stroke([(x, _BOTTOM), (x, _BOTTOM + 5)], _INK)
        yield _text(x, _BOTTOM + 20, f"{number:g}", anchor="middle")
    yield _stroke([(left, _TOP), (left, _BOTTOM), (right, _BOTTOM)], _INK)


def _time_tick(seconds: float) -> str:
    return f"{seconds:,g} s" if seconds >= 1 else f"{1e3 * seconds:g} ms"


def _size_tick(mebibytes: float) -> str:
    return f"{mebibytes:,g} MiB"


def _exponents(values: Iterable[float], *, whole: bool) -> tuple[float, float]:
    """Of ten, the lowest and the highest; never the same one."""
    logs = [math.log10(value) for value in values]
    low, high = min(logs), max(logs)
    if whole:
        low, high = math.floor(low), math.ceil(high)
    return (low, high) if low < high else (low - 0.5, high + 0.5)


def _legend() -> Iterator[str]:
    for at, (way, color) in enumerate(_COLORS.items()):
        y = _LEGEND_TOP + 20 * at
        for incremental, form in FORMS.items():
            x = _PANELS[incremental][0]
            yield _stroke([(x, y), (x + 36, y)], color, width=2.5, dash=_DASHES[incremental])
            yield _text(x + 44, y + 4, f"{_NAMES[way]}, {form} R3")


def _stroke(
    places: Sequence[tuple[float, float]], color: str, *, width: float = 1, dash: str = ""
) -> str:
    points = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
    dashed = f' stroke-dasharray="{dash}"' if dash else ""
    return (
        f'<polyline points="{points}" fill="none" stroke="{color}" stroke-width="{width}"{dashed}/>'
    )


def _text(
    x: float, y: float, text: str, *, size: int = 13, anchor: str = "start", color: str = _INK
) -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" text-anchor="{anchor}" '
        f'fill="{color}">{escape(text)}</text>'
    )
