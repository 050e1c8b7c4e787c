import subprocess
import sys

from tests.support.repository.places import ROOT

BENCHMARKS = sorted(path.stem for path in (ROOT / "benchmarks").glob("*.py"))
IMPORTS = """
import importlib, sys
sys.path[:0] = ["benchmarks", "."]
for name in sys.argv[1:]:
    importlib.import_module(name)
"""


def test_scripts_that_use_the_tests_find_them() -> None:
    """`python benchmarks/NAME.py` has its own folder on the path, and not the checkout."""
    found = []
    for name in BENCHMARKS:
        text = (ROOT / "benchmarks" / f"{name}.py").read_text()
        before, _, after = text.partition("from tests.")
        if after and "__main__" in after and "sys.path.insert" not in before:
            found.append(name)
    assert found == []


def test_every_benchmark_can_be_loaded() -> None:
    """They run seldom and long; what they take from each other and from the tests must be there."""
    assert "chain_supernodes" in BENCHMARKS
    command = [sys.executable, "-c", IMPORTS, *BENCHMARKS]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
