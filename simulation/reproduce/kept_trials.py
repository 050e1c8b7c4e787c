"""Finished trials in a JSON file, found again when an interrupted run is continued."""

import json
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from confide.protocol.errors import BadInput
from confide.simulation.evaluate.trials import write_json

Row = dict[str, Any]


class KeptTrials:
    """Rows of finished trials; without a path they are kept in memory only.

    Every row names the cell of the experiment that it is of, as a list of JSON values, and the
    number of its trial.
    """

    def __init__(self, path: Path | None = None) -> None:
        self.path = path
        self.rows: list[Row] = []
        if path is not None and path.exists():
            self.rows = _read(path)

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
                write_json(self.rows, self.path)
        if todo:
            _tell(len(todo), len(todo), time.monotonic() - started)

    def of(self, cell: list[Any], *, trials: int) -> list[Row]:
        """The rows of the first trials of a cell."""
        return [row for row in self.rows if row["cell"] == cell and row["trial"] < trials]


def _read(path: Path) -> list[Row]:
    try:
        rows = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise BadInput(f"{path} cannot be read as finished trials: {error}") from None
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
