"""Results as Parquet: a row a trial, in the order of cells and trials, with where they come from.

Nothing that depends on the machine's speed is in the results, so the same experiment gives the same
bytes however it was run; seconds are in a file of their own.
"""

import hashlib
import io
import json
import subprocess
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

from confide.protocol.errors import BadInput
from confide.protocol.files import write_whole
from confide.protocol.version import CODE_VERSION
from confide.simulation.evaluate.repeated import Row
from confide.simulation.experiments.cell_trial import MEASURES
from confide.simulation.experiments.cells import ExperimentCell
from confide.simulation.experiments.experiment import Experiment
from confide.simulation.experiments.journal import Journal

RESULTS, TIMINGS = "results.parquet", "timings.parquet"
# The key of a Parquet file's metadata under which the experiment is.
METADATA = b"confide"
TEXT, NUMBER, WHOLE, FLAG = "string", "float64", "int64", "bool_"
COLUMNS = {
    "experiment": TEXT,
    "cell": WHOLE,
    "cell_name": TEXT,
    "trial": WHOLE,
    "where": TEXT,
    "population": TEXT,
    "method": TEXT,
    "score": TEXT,
    "epsilon": NUMBER,
    "alpha": NUMBER,
    "failure_probability": NUMBER,
    "n": WHOLE,
    "split_seed": WHOLE,
    "seed": WHOLE,
    "version": TEXT,
    "commit": TEXT,
    **dict.fromkeys(MEASURES, NUMBER),
    "trivial": FLAG,
    "reports": WHOLE,
    **dict.fromkeys(("channel", "kind", "reason"), TEXT),
}


class Results(NamedTuple):
    """The rows of a results file, and the experiment that they are of."""

    rows: list[Row]
    about: dict[str, Any]


def described(experiment: Experiment, cells: list[ExperimentCell]) -> dict[str, Any]:
    """The experiment with all its values, and a name that changes with any of them."""
    values = json.loads(json.dumps(asdict(experiment), default=dict, sort_keys=True))
    # Files are told by their content, which is in the names of cells; paths differ by machine.
    for terms in values["populations"].values():
        terms["data"] = Path(terms["data"]).name
    return {"experiment": values, "cells": [cell.name for cell in cells]}


def commit() -> str:
    """The commit of the checkout that runs, with + if files differ from it; else empty."""
    here = Path(__file__).resolve().parent
    try:
        found = _git(here, "rev-parse", "HEAD")
        changed = _git(here, "status", "--porcelain", "--untracked-files=no")
    except (OSError, subprocess.SubprocessError):
        return ""
    return found + ("+" if changed else "")


def _git(folder: Path, *arguments: str) -> str:
    return subprocess.run(
        ["git", "-C", str(folder), *arguments],
        capture_output=True,
        text=True,
        check=True,
        timeout=20,
    ).stdout.strip()


def write_results(
    folder: Path, experiment: Experiment, cells: list[ExperimentCell], *, journal: Journal
) -> int:
    """Write the trials that have run, each file as a whole; return how many they are."""
    about = described(experiment, cells)
    keys = [(cell, trial) for cell in cells for trial in range(experiment.trials)]
    ran = [(cell, trial) for cell, trial in keys if (cell.name, trial) in journal.done]
    rows, seconds = [], []
    for cell, trial in ran:
        finished = journal.done[cell.name, trial]
        split, own = cell.seeds(trial)
        rows.append(
            {
                "experiment": name_of(about),
                "cell": cell.number,
                "cell_name": cell.name,
                "trial": trial,
                **{key: getattr(cell, key) for key in _OF_CELLS},
                "alpha": experiment.alpha,
                "failure_probability": experiment.failure_probability,
                "split_seed": split,
                "seed": own,
                "version": CODE_VERSION,
                "commit": finished.commit,
                **finished.row,
            }
        )
        seconds.append({"cell": cell.number, "trial": trial, "seconds": finished.seconds})
    _write(folder / RESULTS, rows, columns=COLUMNS, about=about)
    timed = {"cell": WHOLE, "trial": WHOLE, "seconds": NUMBER}
    _write(folder / TIMINGS, seconds, columns=timed, about=about)
    return len(ran)


_OF_CELLS = ("where", "population", "method", "score", "epsilon", "n")


def name_of(about: dict[str, Any]) -> str:
    """The digest of an experiment."""
    return hashlib.sha256(json.dumps(about, sort_keys=True).encode()).hexdigest()


def _write(path: Path, rows: list[Row], *, columns: dict[str, str], about: dict[str, Any]) -> None:
    import pyarrow
    import pyarrow.parquet

    metadata = {METADATA: json.dumps(about, sort_keys=True).encode()}
    schema = pyarrow.schema(
        [(name, getattr(pyarrow, kind)()) for name, kind in columns.items()], metadata=metadata
    )
    held = [{name: row.get(name) for name in columns} for row in rows]
    buffer = io.BytesIO()
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(held, schema=schema), buffer)
    write_whole(path, buffer.getvalue())


def read_results(path: Path) -> Results:
    """Read results, from their file or from the folder that it is in."""
    import pyarrow
    import pyarrow.parquet

    file = path / RESULTS if path.is_dir() else path
    accepted = f"accepted is the folder of a `confide run`, or its {RESULTS}"
    try:
        table = pyarrow.parquet.read_table(file)
        about = json.loads((table.schema.metadata or {})[METADATA])
    except FileNotFoundError:
        raise BadInput(f"{file} does not exist; {accepted}") from None
    except (OSError, ValueError, KeyError, pyarrow.ArrowException) as error:
        raise BadInput(f"{file} cannot be read as results: {error}; {accepted}") from None
    missing = sorted({*COLUMNS} - {*table.column_names})
    if missing:
        raise BadInput(f"{file} has no column {missing[0]}; {accepted}")
    return Results(table.to_pylist(), about)
