"""Starts a render worker: run.py MEMORY_BYTES OUTPUT_BYTES."""

import os
import sys

# The packages of another interpreter come first, because the C modules here
# are built for one release of Python.
here = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0 if sys.flags.no_site else len(sys.path), here)

from renderworker.serve import main  # noqa: E402

main(int(sys.argv[1]), int(sys.argv[2]))
