"""Text for a terminal: aligned tables, and the summary of a payload as such.

The same input gives the same text, of printable ASCII only.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Sequence

from .inspection import LogProbSummary, PayloadSummary, SampleSummary


def summary_text(summary: PayloadSummary, name: str = "payload") -> str:
    """The summary as lines for a terminal: what is null in the payload reads null."""
    lines = [
        f"{printable(name)}: {summary.payload_bytes:,} bytes, field set {summary.field_set}"
        + (", compact layout" if summary.layout == "compact" else ""),
        f"samples {summary.num_samples:,}, tokens {_count(summary.num_tokens)}, "
        f"trained {_count(summary.num_trained)}",
        f"R3: {summary.r3_bytes:,} bytes, {_percent(summary.r3_share)} of the payload",
        f"session metadata: {_listed(summary.session_metadata_keys)}",
    ]
    if summary.empty_reason is not None:
        lines.append(f"empty reason: {printable(summary.empty_reason)}")
    if summary.samples:
        lines += ["", *_token_table(summary.samples), *_r3_table(summary.samples), ""]
        versions = [_listed(_folded(sample.weight_versions)) for sample in summary.samples]
        lines += _grouped("weight versions", versions)
        lines += _grouped("nulls", [_listed(sample.nulls) for sample in summary.samples])
    return "\n".join(lines)


def _token_table(samples: Sequence[SampleSummary]) -> list[str]:
    head = ["sample", "status", "tokens", "response", "trained", "turns", "lp mean", "lp min"]
    rows = [
        [
            str(index),
            printable(str(sample.status)),
            _count(sample.num_tokens),
            _count(sample.response_length),
            _count(sample.num_trained),
            _count(sample.num_turns),
            *_log_prob_cells(sample.log_probs),
        ]
        for index, sample in enumerate(samples)
    ]
    return text_table([head, *rows], left={1})


def _log_prob_cells(log_probs: LogProbSummary | None) -> list[str]:
    if log_probs is None:
        return ["null", "null"]
    return [
        f"{number:.4f}" if isinstance(number, float) else number
        for number in (log_probs.mean, log_probs.min)
    ]


def _r3_table(samples: Sequence[SampleSummary]) -> list[str]:
    rows = [
        [
            str(index),
            "x".join(map(str, sample.r3.shape)),
            sample.r3.dtype,
            _count(sample.r3.max_id),
            f"{sample.r3.nbytes:,}",
            _percent(sample.r3.share),
        ]
        for index, sample in enumerate(samples)
        if sample.r3
    ]
    head = ["sample", "R3 shape", "dtype", "max id", "bytes", "share"]
    return ["", *text_table([head, *rows], left={1, 2})] if rows else []


def text_table(rows: Sequence[Sequence[str]], *, left: Collection[int]) -> list[str]:
    """Aligned lines, the first row being the head.

    Args:
        rows: cells of printable text, as many in every row.
        left: the columns that are aligned to the left; all others are to the right.
    """
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(
            cell.ljust(width) if position in left else cell.rjust(width)
            for position, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]


def markdown_table(rows: Sequence[Sequence[str]]) -> str:
    """A table of Markdown; rows as for text_table."""
    head, *others = rows
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (head, ["---"] * len(head), *others))


def printable(text: str) -> str:
    """The text with all but printable ASCII escaped: a payload must not drive a terminal."""
    if text.isascii() and text.isprintable():
        return text
    return text.encode("unicode_escape").decode("ascii")


def _listed(texts: Sequence[str]) -> str:
    return ", ".join(map(printable, texts)) or "none"


def _folded(texts: Sequence[str]) -> list[str]:
    """Runs of one text as 'text x count'."""
    runs = [(text, len(list(group))) for text, group in itertools.groupby(texts)]
    return [text if count == 1 else f"{text} x {count}" for text, count in runs]


def _grouped(title: str, values: Sequence[str]) -> list[str]:
    """A line for each different value, with the samples that have it."""
    samples_of: dict[str, list[int]] = {}
    for index, value in enumerate(values):
        samples_of.setdefault(value, []).append(index)
    if len(samples_of) == 1:
        return [f"{title}: {value}" for value in samples_of]
    return [f"{title}, sample {_ranges(found)}: {value}" for value, found in samples_of.items()]


def _ranges(numbers: Sequence[int]) -> str:
    """Ascending numbers, neighbours drawn together: '0-3, 7'."""
    runs = itertools.groupby(enumerate(numbers), key=lambda item: item[1] - item[0])
    bounds = [[number for _, number in group] for _, group in runs]
    return ", ".join(f"{run[0]}-{run[-1]}" if len(run) > 1 else str(run[0]) for run in bounds)


def _count(number: int | None) -> str:
    return "null" if number is None else f"{number:,}"


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"
