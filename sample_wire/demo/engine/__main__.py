"""`python -m sample_wire.demo.engine`: serves the embedded engine."""

import sys

from .serving import main

if __name__ == "__main__":
    sys.exit(main())
