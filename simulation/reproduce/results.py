"""The result of a target: its rows and answers, as a table, as files, and as a picture."""

import csv
import io
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

from confide.protocol.commands.terminal import columns
from confide.protocol.files import write_whole
from confide.protocol.version import CODE_VERSION
from confide.simulation.evaluate.repeated import write_json
from confide.simulation.reproduce.target import Row, RunOptions, Target

# A table on the terminal shows so many rows; the files have all of them.
MOST_SHOWN = 48


@dataclass(frozen=True, kw_only=True)
class Answer:
    """A sentence of a paper, whether our rows agree with it, and what they say."""

    where: str
    says: str
    agrees: str
    ours: str


@dataclass(frozen=True, kw_only=True)
class Result:
    """What a run of a target gave, and the command that gives it again.

    `seconds` are of processor time; trials that were kept from an earlier run cost none.
    """

    target: Target
    command: str
    trials: int
    seconds: float
    rows: Sequence[Row]

    @property
    def answers(self) -> list[Answer]:
        return [
            Answer(where=one.where, says=one.says, agrees=agrees, ours=ours)
            for one in self.target.claims
            for agrees, ours in [one.answer(self.rows)]
        ]

    def as_json(self) -> dict[str, Any]:
        """Everything that the page of all results needs."""
        target = self.target
        return {
            "name": target.name,
            "of": target.of,
            "shows": target.shows,
            "stand_in": target.stands_in,
            "needs": [one.name for one in target.needs],
            "command": self.command,
            "version": CODE_VERSION,
            "trials": self.trials,
            "seed": RunOptions.seed,
            "processor_seconds": round(self.seconds, 1),
            "numbers_of_the_paper": None if target.facts is None else target.facts.where,
            "answers": [asdict(answer) for answer in self.answers],
            "differences": list(target.differences),
            "rows": [rounded(row) for row in self.rows],
        }

    def write(self, folder: Path) -> list[Path]:
        """Write NAME.json, NAME.csv and NAME.png, each whole or not at all."""
        from confide.simulation.reproduce.picture import draw

        paths = [folder / f"{self.target.name}.{ending}" for ending in ("json", "csv", "png")]
        picture = draw(self.target, self.rows)
        write_json(self.as_json(), paths[0])
        write_whole(paths[1], as_csv(self.rows))
        write_whole(paths[2], picture)
        return paths


def rounded(row: Row) -> Row:
    """Six digits of every number: more are noise."""
    return {
        name: float(f"{value:.6g}") if isinstance(value, float) else value
        for name, value in row.items()
    }


def headings(rows: Sequence[Row]) -> list[str]:
    """The columns of all rows, in the order in which they come."""
    return list(dict.fromkeys(name for row in rows for name in row))


def as_csv(rows: Sequence[Row]) -> str:
    text = io.StringIO()
    writer = csv.DictWriter(text, headings(rows), restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def cell(value: Any) -> str:
    """A value as tables show it."""
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:.4g}" if abs(value) < 1e-3 or abs(value) >= 1e4 else f"{value:.3f}"
    return str(value)


def shown(rows: Sequence[Row], most: int = MOST_SHOWN) -> list[Row]:
    """Return all rows if the paper prints numbers beside them; else about `most`, evenly spread."""
    if any(name.startswith("paper ") for name in headings(rows)):
        return list(rows)
    return list(rows[:: max(1, -(-len(rows) // most))])


def show(result: Result) -> None:
    """Print the rows beside the paper's numbers, its sentences and ours, and what differs."""
    target, console = result.target, Console(width=columns() or 140)
    few = shown(result.rows)
    trials = f", {result.trials} trials" if result.trials > 1 else ""
    stand_in = "STAND-IN for " if target.stands_in else ""
    table = Table(
        title=f"{stand_in}{target.of}: {target.shows}{trials}",
        title_justify="left",
        box=box.SIMPLE_HEAD,
    )
    for name in headings(few):
        table.add_column(name, overflow="fold")
    for row in few:
        table.add_row(*(cell(row.get(name)) for name in headings(few)))
    console.print(table)
    if len(few) < len(result.rows):
        console.print(f"{len(few)} of {len(result.rows)} rows; the files have all of them")
    for answer in result.answers:
        console.print(f"{answer.where}: {answer.says}.", highlight=False, markup=False)
        console.print(f"  agrees: {answer.agrees}; {answer.ours}", highlight=False, markup=False)
    for sentence in target.differences:
        console.print(f"difference: {sentence}", highlight=False, markup=False)
