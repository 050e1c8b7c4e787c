"""Experiments of a second or two, run in process."""

from pathlib import Path

from confide.simulation.experiments.experiment import read_experiment
from confide.simulation.experiments.results import RESULTS
from confide.simulation.experiments.runner import Workers, run_experiment

SKEWED = """
[populations.even]
[populations.skewed]
owners = 10
concentration = 0.3
sizes = "1 1 5"
covariate-shift = 0.5
dropout = 0.1
round-dropout = 0.2
stragglers = 0.3
"""
SMALL = (
    """
title = "bits against labels"
trials = 5
seed = 3
methods = ["labels:non-private", "labels:certified", "bits:certified", "central:rank-exponential"]
budgets = [2, 8.0]
sizes = [1500]
"""
    + SKEWED
)
# 2 populations, of which each has a cell without privacy and 3 methods with 2 budgets.
CELLS, TRIALS = 14, 5


def written(folder: Path, text: str = SMALL) -> Path:
    """An experiment as a file."""
    path = folder / "experiment.toml"
    path.write_text(text)
    return path


def run(file: Path, out: Path) -> bytes:
    """Run an experiment in this process; the bytes of its results."""
    run_experiment(read_experiment(file), out, workers=Workers(1))
    return (out / RESULTS).read_bytes()
