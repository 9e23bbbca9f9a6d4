"""The command `sample-wire`: a thin shell that reads files and prints what others made.

Exit status: 0 good; 1 the payload or recording is refused, or the demo failed; 2 wrong
usage or a file that cannot be read or written; 130 interrupted; 141 the reader of our output
went away.
"""

from __future__ import annotations

import argparse
import mmap
import os
import sys
from collections.abc import Sequence
from typing import Final

from . import __version__
from ._assemble_command import (
    add_options,
    assemble_recording,
    option_for,
    read_recording,
    read_turns,
    routing_spec,
)
from ._extras import USAGE
from ._report import printable, summary_text
from ._tree_report import tree_text
from .adapters.server import command as serving
from .assembly import AssemblyResult
from .bench import SHAPES, bench_lines
from .bench_server import command as benching
from .codec import decode_samples, encode_samples
from .demo import command as demonstrating
from .errors import AssemblyError, DecodeError, SampleWireError
from .inspection import inspect_payload, summary_json
from .payload import Payload
from .reader import MAX_SAMPLES
from .sample import Sample

REFUSED: Final = 1
INTERRUPTED: Final = 130  # 128 + SIGINT and 128 + SIGPIPE, as shells report them
BROKEN_PIPE: Final = 141
_STDIN: Final = "-"
_STDOUT: Final = "-"
# Recordings from this size on take seconds: only they show progress.
PROGRESS_BYTES: Final = 64 * 2**20
_PROGRESS_LINES: Final = 10
_FIELD_SETS: Final = tuple(Sample.__sample_schema__.field_sets)


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command line; returns the exit status.

    Args:
        argv: the arguments without the program's name; None takes the process's own.

    Raises:
        SystemExit: from argparse, for --help, --version and wrong usage (2).
    """
    arguments = _parser().parse_args(argv)
    try:
        status: int = arguments.run(arguments)
        sys.stdout.flush()
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        # What is still buffered would fail again when the interpreter flushes it at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return BROKEN_PIPE
    except SampleWireError as error:
        _complain(f"{type(error).__name__}: {error}")
        return REFUSED
    except OSError as error:
        _complain(_why_unreadable(error))
        return USAGE
    return status


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="sample-wire", description="Looks into, checks and measures sample_wire payloads."
    )
    parser.add_argument("--version", action="version", version=f"sample-wire {__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)

    inspect = commands.add_parser("inspect", help="say what a payload holds")
    inspect.add_argument("file", metavar="FILE", help="the payload; - reads standard input")
    form = inspect.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="print one JSON object")
    form.add_argument("--tree", action="store_true", help="print the session's tree instead")
    inspect.add_argument(
        "--no-max-id", action="store_true", help="leave R3's bytes unread, and its max id out"
    )
    _add_reading_options(inspect)
    inspect.set_defaults(run=_inspect)

    verify = commands.add_parser("verify", help="decode payloads and throw the samples away")
    verify.add_argument("files", metavar="FILE", nargs="+", help="payloads; - is standard input")
    _add_reading_options(verify)
    verify.set_defaults(run=_verify)

    assemble = commands.add_parser("assemble", help="make a payload of recorded turns")
    add_options(assemble)
    assemble.set_defaults(run=_assemble, refuse_usage=assemble.error)

    serve = commands.add_parser("serve", help="run session servers in front of an engine")
    serving.add_arguments(serve)
    serve.set_defaults(run=serving.run)

    bench = commands.add_parser("bench", help="measure encode and decode on this machine")
    bench.add_argument("--shape", choices=tuple(SHAPES), help="one shape instead of all")
    bench.set_defaults(run=_bench)
    benches = bench.add_subparsers(title="of servers instead", metavar="[server ...]")
    benching.add_arguments(benches.add_parser("server", help="collect sessions under load"))

    demo = commands.add_parser("demo", help="run a rollout on this machine, or send a recorded one")
    demonstrating.add_arguments(demo)
    return parser


def _add_reading_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--field-set",
        type=int,
        choices=_FIELD_SETS,
        default=_FIELD_SETS[0],
        help="the field set that the payload was asked for (default %(default)s)",
    )
    parser.add_argument(
        "--max-samples",
        type=int,
        metavar="N",
        default=MAX_SAMPLES,
        help="refuse more samples (default %(default)s)",
    )


def _inspect(arguments: argparse.Namespace) -> int:
    reading = {"field_set": arguments.field_set, "max_samples": arguments.max_samples}
    try:
        if arguments.tree:
            print(tree_text(_read(arguments.file), **reading))
            return 0
        summary = inspect_payload(_read(arguments.file), **reading, max_ids=not arguments.no_max_id)
    except DecodeError as error:
        _complain_of(arguments.file, error)
        return REFUSED
    name = _shown(arguments.file)
    print(summary_json(summary) if arguments.json else summary_text(summary, name))
    return 0


def _verify(arguments: argparse.Namespace) -> int:
    return max(
        _verify_one(name, arguments.field_set, arguments.max_samples) for name in arguments.files
    )


def _verify_one(name: str, field_set: int, max_samples: int) -> int:
    try:
        payload = _read(name)
        reply = decode_samples(payload, Sample(), field_set=field_set, max_samples=max_samples)
    except OSError as error:
        _complain(_why_unreadable(error))
        return USAGE
    except DecodeError as error:
        _complain_of(name, error)
        return REFUSED
    print(f"{_shown(name)}: good, {len(payload):,} bytes, samples {len(reply.samples):,}")
    return 0


def _assemble(arguments: argparse.Namespace) -> int:
    try:
        routing = routing_spec(arguments)
    except ValueError as error:
        arguments.refuse_usage(str(error))
    data = _read(arguments.records)
    if _is_same_file(arguments.records, arguments.output):
        arguments.refuse_usage("the payload would be written over the recording")
    try:
        recording = read_recording(data)
        show = _show_progress if len(data) >= PROGRESS_BYTES else _show_nothing
        turns = read_turns(recording.records, routing, show)
        result = assemble_recording(recording, turns, arguments)
        payload = encode_samples(
            result.samples,
            recording.metadata,
            empty_reason=result.empty_reason,
            field_set=arguments.field_set,
        )
    except AssemblyError as error:
        _complain_of(arguments.records, error, option_for(error, routing))
        return REFUSED
    except SampleWireError as error:
        _complain_of(arguments.records, error)
        return REFUSED
    _write(arguments.output, payload)
    _report_assembly(arguments.output, payload, len(turns), result)
    return 0


def _report_assembly(name: str, payload: Payload, num_turns: int, result: AssemblyResult) -> None:
    """Says what was made; on standard error where the payload itself is on standard output."""
    stream = sys.stderr if name == _STDOUT else sys.stdout
    shown = "standard output" if name == _STDOUT else printable(name)
    num_samples = len(result.samples)
    print(
        f"{shown}: {payload.nbytes:,} bytes, turns {num_turns:,}, samples {num_samples:,}",
        file=stream,
    )
    if result.empty_reason is not None:
        print(f"no samples: {result.empty_reason}", file=stream)
    for index, sample in enumerate(result.samples):
        dropped = sample.metadata.get("dropped_turns")
        if dropped is not None:
            count, reason = dropped["count"], dropped["reason"]
            print(f"sample {index}: turns left out {count} ({reason})", file=stream)
    print("There is no tokenizer here: the response text is empty.", file=stream)


def _show_progress(number: int, num_turns: int) -> None:
    """On a terminal one line that the next is written over; in a log a line now and then."""
    text = f"sample-wire: turn {number} of {num_turns}"
    if sys.stderr.isatty():
        print(text, end="\n" if number == num_turns else "\r", file=sys.stderr, flush=True)
    elif number * _PROGRESS_LINES // num_turns > (number - 1) * _PROGRESS_LINES // num_turns:
        print(text, file=sys.stderr, flush=True)


def _show_nothing(number: int, num_turns: int) -> None:
    """The progress of a recording that is read at once."""


def _bench(arguments: argparse.Namespace) -> int:
    for line in bench_lines([arguments.shape] if arguments.shape else list(SHAPES)):
        print(line, flush=True)
    return 0


def _read(name: str) -> bytes | mmap.mmap:
    """A file's bytes: mapped where that can be done, else read."""
    if name == _STDIN:
        return sys.stdin.buffer.read()
    with open(name, "rb") as file:
        try:
            return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except (ValueError, OSError):  # an empty file, a pipe, a device
            return file.read()


def _write(name: str, payload: Payload) -> None:
    if name == _STDOUT:
        payload.write_to(sys.stdout.buffer)
        sys.stdout.buffer.flush()  # whoever does not take it is noticed here, not at exit
        return
    with open(name, "wb") as file:
        payload.write_to(file)


def _is_same_file(one: str, other: str) -> bool:
    return os.path.exists(one) and os.path.exists(other) and os.path.samefile(one, other)


def _shown(name: str) -> str:
    return "standard input" if name == _STDIN else printable(name)


def _why_unreadable(error: OSError) -> str:
    where = f"{printable(str(error.filename))}: " if error.filename is not None else ""
    return f"{where}{error.strerror or error}"


def _complain_of(name: str, error: SampleWireError, more: str = "") -> None:
    _complain(f"{_shown(name)}: {type(error).__name__}: {error}{more}")


def _complain(text: str) -> None:
    print(f"sample-wire: {printable(text)}", file=sys.stderr)
