"""Runs the short list of a contract on records that may be looked at, to choose by what it costs.

Every configuration of the list keeps the contract; they differ in how large sets become. That is
measured on public records, or on those that owners set apart for it: the measurements are exact, so
nothing about these records is private.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from confide.aggregator.campaigns.driver import run_procedure
from confide.aggregator.cards.contracts.contract import Contract, decimal
from confide.aggregator.procedures.counts.central import owner_noised
from confide.aggregator.quantiles.histogram import Histogram, histogram
from confide.aggregator.quantiles.registry import within_budget
from confide.protocol.cards.card import Layer
from confide.protocol.errors import BadInput
from confide.protocol.exact.gaussian import discrete_gaussian
from confide.protocol.exact.grids import public_grid
from confide.protocol.exact.sampling import Entropy, os_entropy
from confide.protocol.methods.counts.central import OWNER_NOISED, SEARCH, CentralTerms
from confide.protocol.methods.counts.queries import CountQuery, CountTally
from confide.protocol.prediction.predictor import Predictor
from confide.protocol.privacy.zcdp import search_variance
from confide.protocol.scores.base import Score
from confide.protocol.scores.probabilities import check_labels

Array = NDArray[Any]


@dataclass(frozen=True)
class ShortlistTrial:
    """Records with the results of a model for them, and how often each configuration is run.

    A cheaper configuration is chosen if its mean size is at most `tolerance` above the smallest, as
    a share of it.
    """

    score: Score
    results: Array
    truth: Array
    runs: int = 3
    tolerance: float = 0.01
    seed: int | None = None
    entropy: Entropy = os_entropy
    progress: Callable[[], None] = lambda: None

    def __post_init__(self) -> None:
        if self.runs < 1 or not 0 <= self.tolerance < math.inf:
            raise BadInput(
                f"runs is {self.runs} and tolerance {self.tolerance}; accepted are at least 1 run "
                "and a tolerance of 0 or more"
            )
        # As owners score: see the predictor.
        found = self.score.task.checked(self.results)
        object.__setattr__(self, "results", found)
        if self.score.task.of_labels:
            labels = check_labels(self.truth, n=len(found), k=found.shape[1])
            object.__setattr__(self, "truth", labels)

    def measure(self, contract: Contract, judged: Sequence[Layer], chosen: Sequence[int]) -> Layer:
        """Run these configurations, and return what a card says of them."""
        for i in chosen:
            if judged[i]["n"] >= len(self.truth):
                raise BadInput(
                    f"there are {len(self.truth):,} records, and configuration {i} calibrates on "
                    f"{judged[i]['n']:,}; accepted are more, because the others measure it"
                )
        # All configurations meet the same splits, so that none is preferred for an easy one.
        splits = np.random.SeedSequence(self.seed).spawn(self.runs)
        rows = [{"configuration": i, **self._measured(contract, judged[i], splits)} for i in chosen]
        accuracy = {}
        if self.score.task.of_labels:
            accuracy["accuracy"] = float((self.results.argmax(axis=1) == self.truth).mean())
        return {
            "records": len(self.truth),
            "score": self.score.text,
            **accuracy,
            "tolerance": self.tolerance,
            "evaluated": rows,
        }

    def _measured(
        self, contract: Contract, entry: Layer, splits: Sequence[np.random.SeedSequence]
    ) -> Layer:
        rows = []
        for split in splits:
            rows.append(self._run(contract, entry, np.random.default_rng(split)))
            self.progress()
        mean, deviation = np.mean(rows, axis=0).tolist(), np.std(rows, axis=0).tolist()
        # An interval may be the whole line, which JSON has no number for.
        bounded = math.isfinite(mean[1])
        return {
            "runs": self.runs,
            "coverage": mean[0],
            "coverage_deviation": deviation[0],
            "mean_size": mean[1] if bounded else None,
            "size_deviation": deviation[1] if bounded else None,
            "threshold": mean[2],
            "observed_inflation": mean[3],
        }

    def _run(self, contract: Contract, entry: Layer, rng: np.random.Generator) -> list[float]:
        """Coverage, mean size, threshold, and how far it lies above the one without noise."""
        order = rng.permutation(len(self.truth))
        held, rest = order[: entry["n"]], order[entry["n"] :]
        u = rng.random(len(order)) if self.score.randomized else None
        own, fresh = (None, None) if u is None else (u[held], u[rest])
        scores = self.score.true_scores(self.results[held], self.truth[held], u=own)
        counts = histogram(scores, public_grid(entry["grid"], entry["bins"]))
        release = _owners_threshold if entry["noised_by"] == "owners" else _curators_threshold
        threshold = release(contract, entry, counts)(self.entropy)
        exact = float(counts.grid[counts.bin_of(entry["rank"])])
        predictor, truth = Predictor(self.score, threshold), self.truth[rest]
        if self.score.task.of_numbers:
            low, high = predictor.predict_interval(self.results[rest]).T
            covered, sizes = (low <= truth) & (truth <= high), np.maximum(high - low, 0.0)
        else:
            sets = predictor.predict_set(self.results[rest], u=fresh)
            covered, sizes = sets[np.arange(len(rest)), truth], sets.sum(axis=1)
        return [float(covered.mean()), float(sizes.mean()), threshold, threshold - exact]


def chosen_by_size(searched: Sequence[Layer], measured: Layer) -> int:
    """The cheapest configuration whose sets are about as small as the smallest.

    Of equal budgets the smaller sets win, then the earlier configuration.
    """
    rows = measured["evaluated"]
    most = min(_size(row) for row in rows) * (1 + measured["tolerance"])

    def cost(row: Layer) -> tuple[float, float, int]:
        entry = searched[row["configuration"]]
        budget = entry["epsilon_train"] + entry["epsilon_calibration"]
        return budget, _size(row), row["configuration"]

    return int(min((row for row in rows if _size(row) <= most), key=cost)["configuration"])


def _size(row: Layer) -> float:
    return math.inf if row["mean_size"] is None else row["mean_size"]


Threshold = Callable[[Entropy], float]


def _curators_threshold(contract: Contract, entry: Layer, counts: Histogram) -> Threshold:
    """A release from exact counts."""
    mechanism = within_budget(
        entry["mechanism"],
        bins=entry["bins"],
        beta=contract.beta,
        adjacency=contract.adjacency,
        epsilon=entry["epsilon_calibration"],
        delta=entry["delta_calibration"],
    )
    return lambda entropy: mechanism.release(counts, entry["rank"], entropy).threshold


def _owners_threshold(contract: Contract, entry: Layer, counts: Histogram) -> Threshold:
    """A search on counts that owners noise; their noise adds up, wherever records are."""
    epsilon, delta = entry["epsilon_calibration"], entry["delta_calibration"]
    least = search_variance(bins=entry["bins"], epsilon=epsilon, delta=delta)
    terms = CentralTerms(
        variant=OWNER_NOISED,
        mechanism=SEARCH,
        epsilon=epsilon,
        privacy_delta=delta,
        bins=entry["bins"],
        grid=entry["grid"],
        beta=contract.beta,
        noise_variance=entry["noise_variance"] or least,
    )
    alpha = float(1 - decimal(entry["gamma"]) + decimal(contract.beta))
    names = [owner.to_bytes(8) for owner in range(entry["owners"])]

    def draw(entropy: Entropy) -> float:
        def answer(query: CountQuery, _: int) -> CountTally:
            below = int(np.searchsorted(counts.grid, query.threshold, side="right"))
            noise = discrete_gaussian(Fraction(query.variance), len(names), entropy).tolist()
            # The first owner has all records; the others add noise to none.
            first = (counts.n, int(counts.counts[:below].sum()) + noise[0])
            rest = {name: (0, extra) for name, extra in zip(names[1:], noise[1:], strict=True)}
            return CountTally({names[0]: first} | rest)

        return run_procedure(owner_noised(terms, alpha=alpha), answer).threshold

    return draw
