"""The cells of the full-data experiments: which methods are compared, on which records."""

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from confide.protocol.errors import BadInput
from confide.protocol.exact.sampling import SeededEntropy
from confide.protocol.privacy.budgets import Budget
from confide.simulation.data.synthetic import Clusters, located
from confide.simulation.evaluate.full_data.learners import Learner, Location, Memoriser
from confide.simulation.evaluate.full_data.networks import Labels, NetworkLearner, Recipe
from confide.simulation.evaluate.full_data.pipelines import PIPELINES
from confide.simulation.evaluate.full_data.run import Trainings, measure
from confide.simulation.evaluate.full_data.terms import Pipeline, PipelineTerms
from confide.simulation.reproduce.kept_trials import KeptTrials
from confide.simulation.reproduce.summaries import averaged

ALPHA, DELTA = 0.1, 1e-5
# SCP bisects with 20 queries: with RDP that gives the noise of its Tables S1 to S3.
SEARCH_BINS = 1 << 20
SEARCHES = ("scp-f", "scp-a", "split")


@dataclass(frozen=True)
class Cell:
    """Pipelines compared on the same records; `make` draws them and gives their learner."""

    experiment: str
    terms: PipelineTerms
    methods: tuple[str, ...]
    test: int
    make: Callable[[np.random.Generator, int], Learner]

    @property
    def key(self) -> list[Any]:
        return [
            self.experiment,
            self.terms.n,
            self.terms.budget.epsilon,
            self.terms.alpha,
            self.terms.share,
        ]

    def pipelines(self) -> list[Pipeline]:
        """Decided once for all trials: nothing in them depends on records."""
        learner = self.make(np.random.default_rng(0), 64)
        return [PIPELINES[method](self._for(method), learner) for method in self.methods]

    def _for(self, method: str) -> PipelineTerms:
        return replace(self.terms, bins=SEARCH_BINS) if method in SEARCHES else self.terms

    def trial(self, number: int, pipelines: list[Pipeline]) -> Iterator[dict[str, Any]]:
        n = self.terms.n
        learner = self.make(np.random.default_rng([7, n, number]), n + self.test)
        trainings = Trainings(
            learner, np.arange(n), SeededEntropy("full-data", *map(str, self.key), number)
        )
        for pipeline in pipelines:
            row = measure(trainings, pipeline, np.arange(n, n + self.test))
            yield {"method": pipeline.method, **row}


def scp_cells(
    sizes: Sequence[int] = (10_000, 30_000), epsilons: Sequence[float] = (0.5, 1.0, 2.0)
) -> Iterator[Cell]:
    """Five classes and a network 16-16, as in SCP Tables S7 to S9."""
    problem = Clusters.drawn(np.random.default_rng(20))

    def make(rng: np.random.Generator, total: int) -> Learner:
        features, labels = problem.draw(total, rng)
        return NetworkLearner(problem.scaling(features), Labels(labels), Recipe())

    for n in sizes:
        for epsilon in epsilons:
            methods = ["scp-f", "scp-a", "certified", "dpcp", "split", "split-certified"]
            # Without privacy there is no epsilon to compare at: once is enough.
            methods += ["split-cp", "naive"] if epsilon == 1.0 else []
            yield Cell(
                "scp",
                PipelineTerms(n, Budget(epsilon, DELTA), alpha=ALPHA),
                tuple(methods),
                5_000,
                make,
            )


DPCP_METHODS = ("dpcp", "certified", "pscp", "differential", "split-cp", "naive")


def dpcp_cell(*, n: int, epsilon: float, alpha: float, test: int = 20_000) -> Cell:
    """A location parameter, as in DPCP section 5.1.

    Where epsilon is above 0.1, training keeps 0.05 of it.
    """

    def make(rng: np.random.Generator, total: int) -> Learner:
        return Location(located(total, rng), bound=20.0, scale=16.0)

    share = 0.5 if epsilon == 0.1 else 0.05 / epsilon
    terms = PipelineTerms(n, Budget(epsilon, 1e-9), alpha=alpha, share=share, bins=1024)
    return Cell("dpcp", terms, DPCP_METHODS, test, make)


def dpcp_cells() -> Iterator[Cell]:
    """Over n, over epsilon, and over alpha."""
    for n in (500, 1_000, 2_000, 5_000, 10_000):
        yield dpcp_cell(n=n, epsilon=0.1, alpha=ALPHA)
    for epsilon in (0.2, 0.5, 1.0):
        yield dpcp_cell(n=2_000, epsilon=epsilon, alpha=ALPHA)
    for alpha in (0.05, 0.2, 0.3):
        yield dpcp_cell(n=2_000, epsilon=0.1, alpha=alpha)


def memory_cells() -> Iterator[Cell]:
    """A learner that remembers as well as privacy allows."""

    def make(rng: np.random.Generator, total: int) -> Learner:
        return Memoriser(total)

    for epsilon in (0.5, 1.0, 2.0):
        terms = PipelineTerms(10_000, Budget(epsilon, DELTA), alpha=ALPHA)
        yield Cell(
            "memory", terms, ("scp-f", "scp-a", "dpcp", "certified", "split", "naive"), 20_000, make
        )


EXPERIMENTS = {"dpcp": dpcp_cells, "memory": memory_cells, "scp": scp_cells}


def possible(cell: Cell) -> tuple[list[Pipeline], dict[str, str]]:
    """The pipelines of a cell, and why the others cannot run."""
    made, refused = [], {}
    for method in cell.methods:
        try:
            made += replace(cell, methods=(method,)).pipelines()
        except BadInput as error:
            refused[method] = str(error)
    return made, refused


def finish(cells: list[Cell], kept: KeptTrials, trials: int) -> None:
    """Run the trials of these cells that are not kept yet; methods that cannot run are named."""
    prepared: dict[int, list[Pipeline]] = {}

    def work(place: int, number: int) -> Iterator[dict[str, Any]]:
        if place not in prepared:
            prepared[place], refused = possible(cells[place])
            for method, why in refused.items():
                print(f"{cells[place].key} {method}: {why}", file=sys.stderr)
        return cells[place].trial(number, prepared[place])

    kept.finish([cell.key for cell in cells], trials=trials, work=work)


def averages(
    cells: list[Cell], kept: KeptTrials, trials: int, *, measures: Mapping[str, str]
) -> list[dict[str, Any]]:
    """Finish the trials, and a row of means for each cell and method, under the given headings."""
    torch.set_num_threads(1)
    finish(cells, kept, trials)
    rows = []
    for cell in cells:
        done = kept.of(cell.key, trials=trials)
        for method in cell.methods:
            own = [
                {heading: row[name] for heading, name in measures.items()}
                for row in done
                if row["method"] == method
            ]
            here: dict[str, Any] = {"n": cell.terms.n, "epsilon": cell.terms.budget.epsilon}
            here |= {"alpha": cell.terms.alpha, "method": method}
            if own:
                rows.append({**here, **averaged(own, measures)})
    return rows
