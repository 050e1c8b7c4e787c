"""Finished trials in a JSON file, found again when an interrupted run is continued."""

import hashlib
import json
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from confide.protocol.errors import BadInput
from confide.simulation.evaluate.repeated import write_json

Row = dict[str, Any]


class KeptTrials:
    """Rows of finished trials; without a path they are kept in memory only.

    Every row names the cell of the experiment that it is of, as a list of JSON values, and the
    number of its trial. `about` tells what cells do not, such as digests of files: trials of
    something else are refused and not mixed.
    """

    def __init__(self, path: Path | None = None, *, about: Mapping[str, str] | None = None) -> None:
        self.path, self.about = path, dict(about or {})
        self.rows: list[Row] = []
        if path is not None and path.exists():
            self.rows = _read(path, self.about)

    def finish(
        self,
        cells: Sequence[list[Any]],
        *,
        trials: int,
        work: Callable[[int, int], Iterable[Row]],
    ) -> None:
        """Run the trials that are missing: `work` takes the place of a cell and a trial's number.

        Trials of all cells alternate, so that an interrupted run has some of each. A trial is kept
        when all of its rows are there.
        """
        done = {json.dumps([row["cell"], row["trial"]]) for row in self.rows}
        todo = [
            (number, place)
            for number in range(trials)
            for place in range(len(cells))
            if json.dumps([cells[place], number]) not in done
        ]
        started = time.monotonic()
        for count, (number, place) in enumerate(todo):
            _tell(count, len(todo), time.monotonic() - started)
            self.rows += [
                {"cell": cells[place], "trial": number, **row} for row in work(place, number)
            ]
            if self.path is not None:
                write_json({"about": self.about, "trials": self.rows}, self.path)
        if todo:
            _tell(len(todo), len(todo), time.monotonic() - started)

    def of(self, cell: list[Any], *, trials: int) -> list[Row]:
        """The rows of the first trials of a cell."""
        return [row for row in self.rows if row["cell"] == cell and row["trial"] < trials]


def digest(path: Path) -> str:
    """SHA-256 of a file, or of the names and contents of a folder's files."""
    found = hashlib.sha256()
    for one in sorted(path.iterdir()) if path.is_dir() else [path]:
        if one.is_file():
            found.update(repr((one.name, one.stat().st_size)).encode())
            with one.open("rb") as file:
                while piece := file.read(1 << 20):
                    found.update(piece)
    return found.hexdigest()


def _read(path: Path, about: dict[str, str]) -> list[Row]:
    try:
        found = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise BadInput(f"{path} cannot be read as finished trials: {error}") from None
    rows = found.get("trials") if isinstance(found, dict) else None
    if isinstance(rows, list) and found.get("about") != about:
        raise BadInput(
            f"{path} holds trials of {found.get('about')}, this run is of {about}; accepted is "
            "another folder for its results"
        )
    if not isinstance(rows, list) or not all(
        isinstance(row, dict) and {"cell", "trial"} <= row.keys() for row in rows
    ):
        raise BadInput(
            f"{path} holds something else than finished trials; accepted is a file that an earlier "
            "run wrote, or none"
        )
    return rows


def _tell(count: int, total: int, seconds: float) -> None:
    """Say on a terminal how far it is, and how long the rest takes."""
    if sys.stderr.isatty():
        left = seconds / max(count, 1) * (total - count) / 60
        end = "\n" if count == total else ""
        text = f"\r{count}/{total} trials, about {left:.0f} min left  {end}"
        print(text, end="", file=sys.stderr, flush=True)
