"""Runs every soak and fault for long and prints what was found.

    python -m tests.soak [--write]

--write puts the table into benchmarks/README.md.  Exits with 1 where something is not as it
has to be.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from typing import Final

from benchmarks import _site
from benchmarks._machine import describe
from benchmarks.report import README, replaced

from ._client_killed import client_killed
from ._engine_killed import engine_killed
from ._half_open import half_open
from ._processes import Site, running
from ._rows import Row, table
from ._server_restarted import server_restarted
from ._short_sessions import short_sessions
from ._slow_readers import slow_readers

# Of heads and bodies; the defaults are for slower networks than this.
_DEADLINES: Final = ("--head-timeout", "10", "--body-timeout", "10")
_MARKERS: Final = {"begin_mark": "<!-- soak: begin -->", "end_mark": "<!-- soak: end -->"}
_SMALL: Final[dict[str, Callable[[Site], list[Row]]]] = {
    "1,000 short sessions": lambda site: short_sessions(site, num_sessions=1000, num_first=100),
    "engine killed": lambda site: engine_killed(site, num_rounds=10),
    "server killed": lambda site: server_restarted(site, num_rounds=10),
    "200 half-open sockets": lambda site: half_open(site, num_sockets=200, num_turns=40),
}
_AT_P: Final[dict[str, Callable[[_site.Site], list[Row]]]] = {
    "client killed": lambda site: client_killed(site, num_rounds=8),
    "8 slow readers": lambda site: slow_readers(site, num_readers=8, num_chats=50),
}


def main(arguments: Sequence[str]) -> int:
    """Runs the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.soak", description=__doc__.splitlines()[0]
    )
    parser.add_argument("--write", action="store_true", help="put the table into the README")
    options = parser.parse_args(arguments)
    runs: dict[str, list[Row]] = {}
    for name, run in _SMALL.items():
        with running(*_DEADLINES) as site:
            runs[name] = run(site)
    for name, run_at_p in _AT_P.items():
        with _site.serving("P", incremental=True) as site_at_p:
            runs[name] = run_at_p(site_at_p)
    command = " ".join(["python -m tests.soak", *arguments])
    report = "\n".join([*describe(command), "", table(runs)])
    print(report)
    if options.write:
        README.write_text(replaced(README.read_text(), report, **_MARKERS))
    return any(row.is_met is False for rows in runs.values() for row in rows)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
