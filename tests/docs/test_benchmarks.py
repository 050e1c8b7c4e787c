import re
import subprocess
import sys

from tests.support.repository.imports import sources
from tests.support.repository.places import ROOT

BENCHMARKS = {
    ".".join(path.relative_to(ROOT).with_suffix("").parts): path.read_text()
    for path in sources("benchmarks")
    # Scripts of other packages, which are not installed here.
    if path.parent.name != "first_sets" and path.name != "__init__.py"
}
IMPORTS = """
import importlib, sys
sys.path.insert(0, ".")
for name in sys.argv[1:]:
    importlib.import_module(name)
"""


def test_scripts_that_use_the_checkout_find_it() -> None:
    """`python benchmarks/ROOM/NAME.py` has its own folder on the path, and not the checkout."""
    found = []
    for name, text in BENCHMARKS.items():
        used = re.search(r"^from (benchmarks|tests)\.", text, re.MULTILINE)
        if used and "__main__" in text and "sys.path.insert" not in text[: used.start()]:
            found.append(name)
    assert found == []


def test_every_benchmark_can_be_loaded() -> None:
    """They run seldom and long; what they take from each other and from the tests must be there."""
    assert "benchmarks.federations.chain_supernodes" in BENCHMARKS
    command = [sys.executable, "-c", IMPORTS, *BENCHMARKS]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
