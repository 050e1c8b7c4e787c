"""Fills docs/tutorials.md with the examples that it names, and with what they print.

`python docs/write_tutorials.py [NAME ...]` runs the examples between the marks of the page, or
only the named ones, each in an empty folder. A test holds the code, and what can be repeated of the
output, to the page.
"""

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "tutorials.md"
BLOCK = re.compile(r"(<!-- example (\w+) -->\n)(.*?)(<!-- end -->)", re.DOTALL)
sys.path.insert(0, str(ROOT))


def prepared(folder: Path) -> None:
    """The arrays that the short examples read."""
    from benchmarks.speed.short_scripts import write_letters

    write_letters(folder / "letters.npz")


def printed(name: str, folder: Path) -> str:
    """What an example prints, errors included, in a folder of its own."""
    done = subprocess.run(
        [sys.executable, str(ROOT / "examples" / f"{name}.py")],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(ROOT), "MPLBACKEND": "Agg", "COLUMNS": "120"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=True,
    )
    return "\n".join(line.rstrip() for line in done.stdout.splitlines())


def block(name: str, output: str) -> str:
    source = (ROOT / "examples" / f"{name}.py").read_text().rstrip()
    return f"```python\n{source}\n```\n\nprints\n\n```text\n{output}\n```\n"


def main(names: list[str]) -> None:
    def filled(found: re.Match[str]) -> str:
        head, name, _, end = found.groups()
        if names and name not in names:
            return found[0]
        print(f"running {name}", file=sys.stderr)
        with tempfile.TemporaryDirectory() as folder:
            prepared(Path(folder))
            return head + block(name, printed(name, Path(folder))) + end

    PAGE.write_text(BLOCK.sub(filled, PAGE.read_text()))


if __name__ == "__main__":
    main(sys.argv[1:])
