"""A figure or table of a paper as a value: what it needs, how rows are made, what the paper says.

The papers are LDP (Penso et al. 2025), CARD (contract cards), PPS (Angelopoulos et al. 2022), DPCP
(Wu et al. 2026) and SCP (stabilised conformal prediction).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from confide.protocol.errors import BadInput
from confide.simulation.reproduce.kept_trials import KeptTrials

Row = dict[str, Any]

# How far our rows agree with a sentence of a paper.
YES, PARTLY, NO = "yes", "in part", "no"


@dataclass(frozen=True, kw_only=True)
class DataFile:
    """A file, or a folder, that is expected in the folder of data."""

    name: str
    what: str

    def at(self, folder: Path | None, *, instead: str | None) -> Path:
        """Its path; refuses if it is not there, and says what would do."""
        hint = "" if instead is None else f"; without it, {instead} stands in"
        if folder is None:
            raise BadInput(
                f"{self.name} is needed and no folder of data is given; accepted is --data FOLDER "
                f"with {self.name}, {self.what}{hint}"
            )
        path = folder / self.name
        if not path.exists():
            raise BadInput(
                f"{path} does not exist; accepted is a folder with {self.name}, {self.what}{hint}"
            )
        return path


@dataclass(frozen=True, kw_only=True)
class Facts:
    """Numbers that a paper prints, found by the values of some columns."""

    where: str
    by: tuple[str, ...]
    numbers: Mapping[tuple[Any, ...], Mapping[str, float]]

    def beside(self, row: Row) -> Row:
        """The row with the paper's number after each of ours."""
        printed = self.numbers.get(tuple(row.get(name) for name in self.by), {})
        shown: Row = {}
        for name, value in row.items():
            shown[name] = value
            if name in self.columns:
                shown[f"paper {name}"] = printed.get(name)
        return shown

    @property
    def columns(self) -> set[str]:
        return {name for numbers in self.numbers.values() for name in numbers}


@dataclass(frozen=True, kw_only=True)
class Statement:
    """What a paper says of a figure in words, and how our rows answer: YES, PARTLY or NO, why."""

    where: str
    says: str
    answer: Callable[[Sequence[Row]], tuple[str, str]]


@dataclass(frozen=True, kw_only=True)
class Plot:
    """Panels of lines: each column of `y` against `x`, for every value of `panels`."""

    x: str
    y: tuple[str, ...]
    lines: str
    panels: str | None = None
    log_x: bool = False
    log_y: bool = False


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """How a target is run; `files` are what it needs, by name, and `kept` its finished trials."""

    trials: int
    seed: int = 1
    files: Mapping[str, Path] = field(default_factory=dict)
    kept: KeptTrials = field(default_factory=KeptTrials)


@dataclass(frozen=True, kw_only=True)
class Target:
    """One figure or table.

    `takes` is measured on one core, with `trials` repetitions. What is `trained` keeps its trials
    in a file and continues from it. `instead` names the target that stands in without the files.
    """

    name: str
    of: str
    shows: str
    takes: str
    run: Callable[[RunOptions], list[Row]]
    plot: Plot
    differences: tuple[str, ...]
    claims: tuple[Statement, ...] = ()
    facts: Facts | None = None
    needs: tuple[DataFile, ...] = ()
    trials: int = 1
    trained: bool = False
    instead: str | None = None
    stands_in: bool = False

    @property
    def quick(self) -> bool:
        """Whether it needs no file and trains no network."""
        return not (self.needs or self.trained)

    def files(self, folder: Path | None) -> dict[str, Path]:
        """The files that it needs, all of which are there."""
        return {one.name: one.at(folder, instead=self.instead) for one in self.needs}

    def rows(self, asked: RunOptions) -> list[Row]:
        """Our rows, with the paper's numbers beside them."""
        rows = self.run(asked)
        return rows if self.facts is None else [self.facts.beside(row) for row in rows]
