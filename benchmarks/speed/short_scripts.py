"""The first prediction sets with this project and with others: lines of code, coverage and size.

Every script reads the same arrays, calibrates 8,000 records, predicts the others and draws their
sizes. Lines are those of code: neither blank ones nor docstrings. The other packages run in the
environment of `speed.py`.
"""

import argparse
import ast
import os
import re
import subprocess
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[2]))

from benchmarks.speed.peer_process import HERE, HOME, install
from confide.protocol.simulated.embedded import PROVIDER_RECORDS, letters, owned, predictions

ROOT = HERE.parents[1]
EXAMPLES = ROOT / "examples"
SCRIPTS = {
    "Confide, epsilon 2": EXAMPLES / "short_sets.py",
    "Confide, a published card": EXAMPLES / "short_card.py",
    "MAPIE": HERE / "first_sets" / "mapie_sets.py",
    "TorchCP": HERE / "first_sets" / "torchcp_sets.py",
    "crepes": HERE / "first_sets" / "crepes_sets.py",
}
WHAT = ("coverage", "mean size")
# TorchCP itself imports graph and language models, which its scores do not need.
STUB = """
import importlib.util, sys, types
from pathlib import Path
spec = importlib.util.find_spec("torchcp")
for name, parts in (("torchcp", ()), ("torchcp.classification", ("classification",))):
    sys.modules[name] = types.ModuleType(name)
    sys.modules[name].__path__ = [str(Path(spec.submodule_search_locations[0], *parts))]
"""


def write_letters(path: Path) -> None:
    """The embedded records: features, the provider's own, and its model's probabilities."""
    probs, labels = predictions()
    features, every = letters()
    own = slice(None, PROVIDER_RECORDS)
    np.savez(
        path,
        probs=probs.astype(np.float32),
        labels=labels,
        features=owned()[0],
        own_features=features[own],
        own_labels=every[own],
    )


def code_lines(path: Path) -> int:
    """Lines of code of a script, without blank lines, comments and docstrings."""
    source = path.read_text()
    first = ast.parse(source).body[0]
    end = first.end_lineno or 0 if isinstance(first, ast.Expr) else 0
    rest = source.splitlines()[end:]
    return sum(bool(line.strip()) and not line.strip().startswith("#") for line in rest)


def run(path: Path, python: Path, folder: Path) -> str:
    """What a script prints, run in a folder with the arrays."""
    stub = STUB if path.name.startswith("torchcp") else ""
    program = f"{stub}\nimport runpy\nrunpy.run_path({str(path)!r}, run_name='__main__')\n"
    done = subprocess.run(
        [python, "-W", "ignore", "-c", program],
        cwd=folder,
        env=os.environ | {"MPLBACKEND": "Agg"},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--peers", type=Path, metavar="PATH", default=HOME, help="as in speed.py")
    given = parser.parse_args()
    install(given.peers)
    print("| script | lines | test coverage | mean size |\n|---|---|---|---|")
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        write_letters(folder / "letters.npz")
        for name, path in SCRIPTS.items():
            ours = path.parent == EXAMPLES
            python = Path(sys.executable) if ours else given.peers / "bin" / "python"
            printed = run(path, python, folder)
            found = [re.search(rf"{what} ([\d.]+)$", printed, re.M) for what in WHAT]
            numbers = " | ".join(one[1] if one else "?" for one in found)
            print(f"| [{name}](../{path.relative_to(ROOT)}) | {code_lines(path)} | {numbers} |")
    print(f"\nPython {sys.version.split()[0]}, numpy {version('numpy')}", file=sys.stderr)


if __name__ == "__main__":
    main()
