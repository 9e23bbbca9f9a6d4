"""Command: compares `read_container` with the safetensors package on random containers.

    python tests/fuzz/container_fuzz.py --seed 0 --num-inputs 100000

Prints each finding as hex, and exits 1 if there is any.  CONTRIBUTING.md, Long runs.
"""

from __future__ import annotations

import sys
from pathlib import Path

if __name__ == "__main__":
    tests = Path(__file__).parents[1]
    sys.path[:0] = [str(tests.parent), str(tests)]
    from fuzz._container_check import check_container
    from fuzz._container_inputs import ContainerInputs
    from fuzz._run import main

    sys.exit(main(lambda seed: ContainerInputs(seed).next_input, check_container))
