"""Run a module with a clock that is ahead by as many seconds as a file says.

Usage: `skewed.py FILE python -m MODULE ...`.
"""

import runpy
import sys
import time
from pathlib import Path

ahead, true = Path(sys.argv[1]), time.time
time.time = lambda: true() + float(ahead.read_text())
module, sys.argv = sys.argv[4], sys.argv[4:]
runpy.run_module(module, run_name="__main__", alter_sys=True)
