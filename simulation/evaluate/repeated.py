"""Repeated trials: what all evaluations share, from the split of the records to the file."""

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from confide.protocol.errors import BadInput, check_probability
from confide.protocol.exact.sampling import Entropy, SeededEntropy, os_entropy, randomness
from confide.protocol.files import write_whole
from confide.simulation.arrays.trial import Trial

MEASURES = ("threshold", "coverage", "mean_size", "certified_level", "trivial")

Row = dict[str, Any]
Progress = Callable[[], None]


class NamedRecords(Protocol):
    """Anything that is evaluated on: records with a name."""

    @property
    def name(self) -> str: ...

    def __len__(self) -> int: ...


@dataclass(frozen=True, kw_only=True)
class Repeated(ABC):
    """One row of a comparison: what is run, on how many records, how often."""

    method: str
    variant: str
    epsilon: float = 1.0
    alpha: float = 0.1
    n: int = 10_000
    trials: int = 20
    seed: int | None = None

    def __post_init__(self) -> None:
        check_probability("alpha", self.alpha)
        if self.trials < 1:
            raise BadInput(f"trials is {self.trials}; at least 1 is needed")

    @abstractmethod
    def prepared(self, records: Any, rng: np.random.Generator) -> Any:
        """What all trials on these records share, such as their scores."""

    @abstractmethod
    def row(self, prepared: Any, trial: Trial) -> Row:
        """Run one trial and measure it."""

    def run(self, records: Any) -> Iterator[Row]:
        """One row a trial."""
        rng = np.random.default_rng(self.seed)
        prepared = self.prepared(records, rng)
        for trial in self.splits(records, rng):
            yield self.row(prepared, trial)

    @abstractmethod
    def resolved(self, records: Any, rows: list[Row]) -> Row:
        """What the arguments came down to on these records."""

    def splits(self, records: NamedRecords, rng: np.random.Generator) -> Iterator[Trial]:
        """Yield splits drawn without replacement; calibration and test are disjoint."""
        total = len(records)
        if not 1 <= self.n < total:
            raise BadInput(
                f"n is {self.n}; {records.name} has {total} records, so accepted are 1 to "
                f"{total - 1} (the rest is the test)"
            )
        for trial in range(self.trials):
            order = rng.permutation(total)
            entropy: Entropy = os_entropy if self.seed is None else SeededEntropy(self.seed, trial)
            yield Trial(order[: self.n], order[self.n :], entropy)


def measured(threshold: float, coverage: float, mean_size: float, *, level: float | None) -> Row:
    """What every trial reports; an unbounded interval has no mean size."""
    return {
        "threshold": threshold,
        "coverage": coverage,
        "mean_size": mean_size if np.isfinite(mean_size) else None,
        "certified_level": level,
        "trivial": threshold >= 1,
    }


def summarise(records: NamedRecords, setting: Repeated, rows: list[Row]) -> dict[str, Any]:
    """The resolved arguments, every trial, means and standard deviations.

    Deviations are in population form, 0 for one trial.

    A measure that some trial does not have (no level promised, an unbounded interval) has neither.
    """
    source: Entropy = os_entropy if setting.seed is None else SeededEntropy(setting.seed)
    shared = {"data": records.name, "records": len(records), "randomness": randomness(source)}
    columns = {name: [row[name] for row in rows] for name in MEASURES}
    whole = {
        name: np.array(column, dtype=np.float64)
        for name, column in columns.items()
        if None not in column
    }
    return {
        "arguments": {**asdict(setting), **shared, **setting.resolved(records, rows)},
        "trials": rows,
        "mean": {name: float(whole[name].mean()) if name in whole else None for name in MEASURES},
        "std": {name: float(whole[name].std()) if name in whole else None for name in MEASURES},
    }


def run_trials(
    records: Any, setting: Repeated, *, progress: Progress = lambda: None
) -> tuple[dict[str, Any], bool]:
    """Run all trials; on Ctrl-C keep those that finished.

    The flag tells whether all of them ran.
    """
    rows: list[Row] = []
    try:
        for row in setting.run(records):
            rows.append(row)
            progress()
    except KeyboardInterrupt:
        if not rows:
            raise
        return summarise(records, setting, rows), False
    return summarise(records, setting, rows), True


def write_json(result: Any, path: Path) -> None:
    """Write the whole file or nothing."""
    write_whole(path, json.dumps(result, indent=2, allow_nan=False, default=plain_value) + "\n")


def plain_value(value: Any) -> Any:
    """A value as JSON takes it."""
    return value.item() if isinstance(value, np.generic) else str(value)
