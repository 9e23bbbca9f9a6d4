"""Command: writes the conformance vectors, `python tests/vectors/make_vectors.py`.

Running it again changes nothing.  Never edit a vector that has been released: add one.
"""

from __future__ import annotations

import sys
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))
    from vectors._all import all_vectors, write_all

    write_all()
    print(f"{len(all_vectors())} vectors")
