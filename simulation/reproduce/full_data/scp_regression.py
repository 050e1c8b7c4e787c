"""SCP Table 2: networks for numbers, on California housing or on the made-up line."""

from pathlib import Path

import numpy as np

from confide.protocol.privacy.budgets import Budget
from confide.protocol.scores.task import REGRESSION
from confide.simulation.data.population import Lessons, lessons
from confide.simulation.evaluate.full_data.learners import Learner
from confide.simulation.evaluate.full_data.networks import NetworkLearner, Numbers, Recipe
from confide.simulation.evaluate.full_data.terms import PipelineTerms
from confide.simulation.reproduce.files import california
from confide.simulation.reproduce.full_data.cells import ALPHA, DELTA, Cell

RECIPE = Recipe(hidden=(32, 16), epochs=50, batch=512, rate=4e-3)
# Four fifths of the records train and calibrate, as in the paper.
SHARE = 0.8
EPSILONS = (0.5, 1.0, 2.0)


def california_cells(path: Path, *, recipe: Recipe = RECIPE) -> list[Cell]:
    """Table 2, at the whole file: values in units of $100,000."""
    records = california(path)
    return cells("scp-housing", records, n=round(SHARE * len(records)), recipe=recipe)


def line_cells(*, recipe: Recipe = RECIPE) -> list[Cell]:
    """The stand-in; half of the made-up records."""
    records = lessons(None, REGRESSION, bound=None, limits=None)
    return cells("scp-line", records, n=10_000, recipe=recipe)


def cells(name: str, records: Lessons, *, n: int, recipe: Recipe) -> list[Cell]:
    """A cell an epsilon; every trial deals the records anew."""
    assert records.bound is not None
    bound = records.bound

    def make(rng: np.random.Generator, total: int) -> Learner:
        dealt = rng.permutation(len(records))[:total]
        return NetworkLearner(
            records.features[dealt], Numbers(records.targets[dealt], bound), recipe
        )

    made = []
    for epsilon in EPSILONS:
        methods = ["scp-f", "scp-a", "split", "certified", "split-certified"]
        methods += ["naive", "split-cp"] if epsilon == 1.0 else []
        terms = PipelineTerms(n, Budget(epsilon, DELTA), alpha=ALPHA)
        made.append(Cell(name, terms, tuple(methods), len(records) - n, make))
    return made
