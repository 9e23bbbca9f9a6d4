"""Command: decodes random payloads, and compares with the decoder made from SPEC.md alone.

    python tests/fuzz/payload_fuzz.py --seed 0 --num-inputs 100000

Prints each finding as hex, and exits 1 if there is any.  CONTRIBUTING.md, Long runs.
"""

from __future__ import annotations

import sys
from pathlib import Path

if __name__ == "__main__":
    tests = Path(__file__).parents[1]
    sys.path[:0] = [str(tests.parent), str(tests)]
    from fuzz._payload_check import check_payload
    from fuzz._payload_inputs import PayloadInputs
    from fuzz._run import main

    sys.exit(main(lambda seed: PayloadInputs(seed).next_input, check_payload))
