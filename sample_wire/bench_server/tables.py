"""What a run found, as tables: cells that a terminal and a Markdown page show alike."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from .._report import markdown_table, text_table
from .figures import FORMS, Collecting, Leg, Load, Run
from .scale import Scale
from .trainer import LIBRARY, SAMPLES, STRAIGHTFORWARD

Rows = list[list[str]]
_HEAD: Final = ("records-GET", "samples-POST", "ratio", "no collects")
MIB: Final = 2**20
_EXPLAINED: Final = (
    "records-GET: the client gets all records and makes the sample, in the straightforward way of\n"
    "the reference system (parse, decode, merge by deep copies) or by this library's assembly.\n"
    "samples-POST: the server makes it.  collect: from the request to the sample, mean of the\n"
    "sessions.  meanwhile: while a reply was on its way; no collects: the agent alone.\n"
    "All samples were equal by all ways, bit for bit; the straightforward one has no metadata."
)


def report_text(run: Run) -> str:
    """The whole report for a terminal."""
    parts = [scale_line(run.scale)]
    for leg in run.legs:
        parts += ["", f"{title(leg)}.  {memory_line(leg, run.scale)}"]
        parts += text_table(leg_rows(leg, run.scale), left={0})
    parts += ["", _EXPLAINED, "", *text_table(target_rows(run), left={0})]
    return "\n".join([*parts, "", f"The whole run took {seconds(run.wall_s)}."])


def report_markdown(run: Run) -> str:
    """The whole report for a Markdown page, headings of the third level."""
    parts = [scale_line(run.scale)]
    for leg in run.legs:
        parts += [f"### {title(leg)}", markdown_table(leg_rows(leg, run.scale))]
        parts.append(f"{memory_line(leg, run.scale)}.")
    parts += [_EXPLAINED, "### Held against what was asked for", markdown_table(target_rows(run))]
    return "\n\n".join([*parts, f"The whole run took {seconds(run.wall_s)}."])


def title(leg: Leg) -> str:
    """What a leg is called."""
    return f"R3 {FORMS[leg.incremental]}"


def scale_line(scale: Scale) -> str:
    """How large the run is."""
    return (
        f"Sessions: {scale.sessions}, of {scale.turns} turns of {scale.tokens_per_turn:,} tokens; "
        f"R3: {scale.layers} layers x top {scale.top_k} of {scale.experts} experts."
    )


def memory_line(leg: Leg, scale: Scale) -> str:
    """What a session takes in the server."""
    grown = leg.resident_per_session
    if grown is None:
        return "This system does not tell the server's resident set"
    return (
        f"Server RSS for each session {size(grown)}, {grown / scale.narrow_bytes():.2f}x of its "
        "narrow R3 and int32 ids"
    )


def leg_rows(leg: Leg, scale: Scale) -> Rows:
    """Both paths of a leg side by side, and what there was while nothing was collected."""
    return [["", *_HEAD], *_collect_rows(leg, scale), *_load_rows(leg)]


def _collect_rows(leg: Leg, scale: Scale) -> Iterator[list[str]]:
    records, samples = leg.records, leg.samples
    ours = samples.seconds[SAMPLES]
    for name, way in (
        ("collect, straightforward way", STRAIGHTFORWARD),
        ("collect, this library's assemble", LIBRARY),
    ):
        yield _compared(name, records.seconds[way], ours, seconds)
    yield _compared("of it, until the last byte", records.received_s, samples.received_s, seconds)
    yield _compared("reply", records.reply_bytes, samples.reply_bytes, size)
    yield ["replies", f"{records.num_replies:,}", f"{samples.num_replies:,}", "", ""]
    theirs, all_ours = (
        leg.chat_s + scale.sessions * one for one in (records.seconds[STRAIGHTFORWARD], ours)
    )
    chat = seconds(leg.chat_s)
    yield [
        *_compared("chat and one collect each, summed", theirs, all_ours, seconds)[:-1],
        chat,
    ]


def _load_rows(leg: Leg) -> Iterator[list[str]]:
    loads = (leg.records.load, leg.samples.load, leg.quiet)
    cells: dict[str, Callable[[Load], str]] = {
        "chat meanwhile, turns": lambda load: f"{load.chat.count:,}",
        "chat p50 / p95 / p99, ms": lambda load: _several(
            load.chat.p50_s, load.chat.p95_s, load.chat.p99_s
        ),
        "/health meanwhile, asked": lambda load: f"{load.health.latencies.count:,}",
        "/health meanwhile, not 200": lambda load: f"{load.health.num_failed:,}",
        "/health p50 / p99 / max, ms": lambda load: _several(
            load.health.latencies.p50_s, load.health.latencies.p99_s, load.health.latencies.max_s
        ),
        "longest gap of the server's loop": lambda load: seconds(load.longest_gap_s),
        "server RSS, peak": lambda load: size(load.peak_resident),
    }
    for name, cell in cells.items():
        records, samples, quiet = map(cell, loads)
        yield [name, records, samples, "", quiet]
    yield [
        "/health all along, not 200",
        *map(_all_along, (leg.records, leg.samples)),
        "",
        "",
    ]


def _all_along(path: Collecting) -> str:
    return f"{path.health.num_failed:,} of {path.health.latencies.count:,}"


def _compared(name: str, theirs: float, ours: float, shown: Callable[[float], str]) -> list[str]:
    return [name, shown(theirs), shown(ours), _times(theirs / ours), ""]


def target_rows(run: Run) -> Rows:
    """What was asked for, what was found, and whether it holds at this scale."""
    rows: Rows = []
    for leg in run.legs:
        for what, bound, found, holds in _targets(leg, run.scale):
            verdict = "met" if holds else "**missed**"
            if not _is_full(run.scale):
                verdict = "at full scale only"
            rows.append([f"{title(leg)}: {what}", bound, found, verdict])
    return [["", "asked for", "found", ""], *rows]


def _targets(leg: Leg, scale: Scale) -> Iterator[tuple[str, str, str, bool]]:
    records, samples, health = leg.records, leg.samples, leg.samples.load.health
    if not leg.incremental:
        smaller = records.reply_bytes / samples.reply_bytes
        yield "reply smaller than the records dump", ">= 30x", _times(smaller), smaller >= 30
        faster = records.seconds[STRAIGHTFORWARD] / samples.seconds[SAMPLES]
        yield "collect faster than by the records dump", ">= 100x", _times(faster), faster >= 100
        if leg.resident_per_session is not None:
            share = leg.resident_per_session / scale.narrow_bytes()
            yield "server RSS over narrow R3 and ids", "<= 1.5x", f"{share:.2f}x", share <= 1.5
    failed, p99_s = health.num_failed, health.latencies.p99_s
    yield "/health not 200 during collects", "0", f"{failed:,}", failed == 0
    yield "/health p99 during collects", "<= 50 ms", seconds(p99_s), p99_s <= 0.05


def _is_full(scale: Scale) -> bool:
    """Whether its sessions are at least those of the production shape."""
    full = Scale()
    return all(
        getattr(scale, name) >= getattr(full, name)
        for name in ("turns", "tokens_per_turn", "layers", "top_k")
    )


def seconds(value: float) -> str:
    """Three digits, in milliseconds below a second."""
    return f"{_digits(value)} s" if value >= 1 else f"{_digits(1e3 * value)} ms"


def size(num_bytes: float | None) -> str:
    """In MiB; a question mark for what is not told."""
    return "?" if num_bytes is None else mebibytes(num_bytes / MIB)


def mebibytes(number: float) -> str:
    """With one decimal."""
    return f"{number:,.1f} MiB"


def _several(*values: float) -> str:
    """Times in milliseconds."""
    return " / ".join(_digits(1e3 * value) for value in values)


def _times(ratio: float) -> str:
    return f"{_digits(ratio)}x"


def _digits(number: float) -> str:
    """Three significant digits at least, without an exponent."""
    decimals = 0 if number >= 100 else 1 if number >= 10 else 2
    return f"{number:,.{decimals}f}"
