"""Starts a render worker: run.py MEMORY_BYTES OUTPUT_BYTES."""

import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

from renderworker.serve import main  # noqa: E402

main(int(sys.argv[1]), int(sys.argv[2]))
