"""Runs a module with the toys registered: `run_with_toys.py python -m MODULE ...`."""

import runpy
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent.parent))
from tests.extension.toys import register

register()

module, sys.argv = sys.argv[3], sys.argv[3:]
runpy.run_module(module, run_name="__main__", alter_sys=True)
