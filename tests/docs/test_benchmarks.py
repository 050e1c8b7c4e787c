import subprocess
import sys

from tests.support.places import ROOT

BENCHMARKS = sorted(path.stem for path in (ROOT / "benchmarks").glob("*.py"))
IMPORTS = """
import importlib, sys
sys.path[:0] = ["benchmarks", "."]
for name in sys.argv[1:]:
    importlib.import_module(name)
"""


def test_every_benchmark_can_be_loaded() -> None:
    """They run seldom and long; what they take from each other and from the tests must be there."""
    assert "chain_supernodes" in BENCHMARKS
    command = [sys.executable, "-c", IMPORTS, *BENCHMARKS]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
