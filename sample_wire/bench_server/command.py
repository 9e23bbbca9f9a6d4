"""The command `bench server`: its arguments, and what it prints and writes.

Nothing of the servers is imported before it runs: `sample-wire --help` needs no extra.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, NoReturn

import msgspec

from .._extras import without_extra

if TYPE_CHECKING:
    from .figures import Run
    from .scale import Scale

_SIZES: Final = {
    "sessions": "sessions that are collected",
    "turns": "turns of a session",
    "tokens_per_turn": "tokens that a turn adds",
    "layers": "layers of a routing row",
    "top_k": "experts of a layer that a token goes through",
    "experts": "experts of a layer",
}
_MISSING: Final = (
    'sample-wire: bench server needs an extra: pip install "sample-wire[server]" ({})\n'
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of the command."""
    parser.description = (
        "Collects sessions by both paths, records-GET and samples-POST, while an agent chats: "
        "server, engine, agent, trainer and a prober of /health are processes on this machine. "
        "Sizes that are not given are the production shape's, and take minutes."
    )
    add_scale_arguments(parser)
    parser.add_argument("--json", metavar="FILE", help="write all figures as JSON too")
    parser.add_argument("--svg", metavar="FILE", help="write the plot too")
    parser.set_defaults(run=run, refuse_usage=parser.error)


def add_scale_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments that say how large the run is."""
    parser.add_argument("--quick", action="store_true", help="a small run, of some seconds")
    for name, what in _SIZES.items():
        parser.add_argument(f"--{name.replace('_', '-')}", type=int, metavar="N", help=what)


def scale_of(options: argparse.Namespace) -> Scale:
    """The scale that the arguments spell; what is not given is the production shape's.

    Raises:
        ValueError: sizes that do not hold.
    """
    from .scale import QUICK, Scale

    given = {name: value for name in _SIZES if (value := getattr(options, name)) is not None}
    return msgspec.structs.replace(QUICK if options.quick else Scale(), **given)


def run(options: argparse.Namespace) -> int:
    """Runs the benchmark and prints what it finds; returns the exit status.

    Raises:
        SampleWireError: memory is short, a process failed, or the two paths differ.
        OSError: a file cannot be written; told before anything is measured.
        SystemExit: 2, for arguments that do not hold.
    """
    refuse: Callable[[str], NoReturn] = options.refuse_usage
    if options.shape is not None:
        refuse("--shape is for encode and decode alone")
    try:
        from ..demo.progress import Progress
        from .measure import measure
        from .tables import report_text
    except ModuleNotFoundError as error:
        return without_extra(error, _MISSING)
    try:
        scale = scale_of(options)
    except ValueError as error:
        refuse(str(error))
    for name in filter(None, (options.json, options.svg)):
        _write(name, "")
    progress = Progress()
    try:
        found = measure(scale, progress)
    finally:
        progress.close()
    sys.stdout.write(report_text(found) + "\n")
    _write_files(options, found)
    return 0


def _write_files(options: argparse.Namespace, found: Run) -> None:
    from .plot import plot_svg

    if options.json is not None:
        _write(options.json, msgspec.json.encode(found).decode())
    if options.svg is not None:
        _write(options.svg, plot_svg(found))


def _write(name: str, text: str) -> None:
    with open(name, "w", encoding="ascii") as file:
        file.write(text)
