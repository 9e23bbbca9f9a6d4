"""`python -m sample_wire`: the same as the command `sample-wire`."""

import sys

from .cli import main

if __name__ == "__main__":
    sys.exit(main())
