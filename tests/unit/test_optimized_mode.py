"""No check of input is an assert: `python -O` refuses the same, with the same words."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys

SCRIPT = pathlib.Path(__file__).with_name("_refusals_script.py")
ROOT = SCRIPT.parents[2]


def output_of(*options: str) -> tuple[str, str]:
    """What the script prints under an interpreter with options, and whether it debugs."""
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep)
    done = subprocess.run(
        [sys.executable, *options, str(SCRIPT)],
        capture_output=True,
        text=True,
        check=True,
        env=os.environ | {"PYTHONPATH": path},
    )
    return done.stdout, done.stderr.strip()


def test_python_o_refuses_the_same_with_the_same_words() -> None:
    plain, debug = output_of()
    optimized, no_debug = output_of("-O")
    assert (debug, no_debug) == ("debug: True", "debug: False")
    assert optimized == plain


def test_all_but_the_last_line_of_the_script_are_refusals() -> None:
    *refusals, last = output_of("-O")[0].splitlines()
    assert last.startswith("nothing: accepted: ")
    assert [line for line in refusals if ": accepted: " in line] == []
